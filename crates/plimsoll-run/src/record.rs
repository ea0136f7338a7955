//! The record of a run at its end.

use plimsoll_data::{CacheStatistics, MakingTimes};
use plimsoll_memory::{Bytes, Digest, HeapUse, HolderUse};
use plimsoll_plan::OpTime;
use serde::Serialize;

use crate::{Part, Specification, StopReason};

/// The memory and the speed of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// The memory limit.
    pub ram_budget_bytes: Bytes,
    /// The total of the planned memory.
    pub planned_bytes: Bytes,
    /// The most that was resident since the run began; null where the system does not say.
    pub peak_rss_bytes: Option<Bytes>,
    /// The most that was resident before, while the data set was inspected, the machine measured and the run planned, under the
    /// same limit.
    pub planning_peak_rss_bytes: Option<Bytes>,
    /// The memory of the device; `None` on the processor.
    pub device: Option<DeviceRecord>,
    /// Memory of the arena, in whole pages: the plan's figure of the same name.
    pub arena_bytes: Bytes,
    /// The part of it that kernels were given, up to its highest address and in whole pages.
    pub arena_used_bytes: Bytes,
    /// Heap allocations of the threads that run steps, after the first step.
    pub heap_allocations_in_steps: u64,
    /// Steps done since the beginning of the run.
    pub steps: u64,
    /// Steps of them whose numbers went wrong and that were left out.
    pub skipped_steps: u64,
    /// The median over the steps of this process; null if it did none.
    pub seconds_per_step: Option<f64>,
    /// The predicted time of a step.
    pub predicted_seconds_per_step: f64,
    /// `true` if no step is left.
    pub finished: bool,
    /// Why this process ended.
    pub ended: StopReason,
    /// The parts of the limit as planned.
    pub planned: Vec<Part>,
    /// The memory that each part really took: reservations in full, the cache as far as it was filled, code as far as it is resident, the
    /// heap as allocated.
    pub held: Vec<HolderUse>,
    /// The heap since the run began; unknown if several folds share the process.
    pub heap: Option<HeapUse>,
    /// The statistics of the cache.
    pub cache: CacheSummary,
    /// The backend that ran the steps.
    pub engine: String,
    /// The time by kind of operation, validation included, the longest first.
    pub ops: Vec<OpTime>,
    /// The processor time of making batches.
    pub batches: MakingTimes,
    /// The time that steps of this process waited for batches.
    pub waiting_seconds: f64,
    /// The moving average of the pseudo-Dice.
    pub ema_pseudo_dice: Option<f64>,
    /// The digest of all that its result depends on.
    pub identity: Digest,
    /// All that its result depends on.
    pub specification: Specification,
}

/// The memory of a device that a run took.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceRecord {
    /// The limit of its memory.
    pub vram_budget_bytes: Bytes,
    /// The total of the planned memory.
    pub planned_bytes: Bytes,
    /// The memory that was taken: the context, measured or estimated, and the decrease of the device's free memory while the engine was
    /// created; other processes that took or freed memory at that moment are counted too. `None` if the device does not report it.
    pub used_bytes: Option<Bytes>,
    /// The parts of the limit as planned.
    pub planned: Vec<Part>,
}

/// The statistics of the cache.
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
