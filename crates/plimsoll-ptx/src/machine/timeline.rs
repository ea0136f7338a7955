//! The order that barriers give to accesses of the threads of a block.
//!
//! Each warp has a clock that advances at each barrier it passes, and knows up to which time of each other warp it has
//! seen all (a vector clock, Lamport 1978 and Mattern 1989, with warps as processes). Within a warp `bar.warp.sync` does the
//! same between lanes.

use crate::lanes::{WARP, lanes};

/// The clocks of the warps of a block.
pub(crate) struct Timeline {
    warps: Vec<Clock>,
    /// The times of its warp at which each thread has published its writes, ascending. Empty if none has.
    published: Vec<Vec<u32>>,
}

struct Clock {
    now: u32,
    /// The time of each warp up to which its accesses happened before.
    seen: Vec<u32>,
    /// The least of `seen` for the other warps: what is as old is ordered, whichever warp it is of.
    floor: u32,
    /// Accesses of all lanes before this time happened before the accesses of all others.
    together: u32,
    /// `pairs[i][j]`: accesses of lane j before this time happened before what lane i does now. Only from barriers of some
    /// lanes.
    pairs: Option<Box<[[u32; WARP]; WARP]>>,
}

/// The times that the warps which have arrived at a barrier have seen.
pub(crate) type Horizon = Vec<u32>;

impl Timeline {
    /// At the start of a block.
    pub fn new(warps: usize) -> Timeline {
        let clock = || Clock { now: 1, seen: vec![0; warps], floor: 0, together: 0, pairs: None };
        Timeline { warps: (0..warps).map(|_| clock()).collect(), published: Vec::new() }
    }

    /// The time of a warp.
    pub fn now(&self, warp: usize) -> u32 {
        self.warps[warp].now
    }

    /// Returns `true` if an access at `time` by another lane of the warp, or by any thread of another, surely happened before.
    #[inline]
    pub fn surely_ordered(&self, warp: usize, same_warp: bool, time: u32) -> bool {
        let clock = &self.warps[warp];
        if same_warp { clock.together > time } else { clock.floor >= time }
    }

    /// Returns `true` if an access of thread `earlier` at its `time` happened before what `thread` does now.
    pub fn ordered(&self, earlier: usize, time: u32, thread: usize) -> bool {
        let (warp, other) = (thread / WARP, earlier / WARP);
        if warp != other {
            return self.warps[warp].seen[other] >= time;
        }
        let clock = &self.warps[warp];
        earlier == thread
            || clock.together > time
            || clock.pairs.as_ref().is_some_and(|pairs| pairs[thread % WARP][earlier % WARP] > time)
    }

    /// These lanes publish what they have written, for products of warp groups.
    pub fn publish(&mut self, warp: usize, mask: u32) {
        self.published.resize(self.warps.len() * WARP, Vec::new());
        let clock = &mut self.warps[warp];
        for lane in lanes(mask) {
            self.published[warp * WARP + lane].push(clock.now);
        }
        // What they write from now on is later.
        clock.now += 1;
    }

    /// Returns `true` if `writer` has published what it wrote at a time, and that happened before what `thread` does now.
    pub fn is_published(&self, writer: usize, time: u32, thread: usize) -> bool {
        let Some(times) = self.published.get(writer) else { return false };
        let first = times.partition_point(|published| *published < time);
        times.get(first).is_some_and(|published| self.ordered(writer, *published, thread))
    }

    /// These lanes passed `bar.warp.sync`.
    pub fn join_lanes(&mut self, warp: usize, mask: u32, live: u32) {
        let clock = &mut self.warps[warp];
        clock.now += 1;
        if mask & live == live {
            clock.together = clock.now;
            return;
        }
        let pairs = clock.pairs.get_or_insert_with(|| Box::new([[0; WARP]; WARP]));
        let mut joined = [0; WARP];
        for lane in lanes(mask) {
            for (joined, seen) in joined.iter_mut().zip(&pairs[lane]) {
                *joined = (*joined).max(*seen);
            }
        }
        for lane in lanes(mask) {
            joined[lane] = clock.now;
        }
        for lane in lanes(mask) {
            pairs[lane] = joined;
        }
    }

    /// A warp arrives at a barrier.
    pub fn arrive(&mut self, warp: usize, horizon: &mut Horizon) {
        let clock = &mut self.warps[warp];
        horizon.resize(clock.seen.len(), 0);
        for (horizon, seen) in horizon.iter_mut().zip(&clock.seen) {
            *horizon = (*horizon).max(*seen);
        }
        horizon[warp] = clock.now;
        clock.now += 1;
        clock.together = clock.now;
    }

    /// A warp leaves a barrier at which `horizon` has gathered.
    pub fn leave(&mut self, warp: usize, horizon: &Horizon) {
        let clock = &mut self.warps[warp];
        for (seen, horizon) in clock.seen.iter_mut().zip(horizon) {
            *seen = (*seen).max(*horizon);
        }
        let others = clock.seen.iter().enumerate().filter(|&(other, _)| other != warp);
        clock.floor = others.map(|(_, &seen)| seen).min().unwrap_or(0);
    }
}
