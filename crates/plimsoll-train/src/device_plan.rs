//! What a run would hold of a device whose memory is its own.

use plimsoll_graph::DType;
use plimsoll_memory::Bytes;
use plimsoll_plan::{Backend, EngineError};
use plimsoll_run::{Machine, RunConfig};
use serde::Serialize;

use crate::candidate::{Candidate, Site, micro_batches, pages};
use crate::{DataFacts, TrainError};

/// The memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// What may be held there, whoever holds it.
    pub line: Bytes,
    /// What is held there beside the arena.
    pub reserved: Bytes,
}

/// What a run would hold of a device. The names are those of [`RunPlan`](plimsoll_run::RunPlan) where the meaning is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DevicePlan {
    /// What it is planned for.
    pub device: String,
    /// The line.
    pub memory_bytes: Bytes,
    /// What is held beside the arena.
    pub reserved_bytes: Bytes,
    /// The arena: parameters, moments, features, scratch.
    pub arena_bytes: Bytes,
    /// What no placement could do without.
    pub arena_lower_bound_bytes: Bytes,
    /// All of it.
    pub total_bytes: Bytes,
    /// Whether that is within the line.
    pub feasible: bool,
    /// The least line that would do.
    pub minimum_bytes: Bytes,
    /// Depth, height and width of a patch.
    pub patch_size: [usize; 3],
    /// Samples of a step.
    pub batch_size: usize,
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// Micro-batches of a step.
    pub accumulation: usize,
    /// How features are stored.
    pub precision: DType,
    /// Operations of a step.
    pub flops_per_step: u64,
    /// Operations beyond them for recomputation, as a fraction.
    pub recompute_flops_fraction: f64,
    /// Values that are recomputed.
    pub recomputed: Vec<String>,
    /// Of the backend's rates: of a card that is not there, a bound that kernels may be far from.
    pub predicted_seconds_per_step: f64,
}

/// Plans what a run would hold of a device: with the micro-batch that is set, or else with that which is the fastest within the line (the
/// smallest if none fits).
///
/// # Errors
/// If the configuration is impossible, or there are no kernels for its programs.
pub fn plan_on_device(
    config: &RunConfig,
    micro_batch_is_set: bool,
    (machine, backend): (Machine, &dyn Backend),
    data: DataFacts,
    memory: DeviceMemory,
) -> Result<DevicePlan, TrainError> {
    let site = Site::new(machine, backend, data);
    let needs = |arena: usize| memory.reserved + pages(arena);
    let room = usize::try_from((memory.line - memory.reserved).0).unwrap_or(usize::MAX);
    let sizes = micro_batches(config, micro_batch_is_set);
    // A micro-batch that does not divide the batch is refused here: the programs say so.
    let smallest = sizes.last().copied().unwrap_or(config.training.micro_batch);
    let smallest = Candidate::new(config, smallest, site)?.planner(backend)?.plan(Some(0))?;
    let minimum_bytes = needs(smallest.arena_bytes);
    let mut best: Option<DevicePlan> = None;
    for micro_batch in sizes {
        let candidate = Candidate::new(config, micro_batch, site)?;
        let plan = candidate.planner(backend)?.plan(Some(room))?;
        let (training, fullest) = (&candidate.config.training, candidate.programs.fullest());
        let schedule = plan.schedule(fullest);
        let new = DevicePlan {
            device: backend.identity(),
            memory_bytes: memory.line,
            reserved_bytes: memory.reserved,
            arena_bytes: pages(plan.arena_bytes),
            arena_lower_bound_bytes: pages(plan.lower_bound_bytes),
            total_bytes: needs(plan.arena_bytes),
            feasible: needs(plan.arena_bytes) <= memory.line,
            minimum_bytes,
            patch_size: training.patch,
            batch_size: training.batch,
            micro_batch,
            accumulation: training.accumulation(),
            precision: training.precision,
            flops_per_step: candidate.flops(),
            recompute_flops_fraction: schedule.recompute_flops_fraction,
            recomputed: schedule.recomputed(&candidate.programs[fullest]),
            predicted_seconds_per_step: candidate.seconds(&plan),
        };
        let is_better = best.as_ref().is_none_or(|best| match (best.feasible, new.feasible) {
            (true, true) => new.predicted_seconds_per_step < best.predicted_seconds_per_step,
            (found, _) => !found,
        });
        // Smaller parts only add passes over the gradients where nothing is recomputed.
        let is_free = new.feasible && plan.schedules.iter().all(|schedule| schedule.copies.is_empty());
        if is_better {
            best = Some(new);
        }
        if is_free {
            break;
        }
    }
    best.ok_or_else(|| EngineError::missing("a micro-batch").into())
}
