//! Mean and standard deviation, accumulated plane by plane.

/// Count, mean, sum of squared deviations from the mean, and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moments {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    squares: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The number of partial sums, which the compiler vectorises. The order of additions is fixed.
const LANES: usize = 8;

impl Moments {
    /// The moments of the empty set.
    pub(crate) const NONE: Moments =
        Moments { count: 0, mean: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    /// The moments as numbers that a file keeps bit for bit.
    pub(crate) fn to_bits(self) -> [u64; 5] {
        let [mean, squares, min, max] = [self.mean, self.squares, self.min, self.max].map(f64::to_bits);
        [self.count, mean, squares, min, max]
    }

    /// The moments of [`to_bits`](Self::to_bits).
    pub(crate) fn from_bits([count, mean, squares, min, max]: [u64; 5]) -> Moments {
        let [mean, squares, min, max] = [mean, squares, min, max].map(f64::from_bits);
        Moments { count, mean, squares, min, max }
    }

    /// The moments of `count` zeros.
    pub(crate) fn from_zeros(count: u64) -> Moments {
        if count == 0 {
            Moments::NONE
        } else {
            Moments { count, mean: 0.0, squares: 0.0, min: 0.0, max: 0.0 }
        }
    }

    /// The moments of the non-zero numbers in `values`, which must be finite.
    pub(crate) fn from_nonzero(values: &[f32]) -> Moments {
        let count = values.iter().filter(|value| **value != 0.0).count() as u64;
        if count == 0 {
            return Moments::NONE;
        }
        // Zeros do not change the sum.
        let mean = sum(values, f64::from) / count as f64;
        let squares = sum(values, |value| {
            let distance = f64::from(value) - mean;
            if value == 0.0 { 0.0 } else { distance * distance }
        });
        let least = |value: f32| if value == 0.0 { f32::INFINITY } else { value };
        let greatest = |value: f32| if value == 0.0 { f32::NEG_INFINITY } else { value };
        let min = values.iter().fold(f32::INFINITY, |low, value| low.min(least(*value)));
        let max = values.iter().fold(f32::NEG_INFINITY, |high, value| high.max(greatest(*value)));
        Moments { count, mean, squares, min: f64::from(min), max: f64::from(max) }
    }

    /// The moments of `values`, which must be finite.
    pub(crate) fn from_values(values: &[f32]) -> Moments {
        if values.is_empty() {
            return Moments::NONE;
        }
        let mean = sum(values, f64::from) / values.len() as f64;
        let squares = sum(values, |value| (f64::from(value) - mean).powi(2));
        let min = values.iter().copied().fold(f32::INFINITY, f32::min);
        let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Moments { count: values.len() as u64, mean, squares, min: f64::from(min), max: f64::from(max) }
    }

    /// The moments of cases that weigh alike, however many values they have: the mean of means, and the root of the mean square distance
    /// from it. Cases without values are left out; `None` if all are.
    pub(crate) fn from_equal_cases(cases: &[Moments]) -> Option<(f64, f64)> {
        let cases = || cases.iter().filter(|case| case.count > 0);
        let count = cases().count() as f64;
        let mean = cases().map(|case| case.mean).sum::<f64>() / count;
        let square = |case: &Moments| case.squares / case.count as f64 + (case.mean - mean).powi(2);
        let variance = cases().map(square).sum::<f64>() / count;
        (count > 0.0).then_some((mean, variance.sqrt()))
    }

    /// The moments of both together (Chan, Golub and LeVeque 1979), without cancellation however far the mean is from
    /// zero.
    pub(crate) fn and(self, other: Moments) -> Moments {
        if self.count == 0 || other.count == 0 {
            return if self.count == 0 { other } else { self };
        }
        let count = self.count + other.count;
        let distance = other.mean - self.mean;
        let share = other.count as f64 / count as f64;
        Moments {
            count,
            mean: self.mean + distance * share,
            squares: self.squares + other.squares + distance * distance * share * self.count as f64,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// The standard deviation of the population; 0 for the empty set.
    pub(crate) fn deviation(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }
}

fn sum(values: &[f32], term: impl Fn(f32) -> f64) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += term(*value);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|value| term(*value)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_have_the_moments_of_the_whole(
            values in prop::collection::vec(prop::sample::select(vec![0.0f32, 1e6, 1e6 + 1.0, 1e6 + 4.0]), 1..60),
            cut in 0usize..60,
        ) {
            let (first, second) = values.split_at(cut.min(values.len()));
            let zeros = values.iter().filter(|value| **value == 0.0).count();
            let all = Moments::from_nonzero(first).and(Moments::from_nonzero(second)).and(Moments::from_zeros(zeros as u64));
            let count = values.len() as f64;
            let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
            let variance = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / count;
            prop_assert_eq!(all.count, values.len() as u64);
            prop_assert!((all.mean - mean).abs() <= 1e-9 * mean.abs());
            prop_assert!((all.deviation() - variance.sqrt()).abs() <= 1e-6);
            prop_assert_eq!(all.min, values.iter().fold(f64::INFINITY, |low, value| low.min(f64::from(*value))));
            prop_assert_eq!(all.max, values.iter().fold(-1.0, |high: f64, value| high.max(f64::from(*value))));
        }
    }
}
