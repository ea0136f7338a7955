//! What is read of `run.json`, which [`RunRecord`](plimsoll_run::RunRecord) writes.

use plimsoll_memory::Bytes;
use plimsoll_run::Part;
use serde::Deserialize;

/// What a run held and how fast it was.
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
    pub held: Vec<Held>,
    pub cache: Cache,
    pub engine: String,
    pub ops: Vec<Op>,
    pub batches: Batches,
    pub waiting_seconds: f64,
}

/// The most that a part of the line held.
#[derive(Deserialize)]
pub struct Held {
    pub holder: String,
    pub peak: Bytes,
}

/// What was held of a device.
#[derive(Deserialize)]
pub struct Device {
    pub vram_budget_bytes: Bytes,
    pub planned_bytes: Bytes,
    pub used_bytes: Option<Bytes>,
    pub planned: Vec<Part>,
}

/// How the cache did.
#[derive(Clone, Copy, Deserialize)]
pub struct Cache {
    pub hits: u64,
    pub misses: u64,
    pub bypasses: u64,
    pub evictions: u64,
}

/// What operations of a kind took.
#[derive(Deserialize)]
pub struct Op {
    pub op: String,
    pub seconds: f64,
}

/// What making batches took of the processors.
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
