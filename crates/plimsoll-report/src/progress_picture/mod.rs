//! The picture of how a run goes: losses, pseudo-Dice or accuracy, learning rate, time and memory over epochs.

pub mod axis;
pub mod canvas;
mod history;
mod panel;

use std::io;

use axis::Axis;
use canvas::{Canvas, Colour};
use embedded_graphics::mono_font::iso_8859_1::{FONT_7X13, FONT_10X20};
use embedded_graphics::text::Alignment;
pub use history::History;
use panel::{Panel, Series};
use plimsoll_memory::Bytes;
use plimsoll_run::{EpochCost, EpochRecord};

use crate::duration::duration;

const WIDTH: usize = 1200;
const HEIGHT: usize = 920;
/// Room for what stands above the panels.
const HEAD: f64 = 62.0;

const BLUE: Colour = [31, 96, 176];
const ORANGE: Colour = [226, 120, 20];
const GREEN: Colour = [34, 136, 92];
const INK: Colour = [45, 52, 64];
const GREY: Colour = [110, 118, 130];

/// The results of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochPoint {
    /// Counted from 0.
    pub epoch: u64,
    /// The learning rate of its last step.
    pub learning_rate: f64,
    /// The mean over its steps, if any had one.
    pub train_loss: Option<f64>,
    /// The mean over the validated patches, if it is a number.
    pub validation_loss: Option<f64>,
    /// The mean over classes, if there was validation.
    pub mean_pseudo_dice: Option<f64>,
    /// Its moving average.
    pub ema_pseudo_dice: Option<f64>,
    /// The balanced accuracy of images: the mean over classes of the share of images that are given their class.
    pub accuracy: Option<f64>,
    /// The quadratic weighted kappa of images.
    pub kappa: Option<f64>,
    /// The duration including validation; NaN if it is unknown.
    pub seconds: f64,
    /// The resident memory of the process at its end, if it is known.
    pub resident_bytes: Option<u64>,
}

impl EpochPoint {
    /// The numbers of a record, with its cost where that is known.
    pub fn new(record: &EpochRecord, cost: Option<&EpochCost>) -> EpochPoint {
        EpochPoint {
            epoch: record.epoch,
            learning_rate: record.learning_rate,
            train_loss: record.train_loss,
            validation_loss: record.validation_loss,
            mean_pseudo_dice: record.mean_pseudo_dice,
            ema_pseudo_dice: record.ema_pseudo_dice,
            accuracy: record.classification.as_ref().map(|scores| scores.balanced_accuracy),
            kappa: record.classification.as_ref().and_then(|scores| scores.kappa),
            seconds: cost.map_or(f64::NAN, |cost| cost.seconds),
            resident_bytes: cost.and_then(|cost| cost.resident_bytes),
        }
    }
}

/// Draws epochs, in their order, as a PNG of about 1200 × 900 pixels.
///
/// # Errors
/// Returns an error if the encoder fails.
pub fn png(title: &str, history: &History, planned: Bytes) -> io::Result<Vec<u8>> {
    let mut canvas = Canvas::new(WIDTH, HEIGHT);
    let epochs = || history.points().map(|(point, _)| point.epoch);
    // Without an epoch the axis has none but the first.
    let (first, last) = (epochs().next().unwrap_or(0), epochs().last().unwrap_or(0));
    let epochs = Axis::for_epochs(first, last, 6.0);
    canvas.text(title, [24.0, 32.0], &FONT_10X20, INK, Alignment::Left);
    canvas.text(&in_words(history), [24.0, 52.0], &FONT_7X13, GREY, Alignment::Left);
    let (width, height) = (WIDTH as f64 / 2.0, (HEIGHT as f64 - HEAD) / 3.0);
    for (place, panel) in panels(history, planned).iter().enumerate() {
        let corner = [(place % 2) as f64 * width, HEAD + (place / 2) as f64 * height];
        panel.draw(&mut canvas, corner, [width, height], &epochs);
    }
    canvas.png()
}

/// The state of a run in a line.
fn in_words(history: &History) -> String {
    let Some((last, totals)) = history.last() else { return "no epoch is done yet".into() };
    let best = match (totals.best, totals.most_accurate) {
        (Some((epoch, dice)), _) => format!(" · best average pseudo-Dice {dice:.4} in epoch {epoch}"),
        (None, Some((epoch, accuracy))) => {
            format!(" · best balanced accuracy {accuracy:.4} in epoch {epoch}")
        }
        (None, None) => String::new(),
    };
    let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.4}"));
    format!(
        "epoch {} · loss {}, validation {}{best} · {} in all",
        last.epoch,
        number(last.train_loss),
        number(last.validation_loss),
        duration(totals.seconds)
    )
}

fn panels(history: &History, planned: Bytes) -> [Panel<'static>; 6] {
    let series = |name, colour, of: &dyn Fn(&EpochPoint) -> Option<f64>| Series {
        name,
        colour,
        points: history.points().filter_map(|(point, _)| Some((point.epoch, of(point)?))).collect(),
    };
    let panel = |title, series, from_zero| Panel { title, series, mark: None, from_zero };
    let (unit, memory) = match history.last().map_or(planned.0, |(_, totals)| totals.most_held.max(planned.0))
    {
        most if most >= 1 << 30 => ((1u64 << 30) as f64, "resident memory, GiB"),
        _ => ((1u64 << 20) as f64, "resident memory, MiB"),
    };
    let hours = history.points().map(|(point, totals)| (point.epoch, totals.seconds / 3600.0)).collect();
    [
        panel(
            "loss",
            vec![
                series("train", BLUE, &|point| point.train_loss),
                series("validation", ORANGE, &|point| point.validation_loss),
            ],
            false,
        ),
        match history.points().any(|(point, _)| point.accuracy.is_some()) {
            true => panel(
                "accuracy and kappa",
                vec![
                    series("balanced accuracy", GREEN, &|point| point.accuracy),
                    series("quadratic kappa", INK, &|point| point.kappa),
                ],
                false,
            ),
            false => panel(
                "pseudo-Dice",
                vec![
                    series("of the epoch", GREEN, &|point| point.mean_pseudo_dice),
                    series("moving average", INK, &|point| point.ema_pseudo_dice),
                ],
                false,
            ),
        },
        panel("learning rate", vec![series("", BLUE, &|point| Some(point.learning_rate))], true),
        Panel {
            mark: Some(("planned", planned.0 as f64 / unit)),
            ..panel(
                memory,
                vec![series("held", BLUE, &|point| Some(point.resident_bytes? as f64 / unit))],
                true,
            )
        },
        panel("seconds of an epoch", vec![series("", BLUE, &|point| Some(point.seconds))], true),
        panel("hours since the first epoch", vec![Series { name: "", colour: BLUE, points: hours }], true),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Epochs of a run that converges with noise.
    fn epochs(count: u64) -> Vec<EpochPoint> {
        let mut noise = 1u64;
        let mut jitter = move || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (noise >> 40) as f64 / (1u64 << 24) as f64 - 0.5
        };
        let mut ema = 0.0;
        (0..count)
            .map(|epoch| {
                let done = epoch as f64 / count as f64;
                let dice = (0.92 * (1.0 - (-6.0 * done).exp()) + 0.06 * jitter()).clamp(0.0, 1.0);
                ema = if epoch == 0 { dice } else { 0.9 * ema + 0.1 * dice };
                EpochPoint {
                    epoch,
                    learning_rate: 0.01 * (1.0 - done).powf(0.9),
                    train_loss: Some(1.6 * (-5.0 * done).exp() - 0.8 + 0.05 * jitter()),
                    validation_loss: Some(1.5 * (-5.0 * done).exp() - 0.7 + 0.12 * jitter()),
                    mean_pseudo_dice: Some(dice),
                    ema_pseudo_dice: Some(ema),
                    accuracy: None,
                    kappa: None,
                    seconds: 131.0 + 6.0 * jitter(),
                    resident_bytes: Some((690.0 + 6.0 * jitter()) as u64 * (1 << 20)),
                }
            })
            .collect()
    }

    /// Decodes a picture: its size, and how many of its pixels are not white.
    fn decoded(png: &[u8]) -> (u32, u32, usize) {
        let mut decoder = png::Decoder::new(io::Cursor::new(png));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels.chunks(3).filter(|pixel| *pixel != [255; 3]).count())
    }

    #[test]
    fn any_number_of_epochs_is_drawn() {
        let empty = png("run", &History::default(), Bytes::mib(700)).unwrap();
        for count in [1, 2, 37, 1000, 5000] {
            let started = Instant::now();
            let picture = png("run", &epochs(count).into_iter().collect(), Bytes::mib(700)).unwrap();
            // Generous, as tests run beside others: alone it takes a tenth of that.
            assert!(started.elapsed().as_secs_f64() < 2.0, "{count} epochs took {:?}", started.elapsed());
            let (width, height, _) = decoded(&picture);
            assert_eq!((width, height), (WIDTH as u32, HEIGHT as u32));
            assert!(picture != empty, "{count} epochs");
        }
    }

    #[test]
    fn what_is_not_finite_breaks_nothing_and_is_marked() {
        let mut points = epochs(40);
        let drawn =
            |points: &[EpochPoint], planned| png("run", &points.iter().copied().collect(), planned).unwrap();
        let sound = drawn(&points, Bytes::mib(700));
        points[7].train_loss = None;
        points[8].validation_loss = Some(f64::INFINITY);
        points[9].train_loss = Some(f64::MAX);
        points[10].seconds = f64::NEG_INFINITY;
        points[11].mean_pseudo_dice = None;
        points[12].ema_pseudo_dice = Some(f64::NAN);
        points[13].learning_rate = f64::MIN;
        points[14].resident_bytes = Some(u64::MAX);
        let damaged = drawn(&points, Bytes(u64::MAX));
        assert!(decoded(&damaged).2 > 1000 && damaged != sound);
        for point in &mut points {
            (point.train_loss, point.validation_loss, point.seconds) = (None, Some(f64::NAN), 0.0);
            (point.mean_pseudo_dice, point.ema_pseudo_dice, point.learning_rate) = (None, None, 0.0);
        }
        decoded(&drawn(&points, Bytes::ZERO));
    }
}
