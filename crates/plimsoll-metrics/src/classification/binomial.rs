//! Confidence intervals of shares.

use super::bootstrap::Interval;

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

/// The standard normal distribution up to `x`, by Marsaglia's series (2004): ½ + φ(x) · Σ x^(2k+1) / (1 · 3 · 5 ⋯ (2k + 1)).
fn normal(x: f64) -> f64 {
    let (mut sum, mut term, mut odd) = (x, x, 1.0);
    while sum + term != sum {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The number that a standard normal one is below with this probability, from ½ to 1, by bisection; at most 8, which is closer to
/// certainty than double precision tells.
fn normal_quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (0.0, 8.0);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if normal(middle) < probability { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_printed_tables() {
        for (probability, expected) in
            [(0.5, 0.0), (0.9, 1.281_551_565_545), (0.975, 1.959_963_984_540), (0.9995, 3.290_526_731_492)]
        {
            assert!((normal_quantile(probability) - expected).abs() < 1e-11, "{probability}");
        }
    }
}
