//! The exponential of sixteen numbers, in arithmetic that every compiler turns into vector instructions.

use plimsoll_parallel::pairs;

use super::LANES;

/// eˣ to about one unit in the last place, for x ≤ 88; below −87 the result is that for −87.
///
/// The method follows the Cephes library's `expf`: x = n ln 2 + r, eʳ by a polynomial on |r| ≤ ½ ln 2, times 2ⁿ.
#[inline(always)]
pub(crate) fn exp(x: &[f32; LANES]) -> [f32; LANES] {
    // Adding and subtracting 1.5 · 2²³ rounds to a whole number.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const POLYNOMIAL: [f32; 6] =
        [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let mut result = [0.0; LANES];
    for (result, x) in pairs(result.iter_mut(), x) {
        let x = x.clamp(-87.0, 88.0);
        let n = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
        let r = (x - n * LN2_HIGH) - n * LN2_LOW;
        let mut sum = POLYNOMIAL[0];
        for coefficient in &POLYNOMIAL[1..] {
            sum = sum * r + coefficient;
        }
        let fraction = sum * r * r + r + 1.0;
        *result = fraction * f32::from_bits(((n as i32 + 127) as u32) << 23);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_exponential_to_a_unit_in_the_last_place() {
        for i in 0..100_000 {
            let x = -86.9 + 174.8 * i as f32 / 100_000.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(&[x; LANES])[3]) - expected).abs() / expected;
            assert!(error < 1.5e-7, "exp({x}) is off by {error:e}");
        }
    }
}
