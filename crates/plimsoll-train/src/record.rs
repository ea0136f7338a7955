//! What is known of a run when it ends.

use plimsoll_data::{CacheStatistics, MakingTimes};
use plimsoll_memory::{Bytes, HeapUse, HolderUse};
use plimsoll_plan::OpTime;
use serde::Serialize;

use crate::Part;

/// The file with what a run held and how fast it was, in the folder of a fold.
pub const RUN_FILE: &str = "run.json";

/// What a run held and how fast it was.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// The memory line.
    pub ram_budget_bytes: Bytes,
    /// What was planned in all.
    pub planned_bytes: Bytes,
    /// The most that was ever resident.
    pub peak_rss_bytes: Bytes,
    /// The arena.
    pub arena_bytes: Bytes,
    /// What of it kernels were given.
    pub arena_used_bytes: Bytes,
    /// Heap allocations of the threads that run steps, after the first step.
    pub heap_allocations_in_steps: u64,
    /// Steps done since the beginning of the run.
    pub steps: u64,
    /// The median over the steps of this process.
    pub seconds_per_step: f64,
    /// Whether all epochs are done.
    pub finished: bool,
    /// The parts of the line as planned.
    pub planned: Vec<Part>,
    /// Who held how much of it.
    pub held: Vec<HolderUse>,
    /// What was on the heap.
    pub heap: HeapUse,
    /// How the cache did.
    pub cache: CacheSummary,
    /// What ran the steps.
    pub engine: String,
    /// What that took, validation included, by kind of operation, the longest first.
    pub ops: Vec<OpTime>,
    /// What making batches took of the processors.
    pub batches: MakingTimes,
    /// How long steps waited for a batch, of this process.
    pub waiting_seconds: f64,
    /// The moving average of the pseudo-Dice.
    pub ema_pseudo_dice: Option<f64>,
}

/// How the cache did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CacheSummary {
    /// Volumes found in it.
    pub hits: u64,
    /// Volumes read into it.
    pub misses: u64,
    /// Volumes read by regions, because they did not fit.
    pub bypasses: u64,
    /// Volumes evicted for others.
    pub evictions: u64,
    /// The most it held.
    pub peak_bytes: Bytes,
}

impl From<CacheStatistics> for CacheSummary {
    fn from(s: CacheStatistics) -> CacheSummary {
        CacheSummary {
            hits: s.hits,
            misses: s.misses,
            bypasses: s.bypasses,
            evictions: s.evictions,
            peak_bytes: s.peak,
        }
    }
}
