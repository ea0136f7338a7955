//! The values that may be freed while too much memory is in use, and the estimated gain.
//!
//! An estimate needs no schedule: sums over the launches before each one give the excess over a gap between two uses in
//! constant time. Recomputing a value needs its operands. The live range of an operand that ends earlier would have to
//! be extended; if that costs memory, the operand is freed and recomputed as well, and so on up to values that are live
//! anyway.

use std::cmp::Reverse;

use plimsoll_graph::{Role, TensorId};

use super::{Search, Tried};
use crate::recompute::Release;

/// The most nodes of a recomputation that is considered.
const LONGEST: usize = 32;

/// Values that are freed together, with an estimate of the result.
pub(super) struct Candidate {
    pub(super) releases: Vec<Release>,
    /// Bytes above the target that are taken away, summed over launches.
    pub(super) gain: f64,
    /// The time of the recomputation.
    pub(super) seconds: f64,
}

impl Candidate {
    /// The gain per second.
    fn score(&self) -> f64 {
        self.gain / self.seconds.max(1e-7)
    }
}

/// A stretch of runs during which a value is live and not touched.
struct Gap {
    release: Release,
    /// The first run of the gap.
    start: usize,
    /// The run that touches the value next, or the run after the last one of its live range.
    end: usize,
}

/// The runs of a choice that hold more than a target.
struct Pressure {
    /// The number of earlier runs that use more memory than the target, for each run.
    above: Vec<usize>,
    /// The excess bytes, summed over the earlier runs, for each run.
    over: Vec<f64>,
    /// The first run at or after each node of the program.
    first_run: Vec<usize>,
    /// By tensor: the last run that touches it or a copy of it.
    last_run: Vec<usize>,
}

impl Pressure {
    fn new(search: &Search, from: &Tried, target: usize) -> Pressure {
        let schedule = &from.schedule;
        let runs = schedule.runs.len();
        let (mut above, mut over) = (vec![0; runs + 1], vec![0.0; runs + 1]);
        for (at, held) in from.held.iter().enumerate() {
            above[at + 1] = above[at] + usize::from(*held > target);
            over[at + 1] = over[at] + held.saturating_sub(target) as f64;
        }
        let nodes = search.lowered().nodes.len();
        let mut first_run = vec![runs; nodes + 2];
        let mut last_run = vec![0; search.values.len()];
        for (at, run) in schedule.runs.iter().enumerate().rev() {
            first_run[run.place] = at;
        }
        for place in (0..=nodes).rev() {
            first_run[place] = first_run[place].min(first_run[place + 1]);
        }
        for (at, run) in schedule.runs.iter().enumerate() {
            let node = &search.lowered().nodes[run.node];
            for id in node.inputs.iter().chain(&node.outputs) {
                last_run[id.index()] = at;
            }
        }
        search.work.add(2 * runs + nodes);
        Pressure { above, over, first_run, last_run }
    }

    /// The number of runs in `start..end` that use more memory than the target.
    fn count(&self, start: usize, end: usize) -> usize {
        if start < end { self.above[end] - self.above[start] } else { 0 }
    }

    /// The excess that is removed if `bytes` fewer bytes are live during these runs: an upper bound.
    fn relief(&self, start: usize, end: usize, bytes: usize) -> f64 {
        let most = bytes as f64 * self.count(start, end) as f64;
        most.min(self.over[end.max(start)] - self.over[start])
    }
}

impl Search {
    /// The values that are live, untouched, while more than `target` is live; the largest first.
    pub(super) fn candidates(&self, from: &Tried, target: usize) -> Vec<Release> {
        let pressure = Pressure::new(self, from, target);
        let mut found: Vec<Release> = self.gaps(from, &pressure).into_iter().map(|gap| gap.release).collect();
        found.sort_by_key(|release| (Reverse(self.values[release.tensor.index()].bytes), *release));
        found
    }

    /// The candidates with their estimates, the greatest gain per second first.
    pub(super) fn estimates(&self, from: &Tried, target: usize) -> Vec<Candidate> {
        let pressure = Pressure::new(self, from, target);
        let gaps = self.gaps(from, &pressure);
        let mut found: Vec<Candidate> =
            gaps.iter().filter_map(|gap| self.estimate(from, &pressure, gap)).collect();
        found.sort_by(|a, b| b.score().total_cmp(&a.score()).then_with(|| a.releases.cmp(&b.releases)));
        found
    }

    /// The gaps in which more than the target is live, of values that are worth freeing and not freed yet.
    fn gaps(&self, from: &Tried, pressure: &Pressure) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for index in (0..self.values.len()).filter(|index| self.is_large[*index]) {
            let tensor = TensorId(index as u32);
            if self.recomputation.maker(tensor).is_none() {
                continue;
            }
            let touches = self.recomputation.touches(tensor);
            self.work.add(touches.len());
            for (number, after) in touches.iter().enumerate() {
                let start = pressure.first_run[after + 1];
                let end = match touches.get(number + 1) {
                    // Recomputations for the next node come before its own run, the last at its place.
                    Some(next) => pressure.first_run[next + 1].saturating_sub(1),
                    None => pressure.last_run[index] + 1,
                };
                let release = Release { after: *after, tensor };
                if pressure.count(start, end) > 0 && from.choice.releases.binary_search(&release).is_err() {
                    gaps.push(Gap { release, start, end });
                }
            }
        }
        gaps
    }

    /// The releases that free a value during a gap, and what they gain. None if they gain nothing.
    fn estimate(&self, from: &Tried, pressure: &Pressure, gap: &Gap) -> Option<Candidate> {
        let Release { tensor, .. } = gap.release;
        let bytes = self.values[tensor.index()].bytes;
        let mut found = Candidate {
            releases: vec![gap.release],
            gain: pressure.relief(gap.start, gap.end, bytes),
            seconds: 0.0,
        };
        // The node of the program that needs the value next: the run at the end of the gap, or the recomputation there.
        let at = gap.end.min(from.schedule.runs.len() - 1);
        let place = from.schedule.runs[at].place;
        let mut nodes = vec![self.recomputation.maker(tensor)?];
        let mut next = 0;
        while let Some(node) = nodes.get(next).copied() {
            next += 1;
            let node = &self.lowered().nodes[node];
            found.seconds += node.seconds;
            self.work.add(node.inputs.len());
            for input in &node.inputs {
                let value = self.values[input.index()];
                let Some(last) = self.recomputation.release_before(*input, place) else {
                    // It cannot be recomputed: what is not held for good is held for longer.
                    if value.role == Role::Intermediate || value.role == Role::Input {
                        found.gain -= self.burden(pressure, *input, at);
                    }
                    continue;
                };
                let maker = self.recomputation.maker(*input)?;
                let is_freed =
                    from.choice.releases.binary_search(&last).is_ok() || found.releases.contains(&last);
                let burden = if is_freed { 0.0 } else { self.burden(pressure, *input, at) };
                if is_freed || (burden > 0.0 && self.is_large[input.index()]) {
                    if nodes.len() >= LONGEST {
                        return None;
                    }
                    if !nodes.contains(&maker) {
                        nodes.push(maker);
                    }
                    if !is_freed {
                        found.releases.push(last);
                    }
                } else {
                    found.gain -= burden;
                }
            }
        }
        (found.gain > 0.0).then_some(found)
    }

    /// The excess added by keeping a value until a run, if it is not live that long anyway.
    fn burden(&self, pressure: &Pressure, tensor: TensorId, until: usize) -> f64 {
        let bytes = self.values[tensor.index()].bytes as f64;
        bytes * pressure.count(pressure.last_run[tensor.index()] + 1, until + 1) as f64
    }
}
