//! What a run holds, part by part, before it begins.

use plimsoll_graph::DType;
use plimsoll_memory::{Bytes, Overhead};
use plimsoll_plan::DriverUse;
use serde::{Deserialize, Serialize};

use crate::{Products, RunError, WayOut};

/// What a run is given of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The memory line.
    pub line: Bytes,
    /// Threads that kernels run on.
    pub threads: usize,
    /// Threads that make batches.
    pub loader_threads: usize,
}

/// A named part of the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is for.
    pub name: String,
    /// How much.
    pub bytes: Bytes,
}

/// What a run holds of a device, beside the arena, and because of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicePlan {
    /// What runs the programs.
    pub name: String,
    /// The line of the device's memory.
    pub vram_budget_bytes: Bytes,
    /// What the driver holds, there and of the line of this process.
    pub driver: DriverUse,
    /// What is copied through, of the line of this process.
    pub staging_bytes: Bytes,
    /// The context, what may be recorded, and the arena.
    pub total_bytes: Bytes,
    /// The least line of the device's memory that would do.
    pub minimum_vram_bytes: Bytes,
}

/// What a run holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The memory line.
    pub ram_budget_bytes: Bytes,
    /// Code, heap and stacks.
    pub overhead: Overhead,
    /// What is held of a device with memory of its own, where the arena then lies; none on the processor.
    pub device: Option<DevicePlan>,
    /// Parameters, moments, gradients, features and kernels' scratch: one allocation. Part of the line, or of the device's.
    pub arena_bytes: Bytes,
    /// What no placement of the same schedule could do without.
    pub arena_lower_bound_bytes: Bytes,
    /// Batches being made and waiting, and what threads read into; for training and validation.
    pub loader_bytes: Bytes,
    /// Where the foreground is.
    pub index_bytes: Bytes,
    /// What decoding the pictures of a case takes; 0 of volumes, which are read by regions.
    pub decoding_bytes: Bytes,
    /// A copy of the largest tensor, for writing and reading checkpoints.
    pub checkpoint_bytes: Bytes,
    /// Decoded volumes.
    pub cache_bytes: Bytes,
    /// All of these that are held of the line.
    pub total_bytes: Bytes,
    /// Whether that is within the line, and what is held of a device within its line.
    pub feasible: bool,
    /// The least line that would do: without a cache, with the smallest micro-batch, with all recomputation that helps.
    pub minimum_ram_bytes: Bytes,
    /// What was changed, as its user allows, for the run to fit.
    pub changes: Vec<String>,
    /// If the run does not fit: what would make it fit.
    pub ways_out: Vec<WayOut>,
    /// 2 if patches are slices or images, 3 if they are volumes.
    pub dimensions: usize,
    /// Depth, height, width of a patch.
    pub patch_size: [usize; 3],
    /// Samples of a step.
    pub batch_size: usize,
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// Micro-batches of a step.
    pub accumulation: usize,
    /// Why the batch goes through the network in one piece, if it must.
    pub whole_batch: Option<String>,
    /// How features are stored.
    pub precision: DType,
    /// What convolutions multiply.
    pub products: Products,
    /// Floating-point operations beyond those of the network, as a fraction: what fitting costs.
    pub recompute_flops_fraction: f64,
    /// Values that are recomputed instead of held.
    pub recomputed: Vec<String>,
    /// Floating-point operations of a step, recomputation left out.
    pub flops_per_step: u64,
    /// Predicted time of a step.
    pub predicted_seconds_per_step: f64,
    /// Predicted time of an epoch: its steps and its validation. Reading and augmenting patches, which go on beside the steps, and
    /// writing checkpoints are not counted.
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
    /// What smaller and larger patches would cost, the smallest first; empty where it was not asked for.
    pub patches: Vec<PatchCost>,
}

/// What a run would cost with patches of a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchCost {
    /// Depth, height, width.
    pub patch_size: [usize; 3],
    /// Samples of a step.
    pub batch_size: usize,
    /// The line with which nothing is recomputed, without a cache: with the smallest micro-batch.
    pub ram_bytes: Bytes,
    /// The same of a device's memory; none where the run is on the processor.
    pub vram_bytes: Option<Bytes>,
    /// Whether it fits so.
    pub fits: bool,
    /// Predicted time of a step.
    pub predicted_seconds_per_step: f64,
}

impl RunPlan {
    /// What the cache will do for a run: the share of the cases that it has room for, and where that is not all, what becomes of the others.
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
                "{what}, the largest alone {largest_case_bytes}: patches of what it has no room for are read from their files; {threads}"
            ),
            false => format!(
                "{what}, of which it has room for {share:.0} %: patches of the others decode their case again; {threads}"
            ),
        }
    }

    /// The parts of the line, as they add up to the total.
    pub fn parts(&self) -> Vec<Part> {
        let of_device = self.device.as_ref();
        let arena = self.arena_bytes;
        let parts = [
            ("code", Some(self.overhead.code)),
            ("heap", Some(self.overhead.heap)),
            ("stacks", Some(self.overhead.stacks)),
            ("driver", of_device.map(|device| device.driver.host)),
            ("staging", of_device.map(|device| device.staging_bytes)),
            ("arena", Some(arena).filter(|_| of_device.is_none())),
            ("loader", Some(self.loader_bytes)),
            ("index", Some(self.index_bytes)),
            // Volumes are read by regions: nobody asks what decoding them whole would take.
            ("decoding", Some(self.decoding_bytes).filter(|bytes| *bytes > Bytes::ZERO)),
            ("checkpoint", Some(self.checkpoint_bytes)),
            ("cache", Some(self.cache_bytes)),
        ];
        parts
            .into_iter()
            .filter_map(|(name, bytes)| Some(Part { name: name.into(), bytes: bytes? }))
            .collect()
    }

    /// The parts of the device's line, as they add up to its total; none on the processor.
    pub fn device_parts(&self) -> Vec<Part> {
        let Some(device) = &self.device else { return Vec::new() };
        let driver = device.driver;
        [("arena", self.arena_bytes), ("context", driver.context), ("recordings", driver.recordings)]
            .map(|(name, bytes)| Part { name: name.into(), bytes })
            .into()
    }

    /// That the run fits.
    ///
    /// # Errors
    /// If it does not, with the numbers.
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
                line: device.vram_budget_bytes,
                parts: listed(self.device_parts()),
                ways_out,
            });
        }
        Err(RunError::Infeasible {
            needed: self.minimum_ram_bytes,
            line: self.ram_budget_bytes,
            parts: listed(self.parts()),
            ways_out,
        })
    }
}
