//! The cases that went worst and those that went best, as pictures.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_data::Dataset;
use plimsoll_memory::Budget;
use plimsoll_metrics::{CaseScores, Metric};
use plimsoll_run::Settings;
use plimsoll_volume::LabelValues;

use super::read::Fold;
use super::scores::Cases;
use crate::error::{Outcome, ReportError, Unavailable};
use crate::markup::escaped;
use crate::preview::{Comparison, Frame, comparison};

/// Classes of which a picture's caption tells the Dice.
const CAPTIONED: usize = 6;

/// The images of a data set.
pub struct Images {
    dataset: Dataset,
}

/// Opens a data set of volumes with the settings of a run.
pub type OpenDataset<'a> = &'a dyn Fn(&Path, &Settings, &Budget) -> Result<Dataset, Unavailable>;

/// The requested pictures.
pub struct Wanted<'a> {
    /// The folder of the data set; that in which it lay when it was trained with, where none is given.
    pub dataset: Option<&'a Path>,
    /// Opens that folder.
    pub open: OpenDataset<'a>,
    /// The number of worst cases that are shown, and of best cases.
    pub count: usize,
    /// The number of worst cases that are shown as volumes.
    pub volumes: usize,
}

/// The files of a case.
pub struct CaseFiles {
    pub image: PathBuf,
    pub reference: PathBuf,
    pub values: Option<Arc<LabelValues>>,
    /// The class of the reference whose voxels are not scored.
    pub ignore: Option<u8>,
    pub prediction: PathBuf,
}

impl Images {
    /// Opens the data set of a run.
    pub fn open(fold: &Fold, wanted: &Wanted<'_>, budget: &Budget) -> Outcome<Images> {
        let known = fold.history.process.as_ref().and_then(|process| process.dataset.clone());
        let place: PathBuf = match (wanted.dataset, known) {
            (Some(given), _) => given.into(),
            (None, Some(known)) => known,
            (None, None) => {
                return Err(ReportError::DatasetUnknown { fold: fold.folder.path().into() });
            }
        };
        let dataset = (wanted.open)(&place, &fold.specification.settings, budget)?;
        Ok(Images { dataset })
    }

    /// The files of a case of a fold.
    pub fn files(&self, fold: &Fold, name: &str, case: &CaseScores) -> Outcome<CaseFiles> {
        let found = self.dataset.cases.iter().find(|case| case.id == name).ok_or_else(|| {
            ReportError::CaseMissing { dataset: self.dataset.folder.clone(), case: name.into() }
        })?;
        let image =
            found.image_files().next().ok_or_else(|| ReportError::ImageMissing { case: name.into() })?;
        // Where the run is now, which need not be where it was.
        let here = case.prediction_file.file_name().map(|file| fold.folder.validation().join(file));
        Ok(CaseFiles {
            image: image.into(),
            reference: found.label.clone().unwrap_or_else(|| case.reference_file.clone()),
            values: found.reading.label_values.clone(),
            ignore: self.dataset.labels.ignore(),
            prediction: here.filter(|path| path.is_file()).unwrap_or_else(|| case.prediction_file.clone()),
        })
    }
}

/// All cases that have a Dice, with it and with the place of their fold, the worst first; of equal ones in the order of the folds.
pub fn ranked<'a>(cases: &Cases<'a>) -> Vec<(f64, usize, &'a CaseScores)> {
    let scored = cases.cases.iter().filter_map(|(place, case)| Some((Cases::dice(case)?, *place, *case)));
    let mut ranked: Vec<(f64, usize, &CaseScores)> = scored.collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranked
}

/// Returns pictures of the worst and of the best cases. A message replaces a picture that cannot be drawn.
pub fn section(folds: &[Fold], cases: &Cases<'_>, wanted: &Wanted<'_>, budget: &Budget) -> String {
    let ranked = ranked(cases);
    let Some(first) = folds.first().filter(|_| !ranked.is_empty() && wanted.count > 0) else {
        return String::new();
    };
    let mut html = String::from("<h2 id=\"cases\">Worst and best cases</h2>\n");
    let images = match Images::open(first, wanted, budget) {
        Ok(images) => images,
        Err(failure) => {
            // Writing to a string cannot fail.
            let _ = writeln!(
                html,
                "<p class=\"flag\">Pictures are left out: {}; {}.</p>",
                escaped(&failure.line()),
                escaped(&failure.remedy())
            );
            return html;
        }
    };
    html.push_str(
        "<p>The slices with the most wrong voxels, in true proportions: outlines of the reference in green, of the prediction in orange, \
         where both agree in yellow. Volumes are shown in radiological convention: the patient's right side on the left.</p>\n",
    );
    let worst = wanted.count.min(ranked.len());
    let best = wanted.count.min(ranked.len() - worst);
    let groups = [("worst", &ranked[..worst]), ("best", &ranked[ranked.len() - best..])];
    for (title, group) in groups.into_iter().filter(|(_, group)| !group.is_empty()) {
        let _ = writeln!(html, "<h3>The {} {title}</h3>\n<div class=\"pictures\">", group.len());
        let of_best = title == "best";
        let ordered: Vec<_> = if of_best { group.iter().rev().collect() } else { group.iter().collect() };
        for (dice, place, case) in ordered {
            let Some(fold) = folds.get(*place) else { continue };
            let name = Cases::name(case);
            let picture = match draw(fold, &images, &name, case, budget) {
                Ok(png) => format!(
                    "<img alt=\"slices of {}\" src=\"data:image/png;base64,{}\">",
                    escaped(&name),
                    BASE64_STANDARD.encode(png)
                ),
                Err(failure) => format!(
                    "<p class=\"flag\">cannot be drawn: {}; {}</p>",
                    escaped(&failure.line()),
                    escaped(&failure.remedy())
                ),
            };
            let _ = writeln!(
                html,
                "<figure>{picture}<figcaption><b>{}</b>, {}: Dice {dice:.4}{}</figcaption></figure>",
                escaped(&name),
                escaped(&fold.name()),
                escaped(&by_class(case, cases))
            );
        }
        html.push_str("</div>\n");
    }
    html
}

/// The Dice of the classes of a case, of many the worst; nothing of a single one.
fn by_class(case: &CaseScores, cases: &Cases<'_>) -> String {
    let mut scores: Vec<(f64, String)> = case
        .metrics
        .iter()
        .filter_map(|(class, scores)| Some((scores.get(Metric::Dice)?, cases.names.name(*class))))
        .collect();
    if case.metrics.len() < 2 {
        return String::new();
    }
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    let listed: Vec<String> =
        scores.iter().take(CAPTIONED).map(|(dice, name)| format!("{name} {dice:.3}")).collect();
    let more = if scores.len() > CAPTIONED { ", …" } else { "" };
    format!(" ({}{more})", listed.join(", "))
}

fn draw(fold: &Fold, images: &Images, name: &str, case: &CaseScores, budget: &Budget) -> Outcome<Vec<u8>> {
    let found = images.files(fold, name, case)?;
    let files = Comparison {
        image: &found.image,
        reference: &found.reference,
        reference_values: found.values.as_deref(),
        prediction: &found.prediction,
        ignore: found.ignore,
        prediction_values: None,
    };
    comparison(&files, Frame::SMALL, budget)
}
