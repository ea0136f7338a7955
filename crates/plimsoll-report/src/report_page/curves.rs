//! The curves of training over epochs.

use std::fmt::Write;

use super::read::Fold;
use crate::epoch_chart::{COLOURS, Chart, Series, legend};
use crate::progress_picture::EpochPoint;

/// Pixels of a chart of a run.
const SIZE: [f64; 2] = [540.0, 250.0];

/// A value of an epoch, if it has one.
type Value = fn(&EpochPoint) -> Option<f64>;

/// The colour of a fold, or of an arm, by its place.
pub fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// The values of epochs.
pub fn points(epochs: &[EpochPoint], value: Value) -> Vec<[f64; 2]> {
    epochs.iter().map(|point| [point.epoch as f64, value(point).unwrap_or(f64::NAN)]).collect()
}

/// The score of an epoch by which checkpoints are compared, and what it is called.
pub fn score(is_of_images: bool) -> (&'static str, Value) {
    match is_of_images {
        true => ("balanced accuracy", |point| point.accuracy),
        false => ("pseudo-Dice, moving average", |point| point.ema_pseudo_dice),
    }
}

/// Loss, score, learning rate, seconds and memory of all folds, under a heading.
pub fn section(folds: &[Fold]) -> String {
    format!("<h2 id=\"curves\">Curves</h2>\n{}", charts(folds))
}

/// The charts of all folds with a legend.
pub fn charts(folds: &[Fold]) -> String {
    let mut html = String::new();
    if folds.iter().all(|fold| fold.epochs.is_empty()) {
        html.push_str("<p>No epoch is done yet.</p>\n");
        return html;
    }
    html.push_str(&legend(folds.iter().enumerate().map(|(place, fold)| (colour(place), fold.name()))));
    html.push_str("<div class=\"plots\">\n");
    let lines = |value: Value, what: &str, dashed: bool| -> Vec<Series> {
        let series = folds.iter().enumerate().map(|(place, fold)| Series {
            name: format!("{}, {what}", fold.name()),
            colour: colour(place),
            dashed,
            points: points(&fold.epochs, value),
        });
        series.collect()
    };
    let mut chart = |title: &str, series: &[Series], has: &[f64], mark| {
        // Writing to a string cannot fail.
        let _ = writeln!(html, "{}", Chart { title, series, size: SIZE, has, epochs: None, mark }.svg());
    };
    let mut losses = lines(|point| point.train_loss, "training", false);
    losses.extend(lines(|point| point.validation_loss, "validation", true));
    chart("loss: training, and validation dashed", &losses, &[], None);
    let is_of_images = folds.iter().any(|fold| fold.epochs.iter().any(|point| point.accuracy.is_some()));
    let (name, value) = score(is_of_images);
    let mut scores = lines(value, name, false);
    let title = match is_of_images {
        true => {
            scores.extend(lines(|point| point.kappa, "quadratic kappa", true));
            "balanced accuracy, and quadratic kappa dashed"
        }
        false => {
            scores.extend(lines(|point| point.mean_pseudo_dice, "of the epoch", true));
            "pseudo-Dice: moving average, and of the epoch dashed"
        }
    };
    chart(title, &scores, &[], None);
    chart("learning rate", &lines(|point| Some(point.learning_rate), "learning rate", false), &[0.0], None);
    chart("seconds of an epoch", &lines(|point| Some(point.seconds), "seconds", false), &[0.0], None);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let planned = folds.iter().filter_map(|fold| fold.history.plan).map(|[_, planned]| planned).max();
    let mark = planned.map(|bytes| (mib(bytes.0), format!("planned: {bytes}")));
    let resident: Value = |point| Some(point.resident_bytes? as f64 / f64::from(1 << 20));
    chart("resident memory at the end of an epoch, MiB", &lines(resident, "MiB", false), &[0.0], mark);
    html.push_str("</div>\n");
    html
}
