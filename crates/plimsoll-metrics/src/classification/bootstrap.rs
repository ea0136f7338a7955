//! Confidence intervals by the percentile bootstrap.

use plimsoll_memory::{Budget, Mapped};
use serde::{Deserialize, Serialize};

use super::scores::Scorer;
use super::table::TableError;
use crate::quantile::quantile;
use crate::resample::draw;

/// The settings of the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// The number of resamples, drawn with replacement.
    pub resamples: usize,
    /// The confidence level.
    pub confidence: f64,
    /// The seed of the resamples. The same seed gives the same intervals on every machine.
    pub seed: u64,
}

impl Default for Bootstrap {
    /// 95 % intervals of 1000 resamples.
    fn default() -> Bootstrap {
        Bootstrap { resamples: 1000, confidence: 0.95, seed: 0 }
    }
}

/// A score with its interval; undefined values are null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The score of all cases.
    pub value: Option<f64>,
    /// The lower bound.
    pub low: Option<f64>,
    /// The upper bound.
    pub high: Option<f64>,
}

/// The intervals of all scores: from the quantile (1 − confidence) / 2 to the quantile (1 + confidence) / 2 of the
/// resamples in which a score is defined (Efron and Tibshirani 1993, chapter 13). Uses 8 bytes per score and resample
/// from `budget`.
///
/// # Errors
/// Returns an error if the memory is not available.
pub(crate) fn intervals(
    scorer: &mut Scorer<'_>,
    cases: usize,
    settings: &Bootstrap,
    budget: &Budget,
) -> Result<Vec<Interval>, TableError> {
    let scores = scorer.len();
    let mut weights = Mapped::<u32>::zeroed(budget, "bootstrap", cases)?;
    let mut found = Mapped::<f64>::zeroed(budget, "bootstrap", scores.saturating_mul(settings.resamples))?;
    for (resample, found) in found.chunks_exact_mut(scores).enumerate() {
        draw(settings.seed, resample as u64, &mut weights);
        scorer.score(&weights, found);
    }
    let mut values = vec![0.0; scores];
    weights.fill(1);
    scorer.score(&weights, &mut values);
    let finite = |score: f64| score.is_finite().then_some(score);
    let mut column = Mapped::<f64>::zeroed(budget, "bootstrap", settings.resamples)?;
    let intervals = values.into_iter().enumerate().map(|(score, value)| {
        let mut count = 0;
        for value in found.iter().skip(score).step_by(scores).filter(|value| value.is_finite()) {
            column[count] = *value;
            count += 1;
        }
        let column = &mut column[..count];
        column.sort_unstable_by(f64::total_cmp);
        let at = |share| quantile(count, |at| column[at], share);
        let outside = (1.0 - settings.confidence) / 2.0;
        Interval { value: finite(value), low: at(outside), high: at(1.0 - outside) }
    });
    Ok(intervals.collect())
}
