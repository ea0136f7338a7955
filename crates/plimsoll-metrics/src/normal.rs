//! The standard normal distribution.

use std::f64::consts::PI;

/// Beyond this, tails are continued fractions: there the series cancels.
const SERIES_UP_TO: f64 = 2.5;

/// Terms of the continued fraction. At its beginning its error is below rounding.
const TERMS: u32 = 120;

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// The probability of a number below `x`.
pub(crate) fn below(x: f64) -> f64 {
    above(-x)
}

/// The probability of a number above `x`: by Marsaglia's series (2004), ½ − φ(x) · Σ x^(2k+1) / (1 · 3 · 5 ⋯ (2k + 1)), and in the tail by
/// Laplace's continued fraction φ(x) / (x + 1 / (x + 2 / (x + 3 / (x + …)))).
pub(crate) fn above(x: f64) -> f64 {
    if x < -SERIES_UP_TO {
        return 1.0 - above(-x);
    }
    if x > SERIES_UP_TO {
        let fraction = (1..=TERMS).rev().fold(x, |inner, term| x + f64::from(term) / inner);
        return density(x) / fraction;
    }
    let (mut sum, mut term, mut odd) = (x, x, 1.0);
    while sum + term != sum {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    0.5 - sum * density(x)
}

/// Returns the quantile of the standard normal distribution at a probability, by bisection between −8 and 8, beyond which double precision
/// does not distinguish the probability from 0 and 1.
pub(crate) fn normal_quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if below(middle) < probability { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_printed_tables() {
        for (probability, expected) in [
            (0.5, 0.0),
            (0.9, 1.281_551_565_545),
            (0.975, 1.959_963_984_540),
            (0.9995, 3.290_526_731_492),
            (0.025, -1.959_963_984_540),
        ] {
            assert!((normal_quantile(probability) - expected).abs() < 1e-11, "{probability}");
        }
    }

    /// `scipy.stats.norm.sf`.
    #[test]
    fn tails_are_those_of_printed_tables_on_both_sides_of_the_seam() {
        for (x, expected) in [
            (2.499_999, 6.209_682_853e-3),
            (2.500_001, 6.209_647_799e-3),
            (6.0, 9.865_876_450e-10),
            (30.0, 4.906_713_927e-198),
            (-3.0, 0.998_650_101_968),
        ] {
            assert!((above(x) / expected - 1.0).abs() < 1e-9, "{x}: {}", above(x));
        }
    }
}
