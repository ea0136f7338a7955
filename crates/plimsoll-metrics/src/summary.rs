//! Scores of many cases, in the shape of nnU-Net's `summary.json`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use serde::{Deserialize, Serialize};

use crate::{Confusion, MetricError, Overlap, compare};

/// The scores of one class: nnU-Net's, and the volume similarity. A score that does not exist is null.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// See [`Overlap::dice`].
    #[serde(rename = "Dice")]
    pub dice: Option<f64>,
    /// See [`Overlap::iou`].
    #[serde(rename = "IoU")]
    pub iou: Option<f64>,
    /// See [`Overlap::volume_similarity`].
    #[serde(rename = "VolumeSimilarity")]
    pub volume_similarity: Option<f64>,
    /// Voxels in both.
    #[serde(rename = "TP")]
    pub true_positives: f64,
    /// Voxels in the prediction only.
    #[serde(rename = "FP")]
    pub false_positives: f64,
    /// Voxels in the reference only.
    #[serde(rename = "FN")]
    pub false_negatives: f64,
    /// Voxels in neither.
    #[serde(rename = "TN")]
    pub true_negatives: f64,
    /// Voxels of the prediction.
    pub n_pred: f64,
    /// Voxels of the reference.
    pub n_ref: f64,
}

fn number(score: f64) -> Option<f64> {
    score.is_finite().then_some(score)
}

impl From<Overlap> for Scores {
    fn from(overlap: Overlap) -> Scores {
        Scores {
            dice: number(overlap.dice()),
            iou: number(overlap.iou()),
            volume_similarity: number(overlap.volume_similarity()),
            true_positives: overlap.true_positives as f64,
            false_positives: overlap.false_positives as f64,
            false_negatives: overlap.false_negatives as f64,
            true_negatives: overlap.true_negatives as f64,
            n_pred: overlap.predicted() as f64,
            n_ref: overlap.reference() as f64,
        }
    }
}

impl Scores {
    /// The mean of each score over those that exist.
    pub fn mean<'a>(scores: impl Iterator<Item = &'a Scores> + Clone) -> Scores {
        let of = |get: &dyn Fn(&Scores) -> Option<f64>| {
            let (sum, count) =
                scores.clone().filter_map(get).fold((0.0, 0), |(sum, count), score| (sum + score, count + 1));
            (count > 0).then(|| sum / f64::from(count))
        };
        let count = |get: fn(&Scores) -> f64| of(&|scores| Some(get(scores))).unwrap_or(0.0);
        Scores {
            dice: of(&|scores| scores.dice),
            iou: of(&|scores| scores.iou),
            volume_similarity: of(&|scores| scores.volume_similarity),
            true_positives: count(|scores| scores.true_positives),
            false_positives: count(|scores| scores.false_positives),
            false_negatives: count(|scores| scores.false_negatives),
            true_negatives: count(|scores| scores.true_negatives),
            n_pred: count(|scores| scores.n_pred),
            n_ref: count(|scores| scores.n_ref),
        }
    }
}

/// The scores of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseScores {
    /// What was predicted.
    pub prediction_file: PathBuf,
    /// What it was compared with.
    pub reference_file: PathBuf,
    /// By class.
    pub metrics: BTreeMap<u8, Scores>,
}

/// The scores of all cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The mean over classes but the background of the means over cases.
    pub foreground_mean: Scores,
    /// The mean over cases, by class.
    pub mean: BTreeMap<u8, Scores>,
    /// Case by case.
    pub metric_per_case: Vec<CaseScores>,
}

impl Summary {
    /// Puts cases together.
    pub fn new(metric_per_case: Vec<CaseScores>) -> Summary {
        let classes: std::collections::BTreeSet<u8> =
            metric_per_case.iter().flat_map(|case| case.metrics.keys().copied()).collect();
        let mean: BTreeMap<u8, Scores> = classes
            .into_iter()
            .map(|class| {
                (class, Scores::mean(metric_per_case.iter().filter_map(move |c| c.metrics.get(&class))))
            })
            .collect();
        let foreground = mean.iter().filter(|(class, _)| **class != 0).map(|(_, scores)| scores);
        Summary { foreground_mean: Scores::mean(foreground), mean, metric_per_case }
    }
}

/// Compares every reference of a folder that ends in `file_ending` with the prediction of the same name, for these classes;
/// with `partial`, only those that have one.
///
/// # Errors
/// If a folder cannot be listed, a prediction is missing, or two files cannot be compared.
pub fn evaluate(
    predictions: &Path,
    references: &Path,
    file_ending: &str,
    classes: &[u8],
    partial: bool,
    budget: &Budget,
) -> Result<Summary, MetricError> {
    let list = |folder: &Path| -> Result<Vec<OsString>, MetricError> {
        let error = |source| MetricError::Folder { path: folder.into(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(error)? {
            let name = entry.map_err(error)?.file_name();
            if name.to_string_lossy().ends_with(file_ending) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    };
    let (mut expected, found) = (list(references)?, list(predictions)?);
    if !expected.iter().any(|name| found.contains(name)) {
        return Err(MetricError::NoCases { predictions: predictions.into(), references: references.into() });
    }
    expected.retain(|name| !partial || found.contains(name));
    let missing: Vec<String> = expected
        .iter()
        .filter(|name| !found.contains(name))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if !missing.is_empty() {
        return Err(MetricError::Missing {
            predictions: predictions.into(),
            references: references.into(),
            missing,
        });
    }
    let mut cases = Vec::with_capacity(expected.len());
    for name in expected {
        let (prediction_file, reference_file) = (predictions.join(&name), references.join(&name));
        let confusion: Confusion = compare(&prediction_file, &reference_file, budget)?;
        let metrics = classes.iter().map(|class| (*class, confusion.overlap(*class).into())).collect();
        cases.push(CaseScores { prediction_file, reference_file, metrics });
    }
    Ok(Summary::new(cases))
}
