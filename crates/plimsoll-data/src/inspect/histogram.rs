//! The distribution of a channel's foreground intensities over a data set, in memory of a fixed size.
//!
//! nnU-Net draws 10⁸ / n foreground voxels of each of n cases, with replacement, so that all cases weigh alike. Here every foreground
//! voxel counts: voxels of a case weigh the same and sum to the same total for each case, which gives the distribution that nnU-Net
//! draws from. Weights are integers, so the result does not depend on the order of additions, and thereby not on threads.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

/// Whole numbers that have a bin of their own: all of 16 bits, signed or not.
const WHOLE: std::ops::RangeInclusive<i32> = -(1 << 15)..=(1 << 16) - 1;
const WHOLE_BINS: usize = (1 << 16) + (1 << 15);

/// Other numbers share bins with those that agree in sign, exponent and the first 10 bits of the fraction, from 2⁻³² up to 2³².
const DROPPED_BITS: u32 = 13;
const LEAST: f32 = 1.0 / (1u64 << 32) as f32;
const MOST_EXPONENTS: usize = 64;
const FRACTION_BINS: usize = MOST_EXPONENTS << 10;

/// Draws of nnU-Net's for a data set (`num_foreground_voxels_for_intensitystats`), by whose ranks percentiles are interpolated.
const DRAWS: u64 = 100_000_000;

/// Parts of a draw, one of which is beneath the rounding of weights.
const PARTS: u128 = 1024;

/// Weights of the intensities of one channel.
pub(crate) struct Histogram {
    /// The weights of whole numbers in ascending order; then of other values, negative and then positive, each
    /// by ascending magnitude.
    weights: Mapped<u64>,
}

impl Histogram {
    /// The bytes that a histogram reserves.
    pub(crate) fn reserves() -> Result<Bytes, MapError> {
        Mapped::<u64>::bytes(WHOLE_BINS + 2 * FRACTION_BINS)
    }

    pub(crate) fn new(budget: &Budget) -> Result<Histogram, MapError> {
        let bins = WHOLE_BINS + 2 * FRACTION_BINS;
        Ok(Histogram { weights: Mapped::zeroed(budget, "histogram of intensities", bins)? })
    }

    /// Adds values of a case, each with this weight.
    pub(crate) fn add(&mut self, values: &[f32], weight: u64) {
        for value in values {
            if let Some(bin) = self.weights.get_mut(bin(*value)) {
                *bin += weight;
            }
        }
    }

    /// The bins that are not empty, with their weights.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.weights.iter().copied().enumerate().filter(|(_, weight)| *weight > 0)
    }

    /// Adds weight to a bin. Returns `true` if there is such a bin and it has room.
    pub(crate) fn add_to_bin(&mut self, bin: usize, weight: u64) -> bool {
        let Some(held) = self.weights.get_mut(bin) else { return false };
        let sum = held.checked_add(weight);
        *held = sum.unwrap_or(*held);
        sum.is_some()
    }

    /// Takes cases out that were added before.
    pub(crate) fn subtract(&mut self, others: &Histogram) {
        for (weight, other) in self.weights.iter_mut().zip(others.weights.iter()) {
            *weight = weight.saturating_sub(*other);
        }
    }

    /// The values below which these percentages of the weight lie, in ascending order; `None` if the histogram is empty. Of whole numbers
    /// of 16 bits they are exact, interpolated as NumPy does between the ranks of 10⁸ draws; of others they are within 2⁻¹¹ of the value.
    pub(crate) fn percentiles<const N: usize>(&self, percents: [f64; N]) -> Option<[f64; N]> {
        let total: u128 = self.weights.iter().map(|weight| u128::from(*weight)).sum();
        if total == 0 {
            return None;
        }
        let rank = |percent: f64| percent / 100.0 * (DRAWS - 1) as f64;
        // The value of each of the two draws that a percentile lies between.
        let mut found = [[None; 2]; N];
        let mut below = 0u128;
        for (value, weight) in self.in_order() {
            below += u128::from(weight);
            for (found, percent) in found.iter_mut().zip(percents) {
                let first = rank(percent).floor() as u128;
                for (found, draw) in found.iter_mut().zip([first, first + 1]) {
                    let is_reached = below * u128::from(DRAWS) * PARTS > (draw * PARTS + 1) * total;
                    if found.is_none() && is_reached {
                        *found = Some(value);
                    }
                }
            }
        }
        let last = self.in_order().last().map(|(value, _)| value)?;
        let mut values = [0.0; N];
        for ((value, [a, b]), percent) in values.iter_mut().zip(found).zip(percents) {
            let (a, b) = (a.unwrap_or(last), b.unwrap_or(last));
            *value = a + (b - a) * (rank(percent) - rank(percent).floor());
        }
        Some(values)
    }

    /// All values that occur with their weights, in ascending order.
    fn in_order(&self) -> impl Iterator<Item = (f64, u64)> {
        let (whole, others) = self.weights.split_at(WHOLE_BINS);
        let (negative, positive) = others.split_at(FRACTION_BINS);
        let mut whole =
            WHOLE.zip(whole).filter(|(_, weight)| **weight > 0).map(|(n, weight)| (f64::from(n), *weight));
        let of_bin = |sign: f64| {
            move |(bin, weight): (usize, &u64)| (*weight > 0).then(|| (sign * middle(bin), *weight))
        };
        let negative = negative.iter().enumerate().rev().filter_map(of_bin(-1.0));
        let mut others = negative.chain(positive.iter().enumerate().filter_map(of_bin(1.0)));
        let (mut next_whole, mut next_other) = (whole.next(), others.next());
        std::iter::from_fn(move || match (next_whole, next_other) {
            (Some(one), Some(other)) if one.0 <= other.0 => std::mem::replace(&mut next_whole, whole.next()),
            (Some(_), None) => std::mem::replace(&mut next_whole, whole.next()),
            _ => std::mem::replace(&mut next_other, others.next()),
        })
    }
}

/// The bin of a finite number.
fn bin(value: f32) -> usize {
    let whole = value as i32;
    let magnitude = value.abs();
    if (whole as f32 == value && WHOLE.contains(&whole)) || magnitude < LEAST {
        return (whole - WHOLE.start()) as usize;
    }
    let place = ((magnitude.to_bits() - LEAST.to_bits()) >> DROPPED_BITS) as usize;
    WHOLE_BINS + usize::from(value > 0.0) * FRACTION_BINS + place.min(FRACTION_BINS - 1)
}

/// The middle of a bin of numbers that are not whole.
fn middle(bin: usize) -> f64 {
    let bits = LEAST.to_bits() + ((bin as u32) << DROPPED_BITS) + (1 << (DROPPED_BITS - 1));
    f64::from(f32::from_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(cases: &[Vec<f32>]) -> Histogram {
        let mut histogram = Histogram::new(&Budget::new(Bytes::mib(4))).unwrap();
        let share = u64::MAX / 2 / cases.len() as u64;
        cases.iter().for_each(|values| histogram.add(values, share / values.len() as u64));
        histogram
    }

    #[test]
    fn whole_numbers_of_16_bits_have_exact_percentiles() {
        // numpy.percentile(numpy.concatenate([numpy.repeat(a, 10**8 // 2 // a.size) for a in cases]), [0.5, 50, 99.5])
        let found =
            histogram(&[vec![-32768.0, 0.0, 7.0, 65535.0], vec![5.0; 1000]]).percentiles([0.5, 50.0, 99.5]);
        assert_eq!(found, Some([-32768.0, 5.0, 65535.0]));
        // A rank between two draws that differ: 0.5 · (10⁸ − 1) lies in the middle of 1 and 4.
        assert_eq!(histogram(&[vec![1.0, 4.0]]).percentiles([50.0]), Some([2.5]));
        assert_eq!(histogram(&[vec![3.0; 9]]).percentiles([0.5, 99.5]), Some([3.0, 3.0]));
        assert_eq!(Histogram::new(&Budget::new(Bytes::mib(4))).unwrap().percentiles([50.0]), None);
    }

    #[test]
    fn other_numbers_have_percentiles_within_a_2048th() {
        for scale in [1e-6f32, 0.001, 0.37, 3.3, 977.7, 1e8] {
            for sign in [1.0, -1.0] {
                let values: Vec<f32> = (0..5000).map(|n| sign * scale * (1.0 + n as f32 / 5000.0)).collect();
                let mut sorted = values.clone();
                sorted.sort_by(f32::total_cmp);
                let found = histogram(&[values]).percentiles([0.5, 50.0, 99.5]).unwrap();
                for (found, at) in found.into_iter().zip([25, 2500, 4975]) {
                    let exact = f64::from(sorted[at]);
                    // A 5000th is the step from one value to the next.
                    assert!((found / exact - 1.0).abs() <= 1.0 / 2048.0 + 1.0 / 5000.0, "{found} {exact}");
                }
            }
        }
    }

    #[test]
    fn numbers_of_both_kinds_are_in_one_order() {
        let values = [-2.5, -2.0, -0.25, 0.0, 0.5, 1.0, 70_000.0, -40_000.5];
        let histogram = histogram(&[values.to_vec()]);
        let found: Vec<f64> = histogram.in_order().map(|(value, _)| value).collect();
        let mut sorted = values;
        sorted.sort_by(f32::total_cmp);
        assert_eq!(found.len(), sorted.len());
        for (found, expected) in found.iter().zip(sorted) {
            assert!((found - f64::from(expected)).abs() <= f64::from(expected).abs() / 2048.0, "{found}");
        }
    }
}
