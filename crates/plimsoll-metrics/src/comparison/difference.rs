//! How far two candidates lie apart.

use serde::Serialize;

use super::pairing::Paired;
use super::report::ClassName;
use super::signed_rank::SignedRank;
use super::verdict::Verdict;
use crate::Metric;

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
    /// What was dropped.
    pub undefined: Undefined,
}

/// How far two candidates lie apart in a score of a class.
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
    /// The mean difference; none without cases.
    pub mean: Option<f64>,
    /// Its BCa interval; none of fewer than two cases.
    pub mean_interval: Option<[f64; 2]>,
    /// The median difference.
    pub median: Option<f64>,
    /// Its percentile interval.
    pub median_interval: Option<[f64; 2]>,
    /// The signed-rank test; none without cases.
    pub test: Option<SignedRank>,
    /// Its p value after Holm's correction over all pairs and classes of the score.
    pub p_holm: Option<f64>,
    /// What the cases tell.
    pub verdict: Verdict,
}

impl Paired {
    /// The differences of two candidates, by their positions, in a score; of several classes the mean over those that both have in a case.
    pub fn scores_of_pair(
        &self,
        [first, second]: [usize; 2],
        classes: &[u8],
        metric: Metric,
    ) -> PairedScores {
        let [first, second] = [&self.candidates()[first], &self.candidates()[second]];
        let (mut differences, mut undefined) = (Vec::with_capacity(self.cases().len()), Undefined::default());
        for (at, case) in self.cases().iter().enumerate() {
            let (mut sum, mut count) = (0.0, 0u32);
            for class in classes {
                match [first, second].map(|candidate| candidate.score(case, *class, metric)) {
                    [Some(own), Some(other)] => (sum, count) = (sum + (own - other), count + 1),
                    [None, Some(_)] => undefined.first += 1,
                    [Some(_), None] => undefined.second += 1,
                    [None, None] => undefined.both += 1,
                }
            }
            if count > 0 {
                differences.push((at, sum / f64::from(count)));
            }
        }
        PairedScores { differences, undefined }
    }
}
