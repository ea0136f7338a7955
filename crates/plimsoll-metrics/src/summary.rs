//! Scores of many cases, in the format of nnU-Net's `summary.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Metric, Overlap, Settings};

/// The scores of one class. A requested score that is undefined or infinite is null in files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scores(BTreeMap<Metric, Option<f64>>);

impl From<Overlap> for Scores {
    fn from(overlap: Overlap) -> Scores {
        let mut scores = Scores::default();
        for (metric, score) in [
            (Metric::Dice, overlap.dice()),
            (Metric::IoU, overlap.iou()),
            (Metric::Sensitivity, overlap.sensitivity()),
            (Metric::Precision, overlap.precision()),
            (Metric::VolumeSimilarity, overlap.volume_similarity()),
            (Metric::TP, overlap.true_positives as f64),
            (Metric::FP, overlap.false_positives as f64),
            (Metric::FN, overlap.false_negatives as f64),
            (Metric::TN, overlap.true_negatives as f64),
            (Metric::Predicted, overlap.predicted() as f64),
            (Metric::Reference, overlap.reference() as f64),
        ] {
            scores.set(metric, score);
        }
        scores
    }
}

impl Scores {
    /// A score, if it was requested and is defined.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0.get(&metric).copied().flatten()
    }

    /// Sets a score; a non-finite value is undefined.
    pub fn set(&mut self, metric: Metric, score: f64) {
        self.0.insert(metric, score.is_finite().then_some(score));
    }

    /// The requested scores.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> {
        self.0.keys().copied()
    }

    /// The mean of each score over the cases where it is defined.
    pub fn mean<'a>(scores: impl Iterator<Item = &'a Scores> + Clone) -> Scores {
        let metrics: BTreeSet<Metric> = scores.clone().flat_map(Scores::metrics).collect();
        let of = |metric| {
            let (sum, count) = scores
                .clone()
                .filter_map(|scores| scores.get(metric))
                .fold((0.0, 0u32), |(sum, count), score| (sum + score, count + 1));
            (count > 0).then(|| sum / f64::from(count))
        };
        Scores(metrics.into_iter().map(|metric| (metric, of(metric))).collect())
    }
}

/// The scores of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseScores {
    /// The file of the prediction.
    pub prediction_file: PathBuf,
    /// The file of the reference.
    pub reference_file: PathBuf,
    /// By class.
    pub metrics: BTreeMap<u8, Scores>,
}

/// The scores of all cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The mean over foreground classes of the means over cases.
    pub foreground_mean: Scores,
    /// The mean over cases, by class.
    pub mean: BTreeMap<u8, Scores>,
    /// Case by case.
    pub metric_per_case: Vec<CaseScores>,
    /// The settings of the evaluation.
    pub settings: Settings,
}

impl Summary {
    /// Summarises cases.
    pub fn new(metric_per_case: Vec<CaseScores>, settings: Settings) -> Summary {
        let classes: BTreeSet<u8> =
            metric_per_case.iter().flat_map(|case| case.metrics.keys().copied()).collect();
        let mean: BTreeMap<u8, Scores> = classes
            .into_iter()
            .map(|class| {
                (class, Scores::mean(metric_per_case.iter().filter_map(move |c| c.metrics.get(&class))))
            })
            .collect();
        let foreground = mean.iter().filter(|(class, _)| **class != 0).map(|(_, scores)| scores);
        Summary { foreground_mean: Scores::mean(foreground), mean, metric_per_case, settings }
    }

    /// The requested scores, in order.
    pub fn metrics(&self) -> Vec<Metric> {
        let all: BTreeSet<Metric> = self
            .metric_per_case
            .iter()
            .flat_map(|case| case.metrics.values().flat_map(Scores::metrics))
            .collect();
        all.into_iter().collect()
    }
}
