//! The plan that makes a run fit its memory limit, and the limit of a device with separate memory.
//!
//! Three things save memory without changing more than rounding: values are recomputed instead of stored, a batch goes through the network
//! in smaller parts, and the cache shrinks. The plan with the shortest predicted time is chosen. Micro-batches round differently, so their
//! choice must not depend on the measured speed of a machine: they are compared by nominal rates. Recomputation gives the same bits and
//! uses measured rates. A little of it is done even if everything fits, if it saves memory at almost no cost.

use std::sync::Arc;

use plimsoll_data::{LoaderConfig, Targets};
use plimsoll_graph::Role;
use plimsoll_plan::{Backend, VerifiedPlan};
use plimsoll_run::{DevicePlan, Machine, RunConfig, RunPlan};

use crate::candidate::{Candidate, Needs, Site, micro_batches};
use crate::concessions::ways_out;
use crate::fit::{first_that_fits, fits, least};
use crate::planning::Planning;
use crate::products::{choose_products, multiplying};
use crate::rates::measured;
use crate::targets::target_maps;
use crate::{Concession, DataFacts, RunPrograms, TrainError};

/// A run whose memory is planned.
#[derive(Clone)]
pub struct PlannedRun {
    /// The numbers of the plan.
    pub numbers: RunPlan,
    /// The configuration, with the micro-batch that was chosen.
    pub config: RunConfig,
    /// Its programs.
    pub programs: RunPrograms,
    /// The verified plan of the programs.
    pub plan: VerifiedPlan,
    /// The backend that the plan was made for, which runs it.
    pub backend: Arc<dyn Backend>,
    pub(crate) loader: LoaderConfig,
}

impl PlannedRun {
    /// The configuration of its loader.
    pub fn loader(&self) -> &LoaderConfig {
        &self.loader
    }

    /// The maps that the loader computes for inputs that follow from the labels alone.
    pub(crate) fn target_maps(&self) -> Targets {
        target_maps(&self.config, &self.programs)
    }
}

/// Plans a run: with the micro-batch that is set, or else with that which is the fastest within the limit. If none fits, makes
/// the changes that are allowed, one kind after the other, each as far as is needed; what was changed stands in
/// [`RunPlan::changes`](RunPlan::changes).
///
/// # Errors
/// Returns an error if the configuration is impossible, or its programs cannot be planned.
pub fn plan_run_allowing(
    allowed: &[Concession],
    config: &RunConfig,
    micro_batch_is_set: bool,
    machine: Machine,
    backend: &dyn Backend,
    data: DataFacts,
    planning: Planning<'_>,
) -> Result<PlannedRun, TrainError> {
    let site = Site::new(machine, backend, data, planning);
    if allowed.is_empty() || fits(config, micro_batch_is_set, site)? {
        return plan_chosen(config, micro_batch_is_set, site);
    }
    let mut changed = config.clone();
    for concession in allowed {
        let steps = concession.steps(&changed);
        let fits = |step: usize| fits(&steps[step], micro_batch_is_set, site);
        if let Some(step) = first_that_fits(steps.len(), fits)? {
            changed = steps[step].clone();
            break;
        }
        changed = steps.into_iter().next_back().unwrap_or(changed);
    }
    let mut planned = plan_chosen(&changed, micro_batch_is_set, site)?;
    planned.numbers.changes =
        allowed.iter().filter_map(|concession| concession.difference(config, &changed)).collect();
    Ok(planned)
}

/// Plans a run whose products of bf16 are those that are the fastest, chosen now unless they were chosen before.
fn plan_chosen(
    config: &RunConfig,
    micro_batch_is_set: bool,
    site: Site<'_>,
) -> Result<PlannedRun, TrainError> {
    plan_run(&choose_products(config, micro_batch_is_set, site)?, micro_batch_is_set, site)
}

/// Plans a run with the set micro-batch, or else with the fastest one that fits (the smallest if none fits). Memory that remains goes to
/// the cache, as far as the data set can use it.
///
/// # Errors
/// Returns an error if the configuration is impossible, or its programs cannot be planned.
fn plan_run(config: &RunConfig, micro_batch_is_set: bool, site: Site<'_>) -> Result<PlannedRun, TrainError> {
    let machine = site.machine;
    let nominal = multiplying(site.backend, &config.products)?;
    let mut chosen: Option<(Tried, f64)> = None;
    let mut smallest: Option<Tried> = None;
    let mut nominally: Option<Needs> = None;
    let sizes = micro_batches(config, micro_batch_is_set);
    for micro_batch in sizes.iter().copied() {
        let candidate = Candidate::new(config, micro_batch, site)?;
        let planner = candidate.planner(&*nominal)?;
        let plan = site.plan(&candidate, &planner, Some(candidate.room(machine)))?;
        // The same search continues to the smallest arena.
        if sizes.last() == Some(&micro_batch) {
            nominally = Some(candidate.needs(site.plan(&candidate, &planner, Some(0))?.arena_bytes));
        }
        let seconds = candidate.seconds(&plan);
        let is_best = chosen.as_ref().is_none_or(|(_, best)| seconds < *best);
        let fits = site.fits(candidate.needs(plan.arena_bytes));
        let is_free = plan.schedules.iter().all(|schedule| schedule.copies.is_empty());
        let tried = Tried { candidate, plan };
        if fits && is_best {
            chosen = Some((tried, seconds));
            // Smaller parts only add passes over the gradients.
            if is_free {
                break;
            }
        } else {
            smallest = Some(tried);
        }
    }
    // By nominal rates: a limit that is reported to be enough must be enough whatever the machine is measured to be next time. With
    // other times of nodes the search finds other schedules, so this one may need a little less.
    let nominally = match nominally {
        Some(nominally) => nominally,
        None => least(config, micro_batch_is_set, site)?,
    };
    let fits = chosen.is_some();
    let Tried { candidate, plan: nominal_plan } = match (chosen, smallest) {
        (Some((tried, _)), _) | (None, Some(tried)) => tried,
        // A micro-batch that does not divide the batch: the programs say so.
        (None, None) => {
            let candidate = Candidate::new(config, config.training.micro_batch, site)?;
            let room = candidate.room(machine);
            let plan = site.plan(&candidate, &candidate.planner(&*nominal)?, Some(room))?;
            Tried { candidate, plan }
        }
    };
    // A plan that cannot run is not measured.
    let (backend, plan) = match fits {
        true => by_measured_rates(&candidate, nominal_plan, site, &nominal)?,
        false => (nominal, nominal_plan),
    };
    let needed = candidate.needs(plan.arena_bytes);
    let minimum = if site.fits(needed) { nominally.min(needed) } else { nominally };
    let mut planned = finish(candidate, plan, backend, site, minimum);
    if !planned.numbers.feasible {
        planned.numbers.ways_out = ways_out(config, micro_batch_is_set, site, minimum)?;
    }
    Ok(planned)
}

/// A candidate with its plan by nominal rates.
struct Tried {
    candidate: Candidate,
    plan: VerifiedPlan,
}

/// The plan of a candidate by the rates of this machine, with what predicts them; the plan by nominal rates if that fits and the other
/// does not.
fn by_measured_rates(
    candidate: &Candidate,
    nominal_plan: VerifiedPlan,
    site: Site<'_>,
    nominal: &Arc<dyn Backend>,
) -> Result<(Arc<dyn Backend>, VerifiedPlan), TrainError> {
    let machine = site.machine;
    let backend = measured(machine, &**nominal, candidate.programs.all(), site.planning.cache);
    let room = candidate.room(machine);
    let plan = site.plan_to_run(candidate, &candidate.planner(&*backend)?, room)?;
    let plan = if plan.arena_bytes > room { nominal_plan } else { plan };
    Ok((backend, plan))
}

/// A candidate with its plan, as a run.
fn finish(
    candidate: Candidate,
    plan: VerifiedPlan,
    backend: Arc<dyn Backend>,
    site: Site<'_>,
    minimum: Needs,
) -> PlannedRun {
    let Site { machine, data, .. } = site;
    let training = &candidate.config.training;
    let needed = candidate.needs(plan.arena_bytes);
    let cache_bytes = data.decoded.min(machine.limit - needed.ram);
    let device = candidate.device.as_ref().zip(minimum.vram);
    let ahead = candidate.ahead_bytes(plan.arena_bytes);
    let device = device.map(|((memory, staging), minimum_vram_bytes)| DevicePlan {
        ahead_bytes: ahead,
        name: backend.identity(),
        vram_budget_bytes: memory.limit(),
        driver: memory.driver(),
        staging_bytes: *staging,
        total_bytes: memory.needed(plan.arena_bytes) + ahead,
        minimum_vram_bytes,
    });
    let (programs, fullest) = (&candidate.programs, candidate.programs.fullest());
    let is_trained = |name: &str| training.net.is_trained(name);
    let parameters = programs[fullest]
        .with_role(Role::Parameter)
        .filter(|id| is_trained(&programs[fullest].tensor(*id).name))
        .map(|id| programs[fullest].shape(id).count() as u64)
        .sum();
    let planned = plan.schedule(fullest);
    let numbers = RunPlan {
        ram_budget_bytes: machine.limit,
        overhead: candidate.overhead,
        device,
        arena_bytes: candidate.arena(plan.arena_bytes),
        arena_lower_bound_bytes: candidate.arena(plan.lower_bound_bytes),
        loader_bytes: candidate.loader_bytes,
        index_bytes: candidate.index_bytes,
        decoding_bytes: candidate.decoding_bytes,
        checkpoint_bytes: candidate.checkpoint_bytes,
        shard_bytes: candidate.shard_bytes,
        cache_bytes,
        total_bytes: needed.ram + cache_bytes,
        feasible: site.fits(needed),
        minimum_ram_bytes: minimum.ram,
        changes: Vec::new(),
        ways_out: Vec::new(),
        preset: None,
        start: None,
        dimensions: if training.patch[0] == 1 { 2 } else { 3 },
        patch_size: training.patch,
        batch_size: training.batch,
        shards: training.shards,
        micro_batch: training.micro_batch,
        accumulation: training.accumulation(),
        whole_batch: training.needs_whole_batch(),
        precision: training.precision,
        products: candidate.config.products.clone(),
        recompute_flops_fraction: planned.recompute_flops_fraction,
        recomputed: planned.recomputed(&programs[fullest]),
        flops_per_step: candidate.flops(),
        predicted_seconds_per_step: candidate.seconds(&plan),
        predicted_seconds_per_epoch: candidate.seconds_per_epoch(&plan),
        predicted_seconds: candidate.seconds_per_epoch(&plan) * candidate.config.epochs as f64,
        steps: candidate.config.schedule.total_steps,
        epochs: candidate.config.epochs,
        parameters,
        decoded_bytes: data.decoded,
        largest_case_bytes: data.largest,
        loader_threads: machine.loader_threads,
        patches: Vec::new(),
    };
    let Candidate { config, programs, loader, .. } = candidate;
    PlannedRun { numbers, programs, plan, backend, loader, config }
}
