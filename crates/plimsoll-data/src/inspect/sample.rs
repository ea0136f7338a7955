//! A random sample of bounded size from a stream of unknown length.

use std::collections::BinaryHeap;

use plimsoll_random::mix;

/// Keeps the `capacity` positions with the smallest hashes of all that it is offered. As the hashes are pseudo-random,
/// so is the sample; it depends on the key and on the set of positions, not on their order.
pub(crate) struct Sample {
    capacity: usize,
    key: u64,
    /// (hash, position), the greatest hash on top.
    kept: BinaryHeap<(u64, u64)>,
    /// Only hashes below this are kept.
    bound: u64,
}

impl Sample {
    /// The bytes of a sample of this capacity, and of its sorted positions.
    pub(crate) const fn bytes(capacity: usize) -> u64 {
        (capacity * (size_of::<(u64, u64)>() + size_of::<u64>())) as u64
    }

    pub(crate) fn new(capacity: usize, key: u64) -> Sample {
        Sample { capacity, key, kept: BinaryHeap::with_capacity(capacity), bound: u64::MAX }
    }

    #[inline]
    pub(crate) fn show(&mut self, position: u64) {
        let hash = mix(position ^ self.key);
        if hash < self.bound {
            self.keep(hash, position);
        }
    }

    fn keep(&mut self, hash: u64, position: u64) {
        if self.kept.len() == self.capacity {
            self.kept.pop();
        }
        self.kept.push((hash, position));
        if self.kept.len() == self.capacity {
            self.bound = self.kept.peek().map_or(0, |(hash, _)| *hash);
        }
    }

    /// The positions, sorted.
    pub(crate) fn into_sorted(self) -> Vec<u64> {
        let mut positions: Vec<u64> = self.kept.into_iter().map(|(_, position)| position).collect();
        positions.sort_unstable();
        positions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_equally_likely_in_any_order() {
        let mut counts = [0u32; 50];
        for key in 0..10_000 {
            let mut sample = Sample::new(5, key);
            (0..50).for_each(|position| sample.show(position));
            let mut backwards = Sample::new(5, key);
            (0..50).rev().for_each(|position| backwards.show(position));
            let kept = sample.into_sorted();
            assert_eq!(kept, backwards.into_sorted());
            assert_eq!(kept.len(), 5);
            kept.iter().for_each(|position| counts[*position as usize] += 1);
        }
        // Five standard deviations of a count with mean 1000.
        assert!(counts.iter().all(|count| count.abs_diff(1000) < 150), "{counts:?}");
    }

    #[test]
    fn a_stream_within_capacity_is_kept_whole() {
        let mut sample = Sample::new(9, 1);
        (10..18).for_each(|position| sample.show(position));
        assert_eq!(sample.into_sorted(), (10..18).collect::<Vec<u64>>());
    }
}
