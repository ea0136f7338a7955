//! The cost in time of less memory.

use plimsoll_memory::Bytes;
use plimsoll_plan::{Backend, Plans};
use plimsoll_run::{CacheFolder, Machine, RunConfig};
use serde::{Deserialize, Serialize};

use crate::candidate::{Candidate, Site, micro_batches};
use crate::planning::Planning;
use crate::products::{choose_products, multiplying};
use crate::rates::measured;
use crate::{DataFacts, TrainError};

/// One point of a run's curve of memory against time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPoint {
    /// The least limit at this point: without a cache.
    pub ram_bytes: Bytes,
    /// The smallest limit of device memory at this point; `None` on the processor.
    pub vram_bytes: Option<Bytes>,
    /// The arena.
    pub arena_bytes: Bytes,
    /// A lower bound of the arena over all placements of the same schedule.
    pub arena_lower_bound_bytes: Bytes,
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// The floating-point operations for recomputation, as a fraction of the network's own.
    pub recompute_flops_fraction: f64,
    /// Predicted time of a step.
    pub predicted_seconds_per_step: f64,
    /// Values that are recomputed instead of held.
    pub recomputed: Vec<String>,
}

/// The progress of the search for a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveProgress {
    /// The share of the work that is done, from 0 to 1, each micro-batch counted alike.
    pub share: f64,
    /// The micro-batch that is searched.
    pub micro_batch: usize,
    /// Points that were found so far.
    pub points: usize,
}

/// Searches the curve of memory against time of a run over all micro-batches, from the fastest point to the smallest. `observer` receives
/// the progress.
///
/// # Errors
/// Returns an error if the configuration is impossible, or its programs cannot be planned.
pub fn run_curve(
    config: &RunConfig,
    micro_batch_is_set: bool,
    machine: Machine,
    backend: &dyn Backend,
    data: DataFacts,
    cache: Option<&CacheFolder>,
    observer: &mut dyn FnMut(CurveProgress),
) -> Result<Vec<RunPoint>, TrainError> {
    let plans = Plans::default();
    let site = Site::new(machine, backend, data, Planning::unobserved(&plans, cache));
    let config = &choose_products(config, micro_batch_is_set, site)?;
    let backend = &*multiplying(backend, &config.products)?;
    let mut points = Vec::new();
    let sizes = micro_batches(config, micro_batch_is_set);
    for (place, micro_batch) in sizes.iter().copied().enumerate() {
        let mut report = |points: usize, share: f64| {
            let share = (place as f64 + share) / sizes.len() as f64;
            observer(CurveProgress { share, micro_batch, points });
        };
        report(points.len(), 0.0);
        let candidate = Candidate::new(config, micro_batch, site)?;
        let measured = measured(machine, backend, candidate.programs.all(), cache);
        let planner = candidate.planner(&*measured)?;
        let kept = planner.plan(None)?;
        let kept_step = kept.schedule(candidate.programs.fullest());
        let runs = candidate.config.training.accumulation() as f64;
        let known = points.len();
        let found = planner.watched_curve(&mut |share| report(known, share))?;
        points.extend(found.into_iter().map(|point| RunPoint {
            ram_bytes: candidate.needs(point.arena_bytes).ram,
            vram_bytes: candidate.needs(point.arena_bytes).vram,
            arena_bytes: candidate.arena(point.arena_bytes),
            arena_lower_bound_bytes: candidate.arena(point.lower_bound_bytes),
            micro_batch,
            recompute_flops_fraction: point.recompute_flops_fraction,
            predicted_seconds_per_step: candidate.seconds(&kept)
                + runs * (point.predicted_seconds - kept_step.predicted_seconds),
            recomputed: point.recomputed,
        }));
    }
    points.sort_by(|a, b| a.predicted_seconds_per_step.total_cmp(&b.predicted_seconds_per_step));
    let mut least = Bytes(u64::MAX);
    points.retain(|point| {
        let bytes = point.vram_bytes.unwrap_or(point.ram_bytes);
        let is_smaller = bytes < least;
        least = least.min(bytes);
        is_smaller
    });
    Ok(points)
}
