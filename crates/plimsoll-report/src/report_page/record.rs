//! The fields that are read from `run.json`, which [`RunRecord`](plimsoll_run::RunRecord) writes.

use plimsoll_memory::Bytes;
use plimsoll_run::Part;
use serde::Deserialize;

/// The memory and the speed of a run.
#[derive(Deserialize)]
pub struct Record {
    pub ram_budget_bytes: Bytes,
    pub planned_bytes: Bytes,
    pub peak_rss_bytes: Option<Bytes>,
    pub planning_peak_rss_bytes: Option<Bytes>,
    pub device: Option<Device>,
    pub heap_allocations_in_steps: u64,
    pub skipped_steps: u64,
    pub seconds_per_step: Option<f64>,
    pub predicted_seconds_per_step: f64,
    pub planned: Vec<Part>,
    pub held: Vec<HolderPeak>,
    pub cache: Cache,
    pub engine: String,
    pub ops: Vec<Op>,
    pub batches: Batches,
    pub waiting_seconds: f64,
}

/// The most that a part of the limit held.
#[derive(Deserialize)]
pub struct HolderPeak {
    pub holder: String,
    pub peak: Bytes,
}

/// The memory of a device.
#[derive(Deserialize)]
pub struct Device {
    pub vram_budget_bytes: Bytes,
    pub planned_bytes: Bytes,
    pub used_bytes: Option<Bytes>,
    pub planned: Vec<Part>,
}

/// The counts of requests to the cache.
#[derive(Clone, Copy, Deserialize)]
pub struct Cache {
    pub hits: u64,
    pub misses: u64,
    pub bypasses: u64,
    pub evictions: u64,
}

/// The time of operations of a kind.
#[derive(Deserialize)]
pub struct Op {
    pub op: String,
    pub seconds: f64,
}

/// The processor time of loading batches.
#[derive(Deserialize)]
pub struct Batches {
    pub patch_seconds: f64,
    pub map_seconds: f64,
}

impl Record {
    /// The most that a part held; none of parts that are not measured by themselves.
    pub fn held(&self, part: &str) -> Option<Bytes> {
        self.held.iter().find(|held| held.holder == part).map(|held| held.peak)
    }
}
