//! What the convolutions of a run multiply, and which of them multiply bf16.
//!
//! Products of bf16 round, so which convolutions have them decides bits. A machine may compute some shapes faster in f32: where nothing
//! was chosen yet, both are measured, and what was chosen is kept with the run, whatever goes on with it.

use std::sync::Arc;

use plimsoll_graph::Program;
use plimsoll_plan::{Backend, Bf16Products};
use plimsoll_run::{CacheFolder, Machine, Products, RunConfig};

use crate::TrainError;
use crate::candidate::{Candidate, Site, micro_batches};
use crate::rates::measured;

/// A backend with nominal rates that multiplies as is said: in bf16 wherever it can where nothing was chosen.
///
/// # Errors
/// If it has no kernels for that.
pub(crate) fn multiplying(
    backend: &dyn Backend,
    products: &Products,
) -> Result<Arc<dyn Backend>, TrainError> {
    match products {
        Products::F32 => Ok(backend.with_rates(None)),
        Products::Tf32 => Ok(backend.with_tf32_products()?.with_rates(None)),
        Products::Bf16(chosen) => {
            let which = chosen.clone().unwrap_or(Bf16Products::ALL);
            Ok(backend.with_bf16_products(&which)?.with_rates(None))
        }
    }
}

/// The products of bf16 that are measured to be faster than those of f32 on this machine, among the convolutions of some programs.
///
/// # Errors
/// If the backend has no kernels for that, or the programs cannot be lowered.
pub fn fastest_products(
    machine: Machine,
    backend: &dyn Backend,
    programs: &[Program],
    cache: Option<&CacheFolder>,
) -> Result<Bf16Products, TrainError> {
    let all = backend.with_bf16_products(&Bf16Products::ALL)?;
    Ok(measured(machine, &*all, programs, cache).fastest_products(programs)?)
}

/// The configuration with a choice for every micro-batch that the run may have.
pub(crate) fn choose_products(
    config: &RunConfig,
    micro_batch_is_set: bool,
    site: Site<'_>,
) -> Result<RunConfig, TrainError> {
    let mut config = config.clone();
    if config.products == Products::Bf16(None) {
        let mut chosen = Bf16Products::default();
        for micro_batch in micro_batches(&config, micro_batch_is_set) {
            let candidate = Candidate::new(&config, micro_batch, site)?;
            let found =
                fastest_products(site.machine, site.backend, candidate.programs.all(), site.planning.cache)?;
            chosen.in_f32.extend(found.in_f32);
        }
        config.products = Products::Bf16(Some(chosen));
    }
    Ok(config)
}
