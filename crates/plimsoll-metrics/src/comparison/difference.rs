//! Differences of two candidates.

use serde::Serialize;

use super::candidate::Valued;
use super::pairing::Paired;
use super::report::ClassName;
use super::signed_rank::SignedRank;
use super::verdict::Verdict;
use crate::{Metric, Missing};

/// Scores that one of two candidates does not have, or both: such pairs are dropped. Of a mean over classes each class counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undefined {
    /// Only the first has none.
    pub first: usize,
    /// Only the second has none.
    pub second: usize,
    /// Neither has one.
    pub both: usize,
}

/// The differences of two candidates, case by case.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedScores {
    /// The position of each case with a difference, and the first candidate's score less the second's.
    pub differences: Vec<(usize, f64)>,
    /// The number of cases that were dropped because a score is undefined.
    pub undefined: Undefined,
    /// Scores that are missing: exactly one of prediction and reference has the class.
    pub missing: Undefined,
}

/// The difference of two candidates in a score of a class.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The class.
    pub class: ClassName,
    /// The first candidate.
    pub first: String,
    /// The second, whose scores are subtracted.
    pub second: String,
    /// Cases in which both have the score.
    pub cases: usize,
    /// The others.
    pub undefined: Undefined,
    /// Scores that are missing, which are dropped or replaced by a value, as the comparison says.
    pub missing: Undefined,
    /// The mean difference; none without cases, and where both lack a distance that counts as infinite. An infinite one is null in files.
    pub mean: Option<f64>,
    /// Its BCa interval; none of fewer than two cases, and of an infinite mean.
    pub mean_interval: Option<[f64; 2]>,
    /// The median difference.
    pub median: Option<f64>,
    /// Its percentile interval.
    pub median_interval: Option<[f64; 2]>,
    /// The signed-rank test; none without cases.
    pub test: Option<SignedRank>,
    /// Its p value after Holm's correction over all pairs and classes of the score.
    pub p_holm: Option<f64>,
    /// The conclusion from the cases.
    pub verdict: Verdict,
}

impl Paired {
    /// The differences of two candidates, by their positions, in a score; of several classes the mean over those that both have in a case.
    pub fn scores_of_pair(
        &self,
        [first, second]: [usize; 2],
        classes: &[u8],
        metric: Metric,
        by: Missing,
    ) -> PairedScores {
        let [first, second] = [&self.candidates()[first], &self.candidates()[second]];
        let mut differences = Vec::with_capacity(self.cases().len());
        let (mut undefined, mut missing) = (Undefined::default(), Undefined::default());
        for (at, case) in self.cases().iter().enumerate() {
            let mut sum = Sum::default();
            for class in classes {
                let both = [first, second].map(|candidate| candidate.valued(case, *class, metric, by));
                let both = Valued::together(both, metric, by);
                missing.count(both.map(|valued| valued.is_missing));
                match both.map(|valued| valued.number) {
                    [Some(own), Some(other)] => sum.add(own, other),
                    numbers => undefined.count(numbers.map(|number| number.is_none())),
                }
            }
            differences.extend(sum.mean().map(|mean| (at, mean)));
        }
        PairedScores { differences, undefined, missing }
    }
}

impl Undefined {
    fn count(&mut self, lacks: [bool; 2]) {
        match lacks {
            [true, false] => self.first += 1,
            [false, true] => self.second += 1,
            [true, true] => self.both += 1,
            [false, false] => {}
        }
    }
}

/// The sum of differences over classes, some of which may be infinite.
#[derive(Default)]
struct Sum {
    finite: f64,
    /// Differences of plus infinity, less differences of minus infinity.
    infinite: i64,
    classes: u32,
}

impl Sum {
    fn add(&mut self, own: f64, other: f64) {
        self.classes += 1;
        // Two infinite distances are equally bad.
        let difference = if own == other { 0.0 } else { own - other };
        match difference.is_finite() {
            true => self.finite += difference,
            false => self.infinite += if difference > 0.0 { 1 } else { -1 },
        }
    }

    /// The mean; none without classes.
    fn mean(&self) -> Option<f64> {
        let finite = self.finite / f64::from(self.classes);
        (self.classes > 0).then(|| match self.infinite.signum() {
            1 => f64::INFINITY,
            -1 => f64::NEG_INFINITY,
            _ => finite,
        })
    }
}
