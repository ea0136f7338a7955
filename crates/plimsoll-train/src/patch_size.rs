//! The patches that fit a limit, and their costs.
//!
//! nnU-Net estimates the memory of a patch from the size of feature maps. Here each patch is planned exactly: with the smallest
//! micro-batch that gives the same result, and without recomputation, so that a larger patch does not cost extra time.

use plimsoll_plan::Backend;
use plimsoll_run::{Machine, PatchCost, RunConfig};

use crate::candidate::{Candidate, Needs, Site, micro_batches};
use crate::fit::first_that_fits;
use crate::planning::Planning;
use crate::products::multiplying;
use crate::{DataFacts, TrainError};

/// The first of some configurations, whose patches become smaller, that fits with nothing recomputed and the smallest micro-batch, or
/// that which is set.
///
/// # Errors
/// Returns an error if a configuration is impossible, or its programs cannot be planned.
pub fn largest_patch(
    count: usize,
    config: &dyn Fn(usize) -> Result<RunConfig, TrainError>,
    micro_batch_is_set: bool,
    machine: Machine,
    backend: &dyn Backend,
    data: DataFacts,
    planning: Planning<'_>,
) -> Result<Option<usize>, TrainError> {
    first_that_fits(count, |number| {
        let config = config(number)?;
        // Products of bf16 need other scratch memory than products of f32.
        let nominal = multiplying(backend, &config.products)?;
        let site = Site::new(machine, backend, data, planning);
        Ok(site.fits(kept(&config, micro_batch_is_set, site, &*nominal)?.0))
    })
}

/// The cost of a run with each configuration, with the set micro-batch or else the smallest.
///
/// # Errors
/// Returns an error if a configuration is impossible, or its programs cannot be planned.
pub fn patch_costs(
    configs: &[RunConfig],
    micro_batch_is_set: bool,
    machine: Machine,
    backend: &dyn Backend,
    data: DataFacts,
    planning: Planning<'_>,
) -> Result<Vec<PatchCost>, TrainError> {
    let site = Site::new(machine, backend, data, planning);
    let cost = |config: &RunConfig| {
        let (needs, predicted_seconds_per_step) = kept(config, micro_batch_is_set, site, backend)?;
        Ok(PatchCost {
            patch_size: config.training.patch,
            batch_size: config.training.batch,
            ram_bytes: needs.ram,
            vram_bytes: needs.vram,
            fits: site.fits(needs),
            predicted_seconds_per_step,
        })
    };
    configs.iter().map(cost).collect()
}

/// The needs without recomputation, and the time of a step.
fn kept(
    config: &RunConfig,
    micro_batch_is_set: bool,
    site: Site<'_>,
    backend: &dyn Backend,
) -> Result<(Needs, f64), TrainError> {
    let sizes = micro_batches(config, micro_batch_is_set);
    let smallest = sizes.last().copied().unwrap_or(config.training.micro_batch);
    let candidate = Candidate::new(config, smallest, site)?;
    let plan = site.plan(&candidate, &candidate.planner(backend)?, None)?;
    Ok((candidate.needs(plan.arena_bytes), candidate.seconds(&plan)))
}
