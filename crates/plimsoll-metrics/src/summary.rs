//! Scores of many cases, in the format of nnU-Net's `summary.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::summary_file::Written;
use crate::{CaseCounts, CaseScore, MeanScore, Metric, Missing, Overlap, Settings};

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

    /// Sets a mean, which may be infinite.
    fn set_mean(&mut self, metric: Metric, mean: Option<f64>) {
        self.0.insert(metric, mean);
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
    /// The voxels that are counted: the voxels of the grid without ignored ones. None in files of nnU-Net.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_voxels: Option<u64>,
    /// The diagonal of the image in millimetres. None in files of nnU-Net.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagonal_mm: Option<f64>,
}

/// The number of cases behind the mean of each score.
pub type CasesOf = BTreeMap<Metric, CaseCounts>;

/// The scores of all cases. Means follow from the cases, also when a file is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Summary {
    /// The mean over foreground classes of the means over cases. An infinite mean is null in files.
    pub foreground_mean: Scores,
    /// The cases and classes behind it.
    pub foreground_cases: CasesOf,
    /// The mean over cases, by class. An infinite mean is null in files.
    pub mean: BTreeMap<u8, Scores>,
    /// The cases behind it, by class.
    pub mean_cases: BTreeMap<u8, CasesOf>,
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
        let (mut mean, mut mean_cases) = (BTreeMap::new(), BTreeMap::new());
        for class in classes {
            let cases = || {
                metric_per_case.iter().filter_map(|case| Some((case.metrics.get(&class)?, case.diagonal_mm)))
            };
            let metrics: BTreeSet<Metric> = cases().flat_map(|(scores, _)| scores.metrics()).collect();
            let (mut means, mut counts) = (Scores::default(), CasesOf::new());
            for metric in metrics {
                let states = cases().map(|(scores, diagonal_mm)| (scores.state(metric), diagonal_mm));
                let found = MeanScore::over(states, metric, settings.missing);
                means.set_mean(metric, found.value);
                counts.insert(metric, found.cases);
            }
            mean.insert(class, means);
            mean_cases.insert(class, counts);
        }
        let (foreground_mean, foreground_cases) = over_classes(&mean, &mean_cases);
        Summary { foreground_mean, foreground_cases, mean, mean_cases, metric_per_case, settings }
    }

    /// The same cases with means by another convention.
    pub fn with_missing(self, missing: Missing) -> Summary {
        Summary::new(self.metric_per_case, Settings { missing, ..self.settings })
    }

    /// The values of a score of a class over cases, by the convention for missing scores.
    pub fn values(&self, class: u8, metric: Metric) -> Vec<f64> {
        let value = |case: &CaseScores| match case.metrics.get(&class)?.state(metric) {
            CaseScore::Defined(score) => Some(score),
            CaseScore::Missing => self.settings.missing.value(metric, case.diagonal_mm),
            CaseScore::InNeither | CaseScore::Undefined => None,
        };
        self.metric_per_case.iter().filter_map(value).collect()
    }

    /// The mean of a score over cases, of a class or over the foreground classes, with the cases behind it.
    pub fn mean_of(&self, class: Option<u8>, metric: Metric) -> MeanScore {
        let (mean, cases) = match class {
            Some(class) => (self.mean.get(&class), self.mean_cases.get(&class)),
            None => (Some(&self.foreground_mean), Some(&self.foreground_cases)),
        };
        MeanScore::new(mean, cases, metric)
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

/// The means over foreground classes: each class has the same weight, and one without a mean has none.
fn over_classes(mean: &BTreeMap<u8, Scores>, cases: &BTreeMap<u8, CasesOf>) -> (Scores, CasesOf) {
    let (mut sums, mut counts) = (BTreeMap::<Metric, (f64, u32)>::new(), CasesOf::new());
    for (_, scores) in mean.iter().filter(|(class, _)| **class != 0) {
        for metric in scores.metrics() {
            let sum = sums.entry(metric).or_default();
            if let Some(mean) = scores.get(metric) {
                *sum = (sum.0 + mean, sum.1 + 1);
            }
        }
    }
    for (metric, own) in cases.iter().filter(|(class, _)| **class != 0).flat_map(|(_, own)| own) {
        let all = counts.entry(*metric).or_default();
        *all = all.and(*own);
    }
    let mut means = Scores::default();
    for (metric, (sum, classes)) in sums {
        means.set_mean(metric, (classes > 0).then(|| sum / f64::from(classes)));
    }
    (means, counts)
}
