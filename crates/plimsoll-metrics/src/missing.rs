//! Scores that are undefined because a prediction or a reference lacks a class.
//!
//! A distance between surfaces does not exist if one of both is empty, so a mean over the cases that have one rewards a model that finds
//! nothing. Each convention for such cases has a name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::summary::CasesOf;
use crate::{Metric, Scores};

/// The treatment of a score that is undefined because exactly one of prediction and reference has the class, in means and orders.
///
/// A class that is in neither has no score under any convention, as in nnU-Net.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// Leaves the case out of the mean, as nnU-Net does with undefined scores (`numpy.nanmean`).
    #[default]
    Ignore,
    /// Takes the worst value that the score can have: 0 of a share, infinity of a distance. DeepMind's surface-distance gives infinite
    /// distances. MONAI's Hausdorff distance is infinite, too, and its means leave out NaN alone; its percentiles are NaN.
    Worst,
    /// The same, but a distance is the diagonal of the image, as in challenges such as BraTS: 373.13 mm of 240 × 240 × 155 mm.
    Diagonal,
}

impl Missing {
    /// All conventions.
    pub const ALL: [Missing; 3] = [Missing::Ignore, Missing::Worst, Missing::Diagonal];

    /// The name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Missing::Ignore => "ignore",
            Missing::Worst => "worst",
            Missing::Diagonal => "diagonal",
        }
    }

    /// The value of a missing score in an image with this diagonal; none if the case is left out. A distance in an image of unknown size is
    /// infinite.
    pub(crate) fn value(self, metric: Metric, diagonal_mm: Option<f64>) -> Option<f64> {
        match self {
            Missing::Ignore => None,
            Missing::Worst | Missing::Diagonal if metric.is_share() => Some(0.0),
            Missing::Worst => Some(f64::INFINITY),
            Missing::Diagonal => Some(diagonal_mm.unwrap_or(f64::INFINITY)),
        }
    }
}

/// The state of a score of one class of one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CaseScore {
    /// A number.
    Defined(f64),
    /// Undefined: exactly one of prediction and reference has the class, or, of SQ and lesion precision, nothing matches.
    Missing,
    /// Undefined: neither has the class, so that the prediction is right.
    InNeither,
    /// Undefined for another reason: any prediction would have no score, or the numbers of voxels are not known.
    Undefined,
}

impl Scores {
    /// The state of a score. A sensitivity is undefined whatever is predicted if the reference lacks the class, and clDice if a skeleton is
    /// empty: these are not missing.
    pub fn state(&self, metric: Metric) -> CaseScore {
        if let Some(score) = self.get(metric) {
            return CaseScore::Defined(score);
        }
        let may_be_missing = matches!(
            metric,
            Metric::HD
                | Metric::HD95
                | Metric::ASSD
                | Metric::Precision
                | Metric::LesionPrecision
                | Metric::SQ
        );
        match [Metric::Predicted, Metric::Reference].map(|count| self.get(count)) {
            [Some(predicted), Some(reference)] if predicted == 0.0 && reference == 0.0 => {
                CaseScore::InNeither
            }
            [Some(_), Some(_)] if may_be_missing => CaseScore::Missing,
            _ => CaseScore::Undefined,
        }
    }
}

/// The number of cases from which a mean was computed. For a mean over classes, each class of a case counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseCounts {
    /// Cases that have the score.
    pub defined: usize,
    /// Cases in which it is missing.
    pub missing: usize,
    /// All cases.
    pub of: usize,
}

impl CaseCounts {
    /// Returns `true` if every case has the score.
    pub fn is_complete(&self) -> bool {
        self.defined == self.of
    }

    /// Adds a case.
    pub fn add(&mut self, state: CaseScore) {
        self.of += 1;
        match state {
            CaseScore::Defined(_) => self.defined += 1,
            CaseScore::Missing => self.missing += 1,
            CaseScore::InNeither | CaseScore::Undefined => {}
        }
    }

    /// Returns the counts of two disjoint sets of cases together.
    pub fn and(self, other: CaseCounts) -> CaseCounts {
        CaseCounts {
            defined: self.defined + other.defined,
            missing: self.missing + other.missing,
            of: self.of + other.of,
        }
    }

    /// A mean as tables show it: the number, with "n of N" behind it unless all cases have the score. `shown` formats finite numbers.
    pub fn beside(&self, mean: Option<f64>, shown: impl Fn(f64) -> String) -> String {
        let number = match mean {
            None => "–".to_string(),
            Some(mean) if mean.is_infinite() => if mean > 0.0 { "∞" } else { "−∞" }.into(),
            Some(mean) => shown(mean),
        };
        match self.is_complete() || self.of == 0 {
            true => number,
            false => format!("{number} ({self})"),
        }
    }
}

impl fmt::Display for CaseCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.defined, self.of)
    }
}

/// A mean and the cases behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanScore {
    /// The mean by a convention; none if no case has a value. Infinite if a distance is missing and counts as the worst.
    pub value: Option<f64>,
    /// The cases.
    pub cases: CaseCounts,
}

impl MeanScore {
    /// The mean of a score from means and cases by score; without a case if none was scored by it.
    pub(crate) fn new(means: Option<&Scores>, cases: Option<&CasesOf>, metric: Metric) -> MeanScore {
        match cases.and_then(|cases| cases.get(&metric)) {
            Some(cases) => MeanScore { value: means.and_then(|means| means.get(metric)), cases: *cases },
            None => MeanScore::default(),
        }
    }

    /// The mean over cases, each with its state and the diagonal of its image.
    pub fn over(
        cases: impl IntoIterator<Item = (CaseScore, Option<f64>)>,
        metric: Metric,
        missing: Missing,
    ) -> MeanScore {
        let (mut counts, mut sum, mut values) = (CaseCounts::default(), 0.0, 0u32);
        for (state, diagonal_mm) in cases {
            counts.add(state);
            let value = match state {
                CaseScore::Defined(value) => Some(value),
                CaseScore::Missing => missing.value(metric, diagonal_mm),
                CaseScore::InNeither | CaseScore::Undefined => None,
            };
            if let Some(value) = value {
                (sum, values) = (sum + value, values + 1);
            }
        }
        MeanScore { value: (values > 0).then(|| sum / f64::from(values)), cases: counts }
    }
}
