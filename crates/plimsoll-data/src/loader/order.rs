//! In which order the cases of a data set are taken.

use plimsoll_random::{Draws, Purpose, mix};
use serde::{Deserialize, Serialize};

/// The choice of the images of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// All images one after the other, shuffled again each time all were taken.
    #[default]
    Shuffled,
    /// A class first, each alike, then one of its images: rare classes are seen as often as common ones.
    Balanced,
}

/// A permutation of the numbers below a count that is never written down: each place is computed by itself, so that a run can go
/// on at any step without a state.
///
/// It is a balanced Feistel network of four rounds over the next power of four, whose results are permuted again until they are
/// below the count (Black and Rogaway 2002, "Ciphers with arbitrary finite domains", section 4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    count: u64,
    /// Bits of each half.
    half: u32,
    key: u64,
}

impl Permutation {
    /// A permutation of the numbers below `count`, which is at least 1.
    pub(crate) fn new(count: usize, seed: u64, round: u64) -> Permutation {
        let count = count as u64;
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Permutation { count, half: bits.div_ceil(2).max(1), key: mix(seed ^ mix(round)) }
    }

    /// The number at a place, which is below the count.
    pub(crate) fn at(&self, place: u64) -> u64 {
        let mut number = place;
        loop {
            number = self.once(number);
            if number < self.count {
                return number;
            }
        }
    }

    fn once(&self, number: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ (mix(self.key ^ mix(right << 2 | round)) & mask));
        }
        left << self.half | right
    }
}

/// The cases that a run trains on, in the order of its steps.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    sampling: Sampling,
    cases: Vec<(u8, u32)>,
    /// For each class that has any, where its cases lie in `cases`.
    classes: Vec<std::ops::Range<usize>>,
    batch: u64,
}

impl Order {
    /// The order of cases with their classes, of which there is at least one.
    pub(crate) fn new(sampling: Sampling, mut cases: Vec<(u8, u32)>, batch: usize) -> Order {
        cases.sort_unstable();
        let mut classes: Vec<std::ops::Range<usize>> = Vec::new();
        for same in cases.chunk_by(|one, other| one.0 == other.0) {
            let start = classes.last().map_or(0, |last| last.end);
            classes.push(start..start + same.len());
        }
        Order { sampling, cases, classes, batch: batch as u64 }
    }

    /// Class and case of a sample of a step.
    pub(crate) fn case(&self, seed: u64, step: u64, sample: u64) -> (u8, u32) {
        let place = match self.sampling {
            Sampling::Shuffled => {
                let (number, count) = (step * self.batch + sample, self.cases.len() as u64);
                Permutation::new(self.cases.len(), seed, number / count).at(number % count) as usize
            }
            Sampling::Balanced => {
                let mut draws = Draws::new(seed, Purpose::Place, 0, step, sample);
                let class = &self.classes[draws.below(self.classes.len())];
                class.start + draws.below(class.len())
            }
        };
        self.cases[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_has_each_number_once_and_another_order_each_round() {
        for count in [1, 2, 3, 4, 5, 17, 64, 65, 1000] {
            let of_round = |round| {
                (0..count).map(|at| Permutation::new(count as usize, 7, round).at(at)).collect::<Vec<_>>()
            };
            let mut all = of_round(0);
            assert!(count < 5 || all != of_round(1), "{count}");
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn where_a_case_lands_is_uniform() {
        let mut counts = [0u32; 10];
        for round in 0..20_000 {
            counts[Permutation::new(10, 3, round).at(4) as usize] += 1;
        }
        // Five standard deviations of a count with mean 2000.
        assert!(counts.iter().all(|count| count.abs_diff(2000) < 212), "{counts:?}");
    }

    #[test]
    fn all_cases_are_taken_before_one_is_taken_twice() {
        let cases: Vec<(u8, u32)> = (0..10).map(|case| (u8::from(case > 7), case)).collect();
        let order = Order::new(Sampling::Shuffled, cases.clone(), 4);
        let taken: Vec<u32> = (0..5)
            .flat_map(|step| (0..4).map(move |sample| (step, sample)))
            .map(|(step, sample)| order.case(1, step, sample).1)
            .collect();
        for round in taken.chunks(10) {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, (0..10).collect::<Vec<_>>());
        }
        let order = Order::new(Sampling::Balanced, cases, 4);
        let rare = (0..500)
            .flat_map(|step| (0..4).map(move |sample| (step, sample)))
            .filter(|(step, sample)| order.case(1, *step, *sample).0 == 1)
            .count();
        // Five standard deviations of half of 2000.
        assert!(rare.abs_diff(1000) < 112, "{rare}");
    }
}
