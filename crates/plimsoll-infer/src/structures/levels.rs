//! Order statistics of intensities that are read several times instead of being held: of each structure, the values of some ranks are found
//! digit by digit.

use super::first_order::Order;

/// Digits of a key: 11, 11 and 10 bits.
const SHIFTS: [u32; 3] = [21, 10, 0];
const WIDTHS: [u32; 3] = [11, 11, 10];

/// The number of values of a digit.
pub(super) const DIGITS: usize = 1 << 11;

/// The ranks of which values are found: the two that a quantile lies between, of five quantiles.
pub(super) const RANKS: usize = 10;

/// The shares of voxels below the quantiles.
pub(super) const SHARES: [f64; RANKS / 2] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// A number with the order of an intensity, so that keys compare as the intensities do.
fn key(value: f32) -> u32 {
    // Zeros of both signs are one value.
    let bits = (value + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The intensity of a key.
fn value(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// The digit at a place of a key, and the digits before it.
fn digit(key: u32, place: usize) -> (u32, usize) {
    let before = u32::checked_shr(key, SHIFTS[place] + WIDTHS[place]).unwrap_or(0);
    (before, (key >> SHIFTS[place] & ((1 << WIDTHS[place]) - 1)) as usize)
}

/// The search for the values of ranks in a structure.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// The digits that are known of each rank's value, and its rank among the values with these digits.
    known: [(u32, u64); RANKS],
    /// The different ones among the known digits, in ascending order, each once.
    begun: [u32; RANKS],
    count: usize,
}

impl Search {
    /// A search among this many values.
    pub(super) fn new(voxels: u64) -> Search {
        let last = voxels.saturating_sub(1);
        let ranks = SHARES.map(|share| {
            let below = position(share, voxels).floor() as u64;
            [below.min(last), (below + 1).min(last)]
        });
        let mut known = [(0, 0); RANKS];
        known.iter_mut().zip(ranks.as_flattened()).for_each(|(known, rank)| known.1 = *rank);
        Search { known, begun: [0; RANKS], count: 1 }
    }

    /// Counts a value by its digit at a place, if the digits before it belong to a rank. `counts` has [`DIGITS`] numbers for each of them.
    pub(super) fn count(&self, value: f32, place: usize, counts: &mut [u64]) {
        let (before, digit) = digit(key(value), place);
        let begun = self.begun.iter().take(self.count);
        if let Some(at) = begun.enumerate().find_map(|(at, begun)| (*begun == before).then_some(at)) {
            counts[at * DIGITS + digit] += 1;
        }
    }

    /// Finds the next digit of each rank's value in the counts.
    pub(super) fn refine(&mut self, place: usize, counts: &[u64]) {
        for (before, rank) in &mut self.known {
            let at = self.begun.iter().take(self.count).position(|begun| begun == before).unwrap_or(0);
            let counts = &counts[at * DIGITS..(at + 1) * DIGITS];
            let mut digit = 0;
            // The rank is below the sum of the counts.
            while digit + 1 < DIGITS && counts[digit] <= *rank {
                *rank -= counts[digit];
                digit += 1;
            }
            *before = *before << WIDTHS[place] | digit as u32;
        }
        self.count = 0;
        for (before, _) in self.known {
            if self.count == 0 || self.begun[self.count - 1] != before {
                self.begun[self.count] = before;
                self.count += 1;
            }
        }
    }

    /// The quantiles among this many values, once all digits are known: interpolated linearly between two values, as NumPy does it.
    pub(super) fn order(&self, voxels: u64) -> Order {
        let quantile = |at: usize| {
            let [below, above] = [2 * at, 2 * at + 1].map(|rank| f64::from(value(self.known[rank].0)));
            let share = position(SHARES[at], voxels).fract();
            let step = above - below;
            if share < 0.5 { below + step * share } else { above - step * (1.0 - share) }
        };
        let [tenth, first_quartile, median, third_quartile, ninetieth] = std::array::from_fn(quantile);
        Order { tenth, first_quartile, median, third_quartile, ninetieth }
    }
}

/// The place of a quantile among sorted values, counted from 0.
fn position(share: f64, voxels: u64) -> f64 {
    share * voxels.saturating_sub(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_intensities_and_give_them_back() {
        let ordered = [f32::MIN, -1024.0, -1.5, -f32::MIN_POSITIVE, 0.0, 1e-30, 3.0, 3.000_000_2, f32::MAX];
        assert!(ordered.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        assert!(ordered.iter().all(|number| value(key(*number)) == *number));
        assert_eq!(key(-0.0), key(0.0));
    }

    #[test]
    fn quantiles_are_those_of_sorted_values() {
        let values: Vec<f32> =
            (0..1013u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as f32 * 0.37 - 4e6).collect();
        for count in [1, 2, 3, 10, 1013] {
            let values = &values[..count];
            let mut search = Search::new(count as u64);
            for place in 0..3 {
                let mut counts = vec![0; RANKS * DIGITS];
                values.iter().for_each(|value| search.count(*value, place, &mut counts));
                search.refine(place, &counts);
            }
            let mut sorted = values.to_vec();
            sorted.sort_by(f32::total_cmp);
            let expected = SHARES.map(|share| {
                let at = share * (count - 1) as f64;
                let [below, above] = [at.floor(), at.ceil()].map(|at| f64::from(sorted[at as usize]));
                below + (above - below) * at.fract()
            });
            let Order { tenth, first_quartile, median, third_quartile, ninetieth } =
                search.order(count as u64);
            let found = [tenth, first_quartile, median, third_quartile, ninetieth];
            assert!(
                found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs()),
                "{found:?} {expected:?}"
            );
        }
    }
}
