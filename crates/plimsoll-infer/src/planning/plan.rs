//! The plan of a case: its memory, part by part, and its time.

use plimsoll_graph::DType;
use plimsoll_memory::Bytes;
use serde::Serialize;

use crate::options::{RingStorage, Summed};
use crate::summing::device_sums::HostSums;

/// The memory of predicting a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictPlan {
    /// The memory limit.
    pub ram_budget_bytes: Bytes,
    /// Code, heap and stacks.
    pub overhead_bytes: Bytes,
    /// Parameters, features and kernels' scratch: of a device, only what is copied to it through.
    pub arena_bytes: Bytes,
    /// The bytes on a device with its own memory: the arena, the sums and the driver's; `None` on the processor.
    pub device_bytes: Option<Bytes>,
    /// The part of these for sums of logits or features; 0 if this process holds them.
    pub device_logits_bytes: Bytes,
    /// Why this process holds the sums, where the network runs on a device with memory of its own.
    pub host_sums: Option<HostSums>,
    /// Windows on their way in and out, and what they are read through.
    pub window_bytes: Bytes,
    /// Logits or features being summed, logits of two planes where these are made of features, and a plane of labels; of probabilities,
    /// where they are wanted. Where a device sums them, two planes of them; where it could and does not, what is summed of a window as well,
    /// which is copied from it.
    pub logits_bytes: Bytes,
    /// The bytes of what preparation must know of a whole case before any window: its mask, and the ranges of its slices. 0 for models of our own runs.
    pub preparation_bytes: Bytes,
    /// The bytes that decoding the pictures of the case needs; 0 for volumes.
    pub decoding_bytes: Bytes,
    /// Decoded images, and a cascade's earlier labels: the whole case, or what is left of the limit.
    pub cache_bytes: Bytes,
    /// The most bytes of compressed images and earlier labels that are decompressed to files beside the output, if the cache has no room for all
    /// of them. 0 if it has.
    pub decompressed_file_bytes: Bytes,
    /// Labels of all the image, which wait for being put in order; 0 where they come in order, or wait on the disk.
    pub spool_bytes: Bytes,
    /// The bytes that wait to be put in order in an unnamed file beside the output: labels, if the memory limit leaves no room for
    /// them, and probabilities. The archive that these are written to then takes as much again.
    pub spool_file_bytes: Bytes,
    /// Planes of labels that wait for being written; 0 where the limit leaves no room for any, so that each is written at once.
    pub queue_bytes: Bytes,
    /// The bytes in which the next case is inspected and decoded meanwhile; 0 without one, or if the memory limit leaves no room for it.
    pub ahead_bytes: Bytes,
    /// All of these.
    pub total_bytes: Bytes,
    /// The least limit that would do with this arena and these sums: without a cache, a queue and the next case.
    pub minimum_ram_bytes: Bytes,
    /// The summed quantity.
    pub summed: Summed,
    /// The type in which sums are stored.
    pub ring: RingStorage,
    /// The least limit in which this process would store them in single precision, with the same arena.
    pub f32_ring_ram_bytes: Bytes,
    /// The least limit of a device's memory in which it would do so, with the same arena; none where no device sums, or the limit of this
    /// process has no room for what is copied from one.
    pub f32_ring_vram_bytes: Option<Bytes>,
    /// The type in which features are stored.
    pub precision: DType,
    /// The stored axis (0 depth, 1 height, 2 width) along which the case is passed through: it follows from its shape, not from the limit.
    pub slab_axis: usize,
    /// In how many strips it is passed through: 1 where the limit has room for sums of whole planes.
    pub strips: usize,
    /// Windows that are computed, each fold counted. Of images that are cut to what is not zero, as many as there are at most.
    pub windows: usize,
    /// The number of windows that are computed again because they touch another strip as well.
    pub repeated_windows: usize,
    /// The number of passes of each window through the network: all mirrored copies, or one.
    pub looks: usize,
    /// The number of passes that the network computes at once.
    pub window_batch: usize,
    /// The predicted duration of all forward passes.
    pub predicted_seconds: f64,
}

/// The memory and time that a case would need, from the headers of its images.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseEstimate {
    /// The plan below the memory limit.
    pub plan: PredictPlan,
    /// The least limit that would do, with the least arena that is found and sums that take least.
    pub least_ram_bytes: Bytes,
}

impl PredictPlan {
    /// The parts of what is held of this process's memory, with what each is.
    pub fn parts(&self) -> [(&'static str, Bytes); 10] {
        [
            ("overhead", self.overhead_bytes),
            ("arena", self.arena_bytes),
            ("windows", self.window_bytes),
            ("logits", self.logits_bytes),
            ("preparation", self.preparation_bytes),
            ("decoding", self.decoding_bytes),
            ("cache", self.cache_bytes),
            ("spool", self.spool_bytes),
            ("queue", self.queue_bytes),
            ("next case", self.ahead_bytes),
        ]
    }
}
