//! The products of convolutions, and the choice of convolutions that multiply bf16.
//!
//! Products of bf16 round, so this choice decides bits. A machine may compute some shapes faster in f32: both are measured once, and the
//! choice is stored with the run on every later machine.

use std::sync::Arc;

use plimsoll_graph::Program;
use plimsoll_plan::{Backend, Bf16Products};
use plimsoll_run::{CacheFolder, Machine, Products, RunConfig};

use crate::TrainError;
use crate::candidate::{Candidate, Site, micro_batches};
use crate::rates::measured;

/// A backend with nominal rates and these products: bf16 wherever possible if nothing is chosen yet.
///
/// # Errors
/// Returns an error if it has no such kernels.
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

/// The convolutions of some programs that are measured to be faster with bf16 products than with f32 on this machine.
///
/// # Errors
/// Returns an error if the backend has no such kernels, or the programs cannot be lowered.
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
