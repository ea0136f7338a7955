//! The storage of sums of windows, in single or half precision.

use bytemuck::Pod;
use half::f16;
use half::slice::HalfFloatSliceExt;

/// A number that a sum is stored as.
pub(crate) trait Sum: Pod + Send + Sync {
    /// Numbers from here on cannot be summed. What is added are shares of numbers that come to one, so that no partial sum is larger than
    /// the largest of them.
    const LARGEST: f32;

    /// The same in single precision.
    fn wide(self) -> f32;

    /// The nearest to a number.
    fn narrow(number: f32) -> Self;

    /// Adds to each of some sums its share of a number. Returns whether all numbers are finite and below a limit.
    fn add_shares(sums: &mut [Self], numbers: &[f32], shares: &[f32], limit: f32) -> bool;

    /// Copies numbers in single precision.
    fn widen(sums: &[Self], to: &mut [f32]);

    /// The same numbers in single precision: where they are, or in `room`, which has as many.
    fn widened<'a>(sums: &'a [Self], room: &'a mut [f32]) -> &'a [f32];
}

/// Adds shares in single precision. Returns whether all numbers are below a limit; without an early exit, which would keep the compiler
/// from doing several at once.
#[inline(always)]
fn add_shares(sums: &mut [f32], numbers: &[f32], shares: &[f32], limit: f32) -> bool {
    let mut all = 1;
    for ((sum, number), share) in sums.iter_mut().zip(numbers).zip(shares) {
        *sum += number * share;
        // The comparison is false for NaN.
        all &= u32::from(number.abs() < limit);
    }
    all == 1
}

impl Sum for f32 {
    /// So large a logit is no output of a network that was trained.
    const LARGEST: f32 = 1e30;

    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(number: f32) -> f32 {
        number
    }

    fn add_shares(sums: &mut [f32], numbers: &[f32], shares: &[f32], limit: f32) -> bool {
        add_shares(sums, numbers, shares, limit)
    }

    fn widen(sums: &[f32], to: &mut [f32]) {
        to.copy_from_slice(sums);
    }

    #[inline(always)]
    fn widened<'a>(sums: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        sums
    }
}

impl Sum for f16 {
    /// Somewhat below 65504, the largest number in half precision, as shares come to one up to rounding alone.
    const LARGEST: f32 = 65_000.0;

    /// Returns `f16::to_f32` of a finite number without a branch, so that the compiler vectorises it.
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

    fn add_shares(sums: &mut [f16], numbers: &[f32], shares: &[f32], limit: f32) -> bool {
        /// Sums that are made wide at a time.
        const PIECE: usize = 128;
        let (mut wide, mut all) = ([0.0f32; PIECE], true);
        let pieces = sums.chunks_mut(PIECE).zip(numbers.chunks(PIECE)).zip(shares.chunks(PIECE));
        for ((sums, numbers), shares) in pieces {
            let wide = &mut wide[..sums.len()];
            sums.convert_to_f32_slice(wide);
            all &= add_shares(wide, numbers, shares, limit);
            // To the nearest, and of two as near to the even one.
            sums.convert_from_f32_slice(wide);
        }
        all
    }

    fn widen(sums: &[f16], to: &mut [f32]) {
        sums.convert_to_f32_slice(to);
    }

    fn widened<'a>(sums: &'a [f16], room: &'a mut [f32]) -> &'a [f32] {
        f16::widen(sums, room);
        room
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
        let logits: Vec<f32> = (0..300).map(|at| (at as f32 * 0.7).sin() * 3.0).collect();
        let shares: Vec<f32> = (0..300).map(|at| 1.0 / (at as f32 + 1.0)).collect();
        let mut sums: Vec<f16> = (0..300).map(|at| f16::from_f32(at as f32 * 0.1 - 15.0)).collect();
        let terms = logits.iter().zip(&shares).map(|(logit, share)| logit * share);
        let expected: Vec<f16> =
            sums.iter().zip(terms).map(|(sum, term)| f16::from_f32(sum.to_f32() + term)).collect();
        assert!(f16::add_shares(&mut sums, &logits, &shares, f16::LARGEST));
        assert_eq!(sums, expected);
        let mut room = [0.0; 300];
        let wide: Vec<f32> = sums.iter().map(|sum| sum.to_f32()).collect();
        assert_eq!(f16::widened(&sums, &mut room), wide);
    }

    #[test]
    fn one_logit_that_cannot_be_summed_is_found_wherever_it_is() {
        fn is_found<S: Sum>(value: f32, at: usize) -> bool {
            let (mut sums, mut logits, shares) = ([S::zeroed(); 1000], [-3.0; 1000], [0.5; 1000]);
            logits[at] = value;
            !S::add_shares(&mut sums, &logits, &shares, S::LARGEST)
        }
        for at in [0, 499, 999] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -2e30] {
                assert!(is_found::<f32>(value, at) && is_found::<f16>(value, at), "{value} at {at}");
            }
            assert!(!is_found::<f32>(65_504.0, at) && is_found::<f16>(65_504.0, at));
            assert!(!is_found::<f16>(64_999.0, at));
        }
    }

    /// Half precision stores a sum eight times as precisely as bf16.
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
