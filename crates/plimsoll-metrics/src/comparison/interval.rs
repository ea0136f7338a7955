//! Intervals of the mean and the median difference, by the bootstrap over cases.

use plimsoll_memory::{Budget, Mapped};

use super::error::ComparisonError;
use crate::classification::Bootstrap;
use crate::normal;
use crate::quantile::quantile;
use crate::resample::draw;

/// The percentile interval of a statistic: quantiles of its values in sorted resamples (Efron and Tibshirani 1993, chapter 13). None without
/// resamples.
pub fn percentile(sorted: &[f64], confidence: f64) -> Option<[f64; 2]> {
    let outside = (1.0 - confidence) / 2.0;
    between(sorted, [outside, 1.0 - outside])
}

fn between(sorted: &[f64], shares: [f64; 2]) -> Option<[f64; 2]> {
    let [low, high] = shares.map(|share| quantile(sorted.len(), |at| sorted[at], share));
    Some([low?, high?])
}

/// The bias-corrected and accelerated interval of the mean of differences, from the sorted means of resamples (Efron 1987; Efron and
/// Tibshirani 1993, section 14.3), as `scipy.stats.bootstrap` computes it: z₀ = Φ⁻¹ of the share of resamples below the mean, half of
/// those equal to it counted, and a = Σ (d − d̄)³ / (6 (Σ (d − d̄)²)^1.5) by the jackknife. Of equal differences both bounds are their mean. None
/// without resamples.
pub fn bca(differences: &[f64], sorted_means: &[f64], confidence: f64) -> Option<[f64; 2]> {
    let mean = mean(differences)?;
    let moment = |power: i32| differences.iter().map(|d| (d - mean).powi(power)).sum::<f64>();
    if differences.iter().all(|d| *d == differences[0]) {
        return Some([mean; 2]);
    }
    let acceleration = moment(3) / (6.0 * moment(2).powf(1.5));
    let below = sorted_means.partition_point(|found| *found < mean);
    let up_to = sorted_means.partition_point(|found| *found <= mean);
    if sorted_means.is_empty() || up_to == 0 || below == sorted_means.len() {
        return None;
    }
    let bias = normal::normal_quantile((below + up_to) as f64 / (2 * sorted_means.len()) as f64);
    let share = |z: f64| normal::below(bias + (bias + z) / (1.0 - acceleration * (bias + z)));
    let z = normal::normal_quantile((1.0 + confidence) / 2.0);
    between(sorted_means, [share(-z), share(z)])
}

/// The mean, summed in order.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The median of sorted values.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    quantile(sorted.len(), |at| sorted[at], 0.5)
}

/// Resamples of one comparison after another.
pub(super) struct Resampler {
    settings: Bootstrap,
    weights: Mapped<u32>,
    means: Mapped<f64>,
    medians: Mapped<f64>,
}

/// Intervals of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Intervals {
    pub mean: [f64; 2],
    pub median: [f64; 2],
}

impl Resampler {
    /// Reserves 16 bytes for each resample and 4 for each of at most `cases` cases.
    pub(super) fn new(
        settings: Bootstrap,
        cases: usize,
        budget: &Budget,
    ) -> Result<Resampler, ComparisonError> {
        let room = |len| Mapped::<f64>::zeroed(budget, "bootstrap", len);
        let (means, medians) = (room(settings.resamples)?, room(settings.resamples)?);
        Ok(Resampler { settings, weights: Mapped::zeroed(budget, "bootstrap", cases)?, means, medians })
    }

    /// The intervals of sorted differences: BCa of the mean, percentiles of the median, whose jackknife is not consistent. None of fewer
    /// than two differences, which have no spread, and of infinite ones.
    pub(super) fn intervals(&mut self, sorted: &[f64]) -> Option<Intervals> {
        if sorted.len() < 2 || sorted.iter().any(|difference| !difference.is_finite()) {
            return None;
        }
        let weights = &mut self.weights[..sorted.len()];
        for (resample, (mean, median)) in self.means.iter_mut().zip(self.medians.iter_mut()).enumerate() {
            draw(self.settings.seed, resample as u64, weights);
            let sum: f64 = sorted.iter().zip(&*weights).map(|(d, weight)| d * f64::from(*weight)).sum();
            *mean = sum / sorted.len() as f64;
            *median = weighted_median(sorted, weights);
        }
        self.means.sort_unstable_by(f64::total_cmp);
        self.medians.sort_unstable_by(f64::total_cmp);
        let confidence = self.settings.confidence;
        let mean = bca(sorted, &self.means, confidence)?;
        Some(Intervals { mean, median: percentile(&self.medians, confidence)? })
    }
}

/// The median of sorted values that are there as often as their weights say: as often as there are values, all together. There must be one.
fn weighted_median(sorted: &[f64], weights: &[u32]) -> f64 {
    let at = |rank: usize| {
        let (mut count, mut here) = (0, sorted[0]);
        for (value, weight) in sorted.iter().zip(weights) {
            (count, here) = (count + *weight as usize, *value);
            if count > rank {
                break;
            }
        }
        here
    };
    let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
    if low == high { at(low) } else { (at(low) + at(high)) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weighted_median_is_that_of_the_values_written_out() {
        let sorted = [1.0, 2.0, 5.0, 7.0];
        assert_eq!(weighted_median(&sorted, &[1, 1, 1, 1]), 3.5);
        assert_eq!(weighted_median(&sorted, &[0, 0, 0, 4]), 7.0);
        assert_eq!(weighted_median(&sorted, &[3, 0, 1, 0]), 1.0);
        assert_eq!(weighted_median(&sorted[..3], &[0, 2, 1]), 2.0);
    }
}
