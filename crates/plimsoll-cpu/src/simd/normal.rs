//! The standard normal distribution of sixteen numbers, in arithmetic that every compiler turns into vector instructions.

use plimsoll_parallel::pairs;

use super::LANES;
use super::exp::exp;

/// The distribution function Φ(x) and the density φ(x), both to 2 · 10⁻⁷.
///
/// Φ(−z) = e^(−z²/2) · m(z) for z ≥ 0. The smooth factor m, Mills' ratio times the density at 0, is t · p(t) with
/// t = 1 / (1 + 0.4 z) and a polynomial p of degree 8, which was fitted at Chebyshev nodes of 0 ≤ z ≤ 14 to
/// ½ erfcx(z / √2) / t of SciPy.
#[inline(always)]
pub(crate) fn normal(x: &[f32; LANES]) -> ([f32; LANES], [f32; LANES]) {
    const FALLOFF: f32 = 0.4;
    const POLYNOMIAL: [f32; 9] = [
        -0.009_339_471,
        0.008_414_343,
        0.094_658_87,
        -0.242_536_7,
        0.151_036_17,
        0.036_001_794,
        0.143_601_16,
        0.158_540_73,
        0.159_623_06,
    ];
    const AT_ZERO: f32 = 0.398_942_3;
    let mut exponents = [0.0; LANES];
    for (exponent, x) in pairs(exponents.iter_mut(), x) {
        *exponent = -0.5 * x * x;
    }
    let mut density = exp(&exponents);
    let mut distribution = [0.0; LANES];
    for lane in 0..LANES {
        let t = 1.0 / (1.0 + FALLOFF * x[lane].abs());
        let mut sum = POLYNOMIAL[0];
        for coefficient in &POLYNOMIAL[1..] {
            sum = sum * t + coefficient;
        }
        let tail = density[lane] * sum * t;
        distribution[lane] = if x[lane] > 0.0 { 1.0 - tail } else { tail };
        density[lane] *= AT_ZERO;
    }
    (distribution, density)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against Simpson's rule in f64, step by step.
    #[test]
    fn agrees_with_the_integral_of_the_density() {
        let phi = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let step = 1.0 / 256.0;
        let mut expected = 0.0;
        for i in -12 * 256..12 * 256 {
            let x = f64::from(i) * step;
            let ([found, ..], [density, ..]) = normal(&[x as f32; LANES]);
            let error = (f64::from(found) - expected).abs();
            assert!(error < 2e-7, "Φ({x}) is off by {error:e}");
            assert!((f64::from(density) - phi(x)).abs() < 1e-7, "φ({x})");
            expected += step / 6.0 * (phi(x) + 4.0 * phi(x + step / 2.0) + phi(x + step));
        }
    }
}
