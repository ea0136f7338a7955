//! How a run is made to fit its line.
//!
//! Three things can be given for memory, and none of them changes what is computed but for rounding: values are made
//! again instead of held, a batch goes through the network in smaller parts, and the cache shrinks. Of all that fit,
//! the fastest by prediction is taken. Micro-batches round differently, so which one is taken must not depend on how
//! fast a machine happens to be: they are compared by nominal rates. Recomputation gives the same bits and goes by
//! the measured ones.

use std::sync::Arc;

use plimsoll_cpu::CpuLayout;
use plimsoll_data::{BatchReader, BatchShape, Fingerprint, LoaderConfig, Mode, Scratch, Targets};
use plimsoll_graph::{Program, Role};
use plimsoll_memory::Bytes;
use plimsoll_nn::{TargetKind, TargetMap, TrainingPrograms, Variant};
use plimsoll_plan::{Options, Plan, PlanError, Planner};
use serde::{Deserialize, Serialize};

use crate::concessions::ways_out;
use crate::rates::rates;
use crate::{Checkpoint, Machine, RunConfig, RunPlan, TrainError, overhead};

/// A run whose memory is planned.
pub struct PlannedRun {
    /// What it holds.
    pub numbers: RunPlan,
    /// The configuration, with the micro-batch that was chosen.
    pub config: RunConfig,
    /// The programs: a micro-batch's gradients for each variant of the loss, the update where it is one of its own, validation.
    pub programs: Vec<Program>,
    /// What steps may have of the loss: one for each program of gradients.
    pub variants: Vec<Variant>,
    /// Inputs that follow from the labels alone.
    pub targets: Vec<TargetMap>,
    /// Where everything lies.
    pub plan: Plan,
    /// What the plan was made with.
    pub layout: CpuLayout,
    pub(crate) loader: LoaderConfig,
}

impl PlannedRun {
    /// The place of validation among the programs.
    pub(crate) fn validate(&self) -> usize {
        self.programs.len() - 1
    }

    /// The place of the update among the programs, where it is one of its own.
    pub(crate) fn update(&self) -> Option<usize> {
        let gradients = self.variants.len();
        (self.programs.len() > gradients + 1).then_some(gradients)
    }

    /// What the loader makes for the programs' inputs that follow from the labels alone.
    pub(crate) fn target_maps(&self) -> Targets {
        target_maps(&self.config, &self.programs, &self.variants, &self.targets)
    }

    /// The program that has all parameters and moments.
    pub(crate) fn keeper(&self) -> usize {
        self.update().unwrap_or(0)
    }
}

/// One point of a run's curve of memory against time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPoint {
    /// The least line at this point: without a cache.
    pub ram_bytes: Bytes,
    /// The arena.
    pub arena_bytes: Bytes,
    /// What no placement of the same schedule could do without.
    pub arena_lower_bound_bytes: Bytes,
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// Floating-point operations beyond those of the network, as a fraction.
    pub recompute_flops_fraction: f64,
    /// Predicted time of a step.
    pub predicted_seconds_per_step: f64,
    /// Values that are made again instead of held.
    pub recomputed: Vec<String>,
}

/// Plans a run: with the micro-batch that is set, or else with that which is the fastest within the line (the
/// smallest if none fits). What the line leaves goes to the cache, as far as the data set can use it.
///
/// # Errors
/// If the configuration makes no programs, or no plan.
pub(crate) fn plan_run(
    config: &RunConfig,
    micro_batch_is_set: bool,
    machine: Machine,
    fingerprint: &Fingerprint,
    index_bytes: Bytes,
) -> Result<PlannedRun, TrainError> {
    let site = Site::new(machine, index_bytes);
    let nominal = CpuLayout::new(machine.threads);
    let mut chosen: Option<(Candidate, f64)> = None;
    let mut smallest: Option<Candidate> = None;
    for micro_batch in micro_batches(config, micro_batch_is_set) {
        let candidate = Candidate::new(config, micro_batch, site)?;
        let plan = candidate.planner(&nominal)?.plan(Some(candidate.room(machine)))?;
        let seconds = candidate.seconds(&plan);
        let is_best = chosen.as_ref().is_none_or(|(_, best)| seconds < *best);
        if candidate.needs(&plan) <= machine.line && is_best {
            let is_free = plan.programs.iter().all(|program| program.copies.is_empty());
            chosen = Some((candidate.clone(), seconds));
            smallest = Some(candidate);
            // Smaller parts only add passes over the gradients.
            if is_free {
                break;
            }
        } else {
            smallest = Some(candidate);
        }
    }
    let fits = chosen.is_some();
    let candidate = match (chosen, smallest) {
        (Some((candidate, _)), _) | (None, Some(candidate)) => candidate,
        // A micro-batch that does not divide the batch: the programs say so.
        (None, None) => Candidate::new(config, config.training.micro_batch, site)?,
    };
    let layout = CpuLayout { rates: rates(machine, &candidate.programs), ..nominal.clone() };
    let room = candidate.room(machine);
    let mut plan = candidate.planner(&layout)?.plan(Some(room))?;
    if fits && plan.arena_bytes > room {
        plan = candidate.planner(&nominal)?.plan(Some(room))?;
    }
    // The search finds other schedules with other times of nodes.
    let minimum = least(config, micro_batch_is_set, site)?
        .min(least_with(&layout, config, micro_batch_is_set, site)?)
        .min(candidate.needs(&plan));
    let mut planned = candidate.finish(plan, layout, machine, fingerprint, minimum);
    if !planned.numbers.feasible {
        planned.numbers.ways_out = ways_out(config, micro_batch_is_set, site, minimum)?;
    }
    Ok(planned)
}

/// The curve of memory against time of a run, over all micro-batches that it may have: from the fastest to the
/// smallest.
///
/// # Errors
/// If the configuration makes no programs, or no plan.
pub fn run_curve(
    config: &RunConfig,
    micro_batch_is_set: bool,
    machine: Machine,
    index_bytes: Bytes,
) -> Result<Vec<RunPoint>, TrainError> {
    let site = Site::new(machine, index_bytes);
    let mut points = Vec::new();
    for micro_batch in micro_batches(config, micro_batch_is_set) {
        let candidate = Candidate::new(config, micro_batch, site)?;
        let rates = rates(machine, &candidate.programs);
        let layout = CpuLayout { rates, ..CpuLayout::new(machine.threads) };
        let planner = candidate.planner(&layout)?;
        let kept = planner.plan(None)?;
        let runs = candidate.config.training.accumulation() as f64;
        points.extend(planner.curve()?.into_iter().map(|point| RunPoint {
            ram_bytes: candidate.fixed() + pages(point.arena_bytes),
            arena_bytes: pages(point.arena_bytes),
            arena_lower_bound_bytes: pages(point.lower_bound_bytes),
            micro_batch,
            recompute_flops_fraction: point.recompute_flops_fraction,
            predicted_seconds_per_step: candidate.seconds(&kept)
                + runs * (point.predicted_seconds - kept.programs[0].predicted_seconds),
            recomputed: point.dropped,
        }));
    }
    points.sort_by(|a, b| a.predicted_seconds_per_step.total_cmp(&b.predicted_seconds_per_step));
    let mut least = Bytes(u64::MAX);
    points.retain(|point| {
        let is_smaller = point.ram_bytes < least;
        least = least.min(point.ram_bytes);
        is_smaller
    });
    Ok(points)
}

/// The micro-batches that a run may have, the largest first.
fn micro_batches(config: &RunConfig, is_set: bool) -> Vec<usize> {
    let training = &config.training;
    let batch = training.batch;
    // Parts of a batch would change quotients over the whole batch.
    let whole_only = training.loss.needs_whole_batch();
    (1..=batch)
        .rev()
        .filter(|size| batch.is_multiple_of(*size))
        .filter(|size| !whole_only || *size == batch)
        .filter(|size| !is_set || *size == training.micro_batch)
        .collect()
}

/// The least line that would do for a configuration.
pub(crate) fn least(config: &RunConfig, micro_batch_is_set: bool, site: Site) -> Result<Bytes, TrainError> {
    least_with(&CpuLayout::new(site.machine.threads), config, micro_batch_is_set, site)
}

fn least_with(
    layout: &CpuLayout,
    config: &RunConfig,
    micro_batch_is_set: bool,
    site: Site,
) -> Result<Bytes, TrainError> {
    let sizes = micro_batches(config, micro_batch_is_set);
    let smallest = sizes.last().copied().unwrap_or(config.training.micro_batch);
    let candidate = Candidate::new(config, smallest, site)?;
    let plan = candidate.planner(layout)?.plan(Some(0))?;
    Ok(candidate.needs(&plan))
}

/// The first of `count` that fits, by bisection: what they need falls from one to the next.
pub(crate) fn first_that_fits(
    count: usize,
    fits: impl Fn(usize) -> Result<bool, TrainError>,
) -> Result<Option<usize>, TrainError> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high) / 2;
        if fits(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok((low < count).then_some(low))
}

/// What all candidates have in common.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) machine: Machine,
    overhead_bytes: Bytes,
    index_bytes: Bytes,
}

impl Site {
    pub(crate) fn new(machine: Machine, index_bytes: Bytes) -> Site {
        let overhead_bytes = overhead(machine.threads + machine.loader_threads);
        Site { machine, overhead_bytes, index_bytes }
    }
}

/// A configuration with its programs and all that it holds beside the arena.
#[derive(Clone)]
struct Candidate {
    config: RunConfig,
    programs: Vec<Program>,
    variants: Vec<Variant>,
    /// The share of steps that each variant has.
    shares: Vec<f64>,
    targets: Vec<TargetMap>,
    loader: LoaderConfig,
    overhead_bytes: Bytes,
    loader_bytes: Bytes,
    index_bytes: Bytes,
    checkpoint_bytes: Bytes,
}

/// As whole pages.
fn pages(bytes: usize) -> Bytes {
    Bytes::of(bytes.next_multiple_of(4096))
}

impl Candidate {
    fn new(config: &RunConfig, micro_batch: usize, site: Site) -> Result<Candidate, TrainError> {
        let Site { machine, overhead_bytes, index_bytes } = site;
        let mut config = config.clone();
        config.training.micro_batch = micro_batch;
        let training = &config.training;
        let programs = training.programs()?;
        let TrainingPrograms { gradients, update, validate, targets } = programs;
        let keeper = if update.is_some() { gradients.len() } else { 0 };
        let programs: Vec<Program> =
            gradients.into_iter().chain(update).chain(std::iter::once(validate)).collect();
        let variants = training.loss.variants();
        let shares = training.loss.shares(config.iterations_per_epoch, config.epochs);
        let loader = LoaderConfig {
            mode: Mode::Training,
            seed: config.seed,
            first_step: 0,
            batch_size: training.batch,
            slots: machine.loader_threads + 1,
            threads: machine.loader_threads,
            scratch: Scratch::DEFAULT,
        };
        let channels = training.net.in_channels;
        let validation = BatchShape { batch_size: training.micro_batch, channels, patch: training.patch };
        let maps = target_maps(&config, &programs, &variants, &targets);
        let loader_bytes = loader.bytes(channels, training.patch, &maps)?
            + BatchReader::bytes(validation, Mode::Validation, Scratch::DEFAULT, &maps)?;
        let keeper = &programs[keeper];
        Ok(Candidate {
            variants,
            shares,
            targets,
            loader,
            overhead_bytes,
            loader_bytes,
            index_bytes,
            checkpoint_bytes: Checkpoint::bytes(keeper)?,
            programs,
            config,
        })
    }

    fn planner<'a>(&'a self, layout: &'a CpuLayout) -> Result<Planner<'a>, PlanError> {
        Planner::new(&self.programs, layout, Options::default())
    }

    /// What is held beside the arena.
    fn fixed(&self) -> Bytes {
        self.overhead_bytes + self.loader_bytes + self.index_bytes + self.checkpoint_bytes
    }

    /// What is left for the arena, in whole pages.
    fn room(&self, machine: Machine) -> usize {
        usize::try_from((machine.line - self.fixed()).0).unwrap_or(usize::MAX) / 4096 * 4096
    }

    fn needs(&self, plan: &Plan) -> Bytes {
        self.fixed() + pages(plan.arena_bytes)
    }

    /// Predicted time of a step: the mean over the variants of the loss.
    fn seconds(&self, plan: &Plan) -> f64 {
        let gradients = self.variants.len();
        let of = |program: usize| plan.programs[program].predicted_seconds;
        let mean: f64 = self.shares.iter().enumerate().map(|(variant, share)| share * of(variant)).sum();
        let update = if self.programs.len() > gradients + 1 { of(gradients) } else { 0.0 };
        mean * self.config.training.accumulation() as f64 + update
    }

    /// Floating-point operations of a step, recomputation left out: the mean over the variants of the loss.
    fn flops(&self) -> u64 {
        let of = |(program, share): (&Program, &f64)| program.flops() as f64 * share;
        let mean: f64 = self.programs.iter().zip(&self.shares).map(of).sum();
        (mean * self.config.training.accumulation() as f64).round() as u64
    }

    fn finish(
        self,
        plan: Plan,
        layout: CpuLayout,
        machine: Machine,
        fingerprint: &Fingerprint,
        minimum_ram_bytes: Bytes,
    ) -> PlannedRun {
        let training = &self.config.training;
        let needed = self.needs(&plan);
        let decoded_bytes = decoded(fingerprint);
        let cache_bytes = decoded_bytes.min(machine.line - needed);
        let parameters = self.programs[0]
            .with_role(Role::Parameter)
            .map(|id| self.programs[0].shape(id).count() as u64)
            .sum();
        let numbers = RunPlan {
            ram_budget_bytes: machine.line,
            overhead_bytes: self.overhead_bytes,
            arena_bytes: pages(plan.arena_bytes),
            arena_lower_bound_bytes: pages(plan.lower_bound_bytes),
            loader_bytes: self.loader_bytes,
            index_bytes: self.index_bytes,
            checkpoint_bytes: self.checkpoint_bytes,
            cache_bytes,
            total_bytes: needed + cache_bytes,
            feasible: needed <= machine.line,
            minimum_ram_bytes,
            changes: Vec::new(),
            ways_out: Vec::new(),
            patch_size: training.patch,
            batch_size: training.batch,
            micro_batch: training.micro_batch,
            accumulation: training.accumulation(),
            precision: training.precision,
            recompute_flops_fraction: plan.programs[0].recompute_flops_fraction,
            recomputed: plan.programs[0].recomputed(),
            flops_per_step: self.flops(),
            predicted_seconds_per_step: self.seconds(&plan),
            parameters,
            decoded_bytes,
        };
        let Candidate { config, programs, variants, targets, loader, .. } = self;
        PlannedRun { numbers, programs, variants, targets, plan, layout, loader, config }
    }
}

/// The maps of labels that batches are to come with, and which steps need them.
fn target_maps(
    config: &RunConfig,
    programs: &[Program],
    variants: &[Variant],
    targets: &[TargetMap],
) -> Targets {
    let has = |program: &Program, target: &TargetMap| program.find(&target.name).is_some();
    let gradients = &programs[..variants.len()];
    let maps = targets.iter().map(|target| plimsoll_data::TargetMap {
        extent: target.extent,
        kind: match target.kind {
            TargetKind::Distance { spacing } => plimsoll_data::TargetKind::Distance { spacing },
            TargetKind::Skeleton { radius } => plimsoll_data::TargetKind::Skeleton { radius },
        },
        training: gradients.iter().any(|program| has(program, target)),
        validation: programs.last().is_some_and(|program| has(program, target)),
    });
    // For each variant, which maps its program has.
    let of_variant = |program: &Program| targets.iter().map(|target| has(program, target)).collect();
    let needs: Vec<Vec<bool>> = gradients.iter().map(of_variant).collect();
    let (loss, variants, per_epoch) =
        (config.training.loss.clone(), variants.to_vec(), config.iterations_per_epoch);
    Targets {
        maps: maps.collect(),
        foreground: config.training.net.classes.saturating_sub(1),
        ignore: config.training.loss.ignore,
        needed: Some(Arc::new(move |step, map| needs[loss.variant_at(&variants, step, per_epoch)][map])),
    }
}

/// All volumes of a data set decoded, images and label maps, in whole pages.
fn decoded(fingerprint: &Fingerprint) -> Bytes {
    const PAGE: u64 = 4096;
    fingerprint
        .cases
        .iter()
        .map(|case| {
            // A label map has a voxel for each of the image's; one byte in most data sets, four at the most.
            let labels = 4 * case.geometry.voxel_count() as u64;
            Bytes(case.stored_bytes.0 + labels + PAGE * (1 + case.channels.len() as u64))
        })
        .sum()
}
