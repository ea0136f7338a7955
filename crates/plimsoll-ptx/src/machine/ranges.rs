//! Sets of addresses.

use std::ops::Range;

/// Ranges that neither overlap nor touch, ascending.
pub(crate) struct Ranges {
    ranges: Vec<Range<u64>>,
    /// The one that was asked for last.
    last: usize,
}

impl Ranges {
    /// The union.
    pub fn new<'a>(ranges: impl Iterator<Item = &'a Range<u64>>) -> Ranges {
        let mut sorted: Vec<Range<u64>> = ranges.filter(|range| !range.is_empty()).cloned().collect();
        sorted.sort_by_key(|range| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in sorted {
            match ranges.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        Ranges { ranges, last: 0 }
    }

    /// The index of the range that has all of these bytes.
    pub fn find(&mut self, address: u64, bytes: usize) -> Option<usize> {
        let holds =
            |range: &Range<u64>| address >= range.start && address.saturating_add(bytes as u64) <= range.end;
        if self.ranges.get(self.last).is_some_and(holds) {
            return Some(self.last);
        }
        let index = self.ranges.partition_point(|range| range.start <= address).checked_sub(1)?;
        if !self.ranges.get(index).is_some_and(holds) {
            return None;
        }
        self.last = index;
        Some(index)
    }

    /// The range nearest to an address.
    pub fn nearest(&self, address: u64) -> Option<Range<u64>> {
        let distance =
            |range: &&Range<u64>| range.start.saturating_sub(address).max(address.saturating_sub(range.end));
        self.ranges.iter().min_by_key(distance).cloned()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.ranges.iter()
    }
}
