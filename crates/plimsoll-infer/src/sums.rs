//! How sums of logits are stored: in single precision, or in half of its memory.

use std::fmt;

use bytemuck::Pod;
use half::f16;
use half::slice::HalfFloatSliceExt;
use serde::Serialize;

/// How sums of logits are stored while windows are added to them. They are added in single precision, and rounded once for each
/// window, whatever the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RingStorage {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision, with 11 bits: a voxel may get another label only where the means of two classes differ by less than
    /// about a thousandth of their size. (bfloat16 has 8 bits, and no use for its range: means are no larger than logits.)
    F16,
}

impl RingStorage {
    /// Both, the more exact one first.
    pub const ALL: [RingStorage; 2] = [RingStorage::F32, RingStorage::F16];
}

impl fmt::Display for RingStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingStorage::F32 => "f32",
            RingStorage::F16 => "f16",
        })
    }
}

/// A number that a sum is stored as.
pub(crate) trait Sum: Pod + Send + Sync {
    /// Logits from here on are refused. What is added are shares of logits that come to one, so that no partial sum is larger than the
    /// largest logit.
    const LARGEST_LOGIT: f32;

    /// The same in single precision.
    fn wide(self) -> f32;

    /// The nearest to a number.
    fn narrow(number: f32) -> Self;

    /// Adds to each of some sums a number.
    fn add(sums: &mut [Self], terms: &[f32]);
}

impl Sum for f32 {
    /// So large a logit is no output of a network that was trained.
    const LARGEST_LOGIT: f32 = 1e30;

    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(number: f32) -> f32 {
        number
    }

    fn add(sums: &mut [f32], terms: &[f32]) {
        sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
    }
}

impl Sum for f16 {
    /// Somewhat below 65504, the largest number in half precision, as shares come to one up to rounding alone.
    const LARGEST_LOGIT: f32 = 65_000.0;

    /// As `f16::to_f32` of what is finite, but without a branch, so that the compiler does several at a time.
    #[inline(always)]
    fn wide(self) -> f32 {
        /// The exponent of 1 in half precision, and in single precision.
        const BIASES: [u32; 2] = [15, 127];
        const MANTISSA: u32 = 23;
        let bits = u32::from(self.to_bits());
        let shifted = (bits & 0x7fff) << 13;
        let has_exponent = shifted & (0x1f << MANTISSA) != 0;
        let rebased = shifted + ((BIASES[1] - BIASES[0]) << MANTISSA);
        // Without an exponent it is a multiple of 2⁻²⁴: read as 2⁻¹⁴ more than it is.
        let least = f32::from_bits((BIASES[1] - BIASES[0] + 1) << MANTISSA);
        let small = f32::from_bits(rebased + (1 << MANTISSA)) - least;
        let magnitude = if has_exponent { f32::from_bits(rebased) } else { small };
        f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16)
    }

    fn narrow(number: f32) -> f16 {
        f16::from_f32(number)
    }

    fn add(sums: &mut [f16], terms: &[f32]) {
        /// Sums that are made wide at a time.
        const PIECE: usize = 128;
        let mut wide = [0.0f32; PIECE];
        for (sums, terms) in sums.chunks_mut(PIECE).zip(terms.chunks(PIECE)) {
            let wide = &mut wide[..sums.len()];
            sums.convert_to_f32_slice(wide);
            f32::add(wide, terms);
            // To the nearest, and of two as near to the even one.
            sums.convert_from_f32_slice(wide);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn every_half_is_made_wide_exactly() {
        for bits in 0..=u16::MAX {
            let number = f16::from_bits(bits);
            if number.is_finite() {
                assert_eq!(number.wide().to_bits(), number.to_f32().to_bits(), "{bits:#06x}");
            }
        }
    }

    #[test]
    fn halves_are_added_in_single_precision_and_rounded_once() {
        let terms: Vec<f32> = (0..300).map(|at| (at as f32 * 0.7).sin() * 3.0).collect();
        let mut sums: Vec<f16> = (0..300).map(|at| f16::from_f32(at as f32 * 0.1 - 15.0)).collect();
        let expected: Vec<f16> =
            sums.iter().zip(&terms).map(|(sum, term)| f16::from_f32(sum.to_f32() + term)).collect();
        f16::add(&mut sums, &terms);
        assert_eq!(sums, expected);
    }

    /// Of two ways to store a sum in 16 bits, half precision keeps it eight times as near.
    #[test]
    fn a_mean_of_logits_stays_nearer_in_half_precision_than_in_bfloat16() {
        let (mut worst_f16, mut worst_bf16) = (0.0f32, 0.0f32);
        for voxel in 0..1000 {
            let (mut exact, mut half, mut brain) = (0.0f32, f16::ZERO, bf16::ZERO);
            for window in 0..8 {
                let term = ((voxel * 8 + window) as f32 * 0.37).sin() * 12.0 / 8.0;
                exact += term;
                half = f16::from_f32(half.to_f32() + term);
                brain = bf16::from_f32(brain.to_f32() + term);
            }
            worst_f16 = worst_f16.max((half.to_f32() - exact).abs());
            worst_bf16 = worst_bf16.max((brain.to_f32() - exact).abs());
        }
        println!("f16 is off by {worst_f16} at most, bfloat16 by {worst_bf16}");
        assert!(worst_f16 * 4.0 < worst_bf16 && worst_f16 < 0.02);
    }
}
