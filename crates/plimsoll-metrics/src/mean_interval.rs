//! The confidence interval of the mean over cases.

use plimsoll_memory::{Budget, MapError, Mapped};

use crate::classification::{Bootstrap, Interval};
use crate::quantile::quantile;
use crate::resample::draw;

/// The mean of a score over cases with its interval by the percentile bootstrap (Efron and Tibshirani 1993, chapter 13): cases are drawn
/// anew, as many as there are, and the interval is between quantiles of the means. Undefined without cases, and the bounds of fewer than
/// two. Uses 8 bytes per resample and 4 per case from `budget`.
///
/// # Errors
/// Returns an error if the memory is not available.
pub fn mean_interval(scores: &[f64], settings: &Bootstrap, budget: &Budget) -> Result<Interval, MapError> {
    let cases = scores.len();
    if cases == 0 {
        return Ok(Interval::default());
    }
    let value = Some(scores.iter().sum::<f64>() / cases as f64);
    if cases < 2 {
        return Ok(Interval { value, low: None, high: None });
    }
    let mut weights = Mapped::<u32>::zeroed(budget, "bootstrap", cases)?;
    let mut means = Mapped::<f64>::zeroed(budget, "bootstrap", settings.resamples)?;
    for (resample, mean) in means.iter_mut().enumerate() {
        draw(settings.seed, resample as u64, &mut weights);
        let sum: f64 = weights.iter().zip(scores).map(|(weight, score)| f64::from(*weight) * score).sum();
        *mean = sum / cases as f64;
    }
    means.sort_unstable_by(f64::total_cmp);
    let at = |share| quantile(means.len(), |at| means[at], share);
    let outside = (1.0 - settings.confidence) / 2.0;
    Ok(Interval { value, low: at(outside), high: at(1.0 - outside) })
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::Bytes;

    use super::*;

    #[test]
    fn many_cases_have_the_interval_of_the_normal_distribution() {
        let scores: Vec<f64> = (0..400).map(|at| f64::from(at * 7919 % 400) / 399.0).collect();
        let found = mean_interval(&scores, &Bootstrap::default(), &Budget::new(Bytes::mib(1))).unwrap();
        // Of evenly spread scores from 0 to 1 the mean has a standard deviation of √(1 / 12 / 400).
        let half = 1.96 * (1.0f64 / 12.0 / 400.0).sqrt();
        assert!((found.value.unwrap() - 0.5).abs() < 1e-12);
        assert!((found.low.unwrap() - (0.5 - half)).abs() < 0.004, "{found:?}");
        assert!((found.high.unwrap() - (0.5 + half)).abs() < 0.004, "{found:?}");
    }

    #[test]
    fn one_case_has_a_mean_without_an_interval_and_none_has_neither() {
        let budget = Budget::new(Bytes::mib(1));
        let of = |scores: &[f64]| mean_interval(scores, &Bootstrap::default(), &budget).unwrap();
        assert_eq!(of(&[0.5]), Interval { value: Some(0.5), low: None, high: None });
        assert_eq!(of(&[]), Interval::default());
        assert_eq!(of(&[0.25; 3]), Interval { value: Some(0.25), low: Some(0.25), high: Some(0.25) });
    }
}
