//! The number of cases that a comparison needs.

use crate::normal::normal_quantile;

/// The probability with which a comparison with the needed number of cases finds the difference.
pub(super) const POWER: f64 = 0.8;

/// Returns the number of cases that the signed-rank test would need to find the effect of these differences with a probability of 80 %, at level
/// `alpha` of both sides: (z₁₋α⸝₂ + z₀.₈)² / (3 (p′ − ½)²) (Noether 1987), where p′ is the share of pairs of differences with a sum above zero, the pairs of
/// sum zero counted half; and not fewer than have a p value below `alpha` at all, 2^(1−n). None if there is no effect, or no pair to see it
/// in.
pub fn cases_needed(differences: &[f64], alpha: f64) -> Option<u64> {
    // Sums have the sign that infinite differences, which are equal in size, give them.
    let finite = differences.iter().map(|d| d.abs()).filter(|d| d.is_finite()).fold(0.0, f64::max);
    let largest = 2.0 * finite + 1.0;
    let mut sorted: Vec<f64> = differences.iter().map(|d| d.clamp(-largest, largest)).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let pairs = (n.checked_sub(1)? * n) as f64 / 2.0;
    // For each difference the others whose sum with it is above zero: the larger it is, the more.
    let (mut above, mut below) = (0usize, 0usize);
    for (at, d) in sorted.iter().enumerate() {
        let rest = &sorted[at + 1..];
        above += rest.len() - rest.partition_point(|other| d + other <= 0.0);
        below += rest.partition_point(|other| d + other < 0.0);
    }
    let shift = (above as f64 - below as f64) / (2.0 * pairs);
    if pairs == 0.0 || shift == 0.0 {
        return None;
    }
    let z = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(POWER);
    let needed = (z * z / (3.0 * shift * shift)).ceil() as u64;
    Some(needed.max(least_cases(alpha)))
}

/// The fewest cases with which the exact test has a p value of at most `alpha`.
pub(super) fn least_cases(alpha: f64) -> u64 {
    (1.0 - alpha.log2()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_cases_are_those_of_the_exact_test() {
        // 2 / 2⁵ is above 0.05, 2 / 2⁶ below.
        assert_eq!((least_cases(0.05), least_cases(0.0625), least_cases(0.01)), (6, 5, 8));
        assert_eq!(cases_needed(&[0.1, 0.2, 0.3], 0.05), Some(11));
        assert_eq!(cases_needed(&[0.1, -0.1], 0.05), None);
        assert_eq!(cases_needed(&[0.1], 0.05), None);
        assert_eq!(cases_needed(&[], 0.05), None);
    }
}
