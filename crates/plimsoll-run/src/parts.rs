//! The memory of a run, part by part, before it begins.

use plimsoll_graph::DType;
use plimsoll_memory::{Bytes, Overhead};
use plimsoll_plan::DriverUse;
use serde::{Deserialize, Serialize};

use crate::{PresetPlan, Products, RunError, StartTable, WayOut};

/// The share of a machine that a run gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The memory limit.
    pub limit: Bytes,
    /// Threads that kernels run on.
    pub threads: usize,
    /// Threads that make batches.
    pub loader_threads: usize,
}

/// A named part of the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The purpose of the memory.
    pub name: String,
    /// The number of bytes.
    pub bytes: Bytes,
}

/// The memory of a device that a run takes, and the host memory that the device needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicePlan {
    /// The name of the device.
    pub name: String,
    /// The limit of the device's memory.
    pub vram_budget_bytes: Bytes,
    /// The memory of the driver, on the device and in this process.
    pub driver: DriverUse,
    /// The host memory for copies to and from the device.
    pub staging_bytes: Bytes,
    /// The device memory to which the next batch is copied while a step runs; 0 if the limit has no room for it, or steps do not copy ahead.
    #[serde(default)]
    pub ahead_bytes: Bytes,
    /// The context, what may be recorded, the arena, and the next batch.
    pub total_bytes: Bytes,
    /// The least limit of the device's memory that would do.
    pub minimum_vram_bytes: Bytes,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The memory limit.
    pub ram_budget_bytes: Bytes,
    /// Code, heap and stacks.
    pub overhead: Overhead,
    /// The memory of the device, which then has the arena; `None` on the processor.
    pub device: Option<DevicePlan>,
    /// Parameters, moments, gradients, features and kernels' scratch: one allocation. Part of the limit, or of the device's.
    pub arena_bytes: Bytes,
    /// A lower bound of the arena over all placements of the same schedule.
    pub arena_lower_bound_bytes: Bytes,
    /// Batches being made and waiting, and what threads read into; for training and validation.
    pub loader_bytes: Bytes,
    /// The memory of the foreground index.
    pub index_bytes: Bytes,
    /// The memory for decoding the pictures of a case; 0 for volumes, which are read by regions.
    pub decoding_bytes: Bytes,
    /// A copy of the largest tensor, for writing and reading checkpoints.
    pub checkpoint_bytes: Bytes,
    /// Sums of gradients over the shards of a batch, and kept running statistics; 0 if a batch is one shard.
    pub shard_bytes: Bytes,
    /// Decoded volumes.
    pub cache_bytes: Bytes,
    /// All of these that are held of the limit.
    pub total_bytes: Bytes,
    /// `true` if the host and the device memory are within their limits.
    pub feasible: bool,
    /// The least limit that would do: without a cache, with the smallest micro-batch, with all recomputation that helps.
    pub minimum_ram_bytes: Bytes,
    /// The allowed changes that made the run fit.
    pub changes: Vec<String>,
    /// The changes that would make a run fit that does not.
    pub ways_out: Vec<WayOut>,
    /// The configuration that the preset asked for, which other settings and allowed changes may have altered; `None` without a preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<PresetPlan>,
    /// The fate of each tensor of the weights that the run starts from; `None` if it starts from random ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartTable>,
    /// 2 if patches are slices or images, 3 if they are volumes.
    pub dimensions: usize,
    /// Depth, height, width of a patch.
    pub patch_size: [usize; 3],
    /// Samples of a step.
    pub batch_size: usize,
    /// Equal parts of the batch whose gradients are summed in order.
    pub shards: usize,
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// Micro-batches of a step.
    pub accumulation: usize,
    /// Why the batch goes through the network in one piece, if it must.
    pub whole_batch: Option<String>,
    /// The number format of stored features.
    pub precision: DType,
    /// The number format of the products in convolutions.
    pub products: Products,
    /// The floating-point operations for recomputation, as a fraction of the network's own.
    pub recompute_flops_fraction: f64,
    /// Values that are recomputed instead of held.
    pub recomputed: Vec<String>,
    /// Floating-point operations of a step, recomputation left out.
    pub flops_per_step: u64,
    /// Predicted time of a step.
    pub predicted_seconds_per_step: f64,
    /// Predicted time of an epoch: its steps and its validation. Patches are made at the same time as the steps, and are not counted; nor
    /// is the writing of checkpoints.
    pub predicted_seconds_per_epoch: f64,
    /// Predicted time of the run: of all its epochs.
    pub predicted_seconds: f64,
    /// Steps of the run.
    pub steps: u64,
    /// Epochs of the run.
    pub epochs: u64,
    /// Numbers that are learned.
    pub parameters: u64,
    /// All cases of the data set, decoded: what the cache would hold if it could.
    pub decoded_bytes: Bytes,
    /// The largest case of the data set, decoded.
    pub largest_case_bytes: Bytes,
    /// Threads that make batches.
    pub loader_threads: usize,
    /// The costs of smaller and larger patches, the smallest first; empty unless they were requested.
    pub patches: Vec<PatchCost>,
}

/// The cost of a run with patches of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchCost {
    /// Depth, height, width.
    pub patch_size: [usize; 3],
    /// Samples of a step.
    pub batch_size: usize,
    /// The limit with which nothing is recomputed, without a cache: with the smallest micro-batch.
    pub ram_bytes: Bytes,
    /// The smallest limit of device memory; `None` on the processor.
    pub vram_bytes: Option<Bytes>,
    /// `true` if the run fits.
    pub fits: bool,
    /// Predicted time of a step.
    pub predicted_seconds_per_step: f64,
}

/// The parts that exist.
fn named(parts: impl IntoIterator<Item = (&'static str, Option<Bytes>)>) -> Vec<Part> {
    let existing = |(name, bytes): (&str, Option<Bytes>)| Some(Part { name: name.into(), bytes: bytes? });
    parts.into_iter().filter_map(existing).collect()
}

impl RunPlan {
    /// A description of the cache: the share of the cases that it has room for, and the reading of the others.
    pub fn cache_says(&self) -> String {
        let RunPlan { cache_bytes, decoded_bytes, largest_case_bytes, loader_threads, loader_bytes, .. } =
            self;
        let share = 100.0 * cache_bytes.0 as f64 / decoded_bytes.0.max(1) as f64;
        let what = format!("decoded cases; all of them would be {decoded_bytes}");
        if cache_bytes >= decoded_bytes {
            return what;
        }
        let threads = format!("{loader_bytes} are the loader's, of {loader_threads} thread(s)");
        match cache_bytes < largest_case_bytes {
            true => format!(
                "{what}, the largest alone {largest_case_bytes}: patches of the other cases are read from their files; {threads}"
            ),
            false => format!(
                "{what}, with room for {share:.0} %: patches of the other cases decode their case again; {threads}"
            ),
        }
    }

    /// The parts of the limit, as they add up to the total.
    pub fn parts(&self) -> Vec<Part> {
        let of_device = self.device.as_ref();
        let arena = self.arena_bytes;
        let parts = [
            ("code", Some(self.overhead.code)),
            ("heap", Some(self.overhead.heap)),
            ("stacks", Some(self.overhead.stacks)),
            ("messages", Some(self.overhead.messages).filter(|bytes| *bytes > Bytes::ZERO)),
            ("driver", of_device.map(|device| device.driver.host)),
            ("staging", of_device.map(|device| device.staging_bytes)),
            ("arena", Some(arena).filter(|_| of_device.is_none())),
            ("loader", Some(self.loader_bytes)),
            ("index", Some(self.index_bytes)),
            // Volumes are read by regions: nobody asks what decoding them whole would take.
            ("decoding", Some(self.decoding_bytes).filter(|bytes| *bytes > Bytes::ZERO)),
            ("checkpoint", Some(self.checkpoint_bytes)),
            ("shards", Some(self.shard_bytes).filter(|bytes| *bytes > Bytes::ZERO)),
            ("cache", Some(self.cache_bytes)),
        ];
        named(parts)
    }

    /// The parts of the device's limit, as they add up to its total; none on the processor.
    pub fn device_parts(&self) -> Vec<Part> {
        let Some(device) = &self.device else { return Vec::new() };
        let driver = device.driver;
        let parts = [
            ("arena", Some(self.arena_bytes)),
            ("next batch", Some(device.ahead_bytes).filter(|bytes| *bytes > Bytes::ZERO)),
            ("context", Some(driver.context)),
            ("recordings", Some(driver.recordings)),
            ("ranks", Some(driver.ranks).filter(|bytes| *bytes > Bytes::ZERO)),
        ];
        named(parts)
    }

    /// Checks that the run fits.
    ///
    /// # Errors
    /// Returns an error if it does not; the error has the numbers.
    pub fn check(&self) -> Result<(), RunError> {
        if self.feasible {
            return Ok(());
        }
        let listed = |mut parts: Vec<Part>| {
            parts.retain(|part| part.bytes > Bytes::ZERO && part.name != "cache");
            parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
            let parts: Vec<String> =
                parts.iter().map(|part| format!("{} {}", part.name, part.bytes)).collect();
            let whole_batch = self.whole_batch.as_ref().map_or_else(String::new, |reason| {
                format!("; the batch goes through the network in one piece, since {reason}")
            });
            parts.join(", ") + &whole_batch
        };
        let ways_out = self.ways_out.clone();
        if let Some(device) = &self.device
            && device.minimum_vram_bytes > device.vram_budget_bytes
        {
            return Err(RunError::InfeasibleOnDevice {
                device: device.name.clone(),
                needed: device.minimum_vram_bytes,
                limit: device.vram_budget_bytes,
                parts: listed(self.device_parts()),
                ways_out,
            });
        }
        Err(RunError::Infeasible {
            needed: self.minimum_ram_bytes,
            limit: self.ram_budget_bytes,
            parts: listed(self.parts()),
            ways_out,
        })
    }
}
