//! What is known of a run when it ends.

use plimsoll_data::{CacheStatistics, MakingTimes};
use plimsoll_memory::{Bytes, Digest, HeapUse, HolderUse};
use plimsoll_plan::OpTime;
use serde::Serialize;

use crate::{Part, Specification, StopReason};

/// What a run held and how fast it was.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// The memory line.
    pub ram_budget_bytes: Bytes,
    /// What was planned in all.
    pub planned_bytes: Bytes,
    /// The most that was resident since the run began; null where the system does not say.
    pub peak_rss_bytes: Option<Bytes>,
    /// The most that was resident before, while the data set was inspected, the machine measured and the run planned, under the
    /// same line.
    pub planning_peak_rss_bytes: Option<Bytes>,
    /// What was held of a device with memory of its own; none on the processor.
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
    /// What was predicted.
    pub predicted_seconds_per_step: f64,
    /// Whether nothing is left to do.
    pub finished: bool,
    /// Why this process ended.
    pub ended: StopReason,
    /// The parts of the line as planned.
    pub planned: Vec<Part>,
    /// What of them was really held: what is reserved by size as it was reserved, the cache as far as it was filled, code as far as
    /// it is resident, the heap as it was allocated.
    pub held: Vec<HolderUse>,
    /// What was on the heap, since the run began; unknown of one fold among several in a process.
    pub heap: Option<HeapUse>,
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
    /// The digest of all that its result depends on.
    pub identity: Digest,
    /// All that its result depends on.
    pub specification: Specification,
}

/// What a run held of a device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceRecord {
    /// The line of its memory.
    pub vram_budget_bytes: Bytes,
    /// What was planned in all.
    pub planned_bytes: Bytes,
    /// What was held in all: the context, as it was measured or is usual, and by what the device's free memory became less as the engine
    /// was made; other processes that took or gave back memory at that moment are counted too. None where the device does not say.
    pub used_bytes: Option<Bytes>,
    /// The parts of the line as planned.
    pub planned: Vec<Part>,
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
