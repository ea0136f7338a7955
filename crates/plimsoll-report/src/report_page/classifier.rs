//! The results of an image classifier: scores with intervals, confusion, ROC, reliability, and the images with the largest errors.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::classification::{
    Bootstrap, Curves, Interval, Labelling, Table as Predictions, classify,
};
use plimsoll_run::{ImageTarget, Task};

use super::read::Fold;
use super::table::{Cell, Table};
use crate::classification_picture::classification_picture;
use crate::error::{Outcome, ReportError};
use crate::markup::escaped;

/// The bytes of drawings of mistakes that a page has at most; of further folds it says where they are.
const MOST_DRAWN: u64 = 2 << 20;

/// Scores of all classes together that come first; all others follow by name.
const FIRST: [&str; 3] = ["accuracy", "balanced_accuracy", "auroc"];

/// Returns `true` if a fold gives images classes.
pub fn is_of_images(fold: &Fold) -> bool {
    matches!(fold.specification.config.task, Task::Classification(_))
}

/// Returns how many classes an image has, by the target of a network.
pub fn labelling_of(target: ImageTarget) -> Labelling {
    match target {
        ImageTarget::AnyOf => Labelling::SeveralLabels,
        ImageTarget::OneOf | ImageTarget::Ordinal => Labelling::OneClass,
    }
}

/// The validation images of each fold.
pub fn section(folds: &[Fold], budget: &Budget, put: &mut dyn FnMut(&str) -> Outcome) -> Outcome {
    put("<h2 id=\"scores\">Scores of the validation images</h2>\n")?;
    let bootstrap = Bootstrap::default();
    put(&format!(
        "<p>Of the final weights. In brackets the {:.0} % interval over images, by the percentile bootstrap with {} resamples.</p>\n",
        100.0 * bootstrap.confidence,
        bootstrap.resamples
    ))?;
    let mut drawn = 0;
    for fold in folds {
        put(&format!("<h3>{}</h3>\n", escaped(&fold.name())))?;
        let predictions = fold.folder.image_predictions();
        if !predictions.is_file() {
            put("<p>Its validation images are not classified with the final weights yet.</p>\n")?;
            continue;
        }
        let labelling = labelling_of(fold.specification.config.task.classification()?.target);
        let cases = Predictions::read(&predictions, labelling, budget)?;
        let report = classify(&cases, &bootstrap, budget)?;
        let curves = Curves::new(&cases, budget)?;
        let mut table = Table::new(["score", "all classes"]);
        let mut names: Vec<&str> =
            FIRST.into_iter().filter(|name| report.overall.contains_key(*name)).collect();
        names.extend(report.overall.keys().map(String::as_str).filter(|name| !FIRST.contains(name)));
        for name in names {
            table.row([Cell::text(&name.replace('_', " ")), cell(report.overall.get(name))]);
        }
        put(&table.html())?;
        let mut table = Table::new(["class", "sensitivity", "specificity", "F1", "AUROC", "images"]);
        for class in &report.classes {
            let counts = class.counts;
            table.row([
                Cell::text(&class.name),
                cell(Some(&class.sensitivity)),
                cell(Some(&class.specificity)),
                cell(class.scores.get("f1")),
                cell(class.scores.get("auroc")),
                Cell::count(counts.true_positives + counts.false_negatives),
            ]);
        }
        put(&table.html())?;
        put(&format!("<figure>{}</figure>\n", classification_picture(&report, &curves).in_page()))?;
        drawn += mistakes(fold, MOST_DRAWN - drawn, budget, put)?;
    }
    Ok(())
}

/// Puts the drawing of the worst mistakes of a fold, if it is not longer than this; returns its length.
fn mistakes(fold: &Fold, most: u64, budget: &Budget, put: &mut dyn FnMut(&str) -> Outcome) -> Outcome<u64> {
    let path = fold.folder.mistakes();
    if !path.is_file() {
        put("<p>No image is wrong.</p>\n")?;
        return Ok(0);
    }
    let of_path = |error| ReportError::at_path(&path, error);
    let length = plimsoll_disk::metadata(&path).map_err(of_path)?.len();
    if length > most {
        let mut text = String::from("<p>The images that are most wrong are drawn in ");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "<code>{}</code>.</p>", escaped(&path.display().to_string()));
        put(&text)?;
        return Ok(0);
    }
    // As it is read, as letters, and as part of a tag.
    let _held = budget.reserve("a drawing", Bytes(4 * length))?;
    let svg = plimsoll_disk::read(&path, length).map_err(of_path)?;
    put(
        "<details open><summary>The images that are most wrong, with the evidence for the class (Grad-CAM)</summary><figure>",
    )?;
    // An image runs no scripts, whoever wrote the file.
    put("<img alt=\"images that are most wrong\" src=\"data:image/svg+xml;base64,")?;
    put(&BASE64_STANDARD.encode(svg))?;
    put("\"></figure></details>\n")?;
    Ok(length)
}

/// A score with its interval.
fn cell(found: Option<&Interval>) -> Cell {
    let ends = found.and_then(|found| found.low.zip(found.high)).map(|(low, high)| [low, high]);
    Cell::interval(found.and_then(|found| found.value), ends, |score| format!("{score:.4}"))
}
