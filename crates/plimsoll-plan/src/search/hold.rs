//! Holds again values that need not be freed: those whose bytes fit below the target during all of the launches between.
//!
//! A segment tree over launches has the peak of memory during any stretch of them, so each value takes O(log n).
//! Launches that are no longer needed once a value is kept are counted as if they still were, so a choice that fits
//! here fits.

use super::{Search, Tried};
use crate::recompute::{Release, Run};

/// The most bytes held during any stretch of runs, to which bytes can be added.
struct Peaks {
    /// For each node, the peak of memory, without the bytes that were added to the nodes above.
    most: Vec<usize>,
    /// By node: what was added to all of its runs.
    added: Vec<usize>,
    leaves: usize,
}

impl Peaks {
    fn new(held: &[usize]) -> Peaks {
        let leaves = held.len().max(1).next_power_of_two();
        let mut most = vec![0; 2 * leaves];
        most[leaves..leaves + held.len()].copy_from_slice(held);
        for node in (1..leaves).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Peaks { most, added: vec![0; 2 * leaves], leaves }
    }

    /// The peak of memory from one run to before another.
    fn most(&self, start: usize, end: usize) -> usize {
        self.most_below(1, (0, self.leaves), (start, end))
    }

    fn most_below(&self, node: usize, own: (usize, usize), asked: (usize, usize)) -> usize {
        if own.1 <= asked.0 || asked.1 <= own.0 {
            return 0;
        }
        if asked.0 <= own.0 && own.1 <= asked.1 {
            return self.most[node];
        }
        let middle = own.0.midpoint(own.1);
        let left = self.most_below(2 * node, (own.0, middle), asked);
        let right = self.most_below(2 * node + 1, (middle, own.1), asked);
        left.max(right) + self.added[node]
    }

    /// Adds bytes to all runs from one to before another.
    fn add(&mut self, start: usize, end: usize, bytes: usize) {
        self.add_below(1, (0, self.leaves), (start, end), bytes);
    }

    fn add_below(&mut self, node: usize, own: (usize, usize), asked: (usize, usize), bytes: usize) {
        if own.1 <= asked.0 || asked.1 <= own.0 {
            return;
        }
        if asked.0 <= own.0 && own.1 <= asked.1 {
            self.most[node] += bytes;
            self.added[node] += bytes;
            return;
        }
        let middle = own.0.midpoint(own.1);
        self.add_below(2 * node, (own.0, middle), asked, bytes);
        self.add_below(2 * node + 1, (middle, own.1), asked, bytes);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
    }
}

impl Search {
    /// Holds again all values that fit below the target together, the most expensive first.
    pub(super) fn hold_what_fits(&self, from: Tried, target: usize) -> Tried {
        let mut peaks = Peaks::new(&from.held);
        let made = self.recomputed_at(&from);
        let order = self.most_expensive_first(&from.choice.releases);
        let mut held: Vec<Release> = Vec::new();
        self.work.add(from.held.len() + order.len() * (from.held.len().ilog2() as usize + 1));
        for release in order {
            let runs = &from.schedule.runs;
            let after = runs.partition_point(|run| run.place <= release.after);
            // Where the last node to touch it may work in place, its result may lie there already.
            let works_in_place = !self.lowered().nodes[release.after].in_place.is_empty();
            let start = after.saturating_sub(usize::from(works_in_place));
            let copies = &made[release.tensor.index()];
            let next = copies.partition_point(|at| runs[*at].place <= release.after);
            let Some(end) = copies.get(next).copied() else { continue };
            let bytes = self.values[release.tensor.index()].bytes;
            if peaks.most(start, end) + bytes <= target {
                peaks.add(start, end, bytes);
                held.push(release);
            }
        }
        if held.is_empty() {
            return from;
        }
        held.sort_unstable();
        let mut releases = from.choice.releases.clone();
        releases.retain(|release| held.binary_search(release).is_err());
        match self.measure(releases) {
            Some(tried)
                if tried.choice.lower_bound <= target && tried.choice.seconds <= from.choice.seconds =>
            {
                tried
            }
            _ => from,
        }
    }

    /// Returns releases by the time of the node that makes the freed value, the longest first. A value that no node can make again is never
    /// freed, so it has no place among them.
    pub(super) fn most_expensive_first(&self, releases: &[Release]) -> Vec<Release> {
        let seconds = |release: &Release| {
            let maker = self.recomputation.maker(release.tensor)?;
            Some((self.lowered().nodes[maker].seconds, *release))
        };
        let mut order: Vec<(f64, Release)> = releases.iter().filter_map(seconds).collect();
        order.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        order.into_iter().map(|(_, release)| release).collect()
    }

    /// By tensor: the runs that make a copy of it.
    fn recomputed_at(&self, from: &Tried) -> Vec<Vec<usize>> {
        let mut made = vec![Vec::new(); self.values.len()];
        let is_copy = |run: &Run| run.node != run.place;
        for (at, run) in from.schedule.runs.iter().enumerate().filter(|(_, run)| is_copy(run)) {
            for id in &self.lowered().nodes[run.node].outputs {
                made[id.index()].push(at);
            }
        }
        made
    }
}
