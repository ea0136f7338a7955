//! Confidence intervals of shares.

use super::bootstrap::Interval;
use crate::normal::normal_quantile;

/// The interval of Wilson (1927) of a share: `successes` of `trials`, at a confidence level. Unlike a bootstrap's, it has a width
/// where all or none succeed. Without trials all is undefined.
pub fn wilson(successes: u64, trials: u64, confidence: f64) -> Interval {
    if trials == 0 {
        return Interval::default();
    }
    let (n, share) = (trials as f64, successes as f64 / trials as f64);
    let z = normal_quantile((1.0 + confidence) / 2.0);
    let scale = 1.0 + z * z / n;
    let centre = (share + z * z / (2.0 * n)) / scale;
    let half = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt() / scale;
    // At the ends the bound is exact, which rounding would miss.
    let low = if successes == 0 { 0.0 } else { centre - half };
    let high = if successes == trials { 1.0 } else { centre + half };
    Interval { value: Some(share), low: Some(low), high: Some(high) }
}
