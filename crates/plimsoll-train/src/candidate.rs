//! A configuration with one size of micro-batch: its programs, and what it holds beside the arena.

use plimsoll_data::{BatchReader, BatchShape, LoaderConfig, Mode, SampleNumbers, SampleShape, Scratch};
use plimsoll_graph::Program;
use plimsoll_memory::{Bytes, Overhead};
use plimsoll_nn::{RankPlace, SoftTargets, Training};
use plimsoll_plan::{
    Backend, DeviceMemory, Goal, Options, Plan, PlanError, Planner, ProgramId, VerifiedPlan, ahead_bytes,
};
use plimsoll_run::{Checkpoints, Machine, RunConfig};

use crate::planning::{Planning, PlanningStep};
use crate::targets::target_maps;
use crate::trainer::Shards;
use crate::{DataFacts, RunPrograms, ScratchFacts, TrainError};

/// The relative increase of predicted time that a program of a run on the processor may have for a smaller arena. Recomputing a few cheap
/// values reduces the peak by far more than this share.
pub const SPARING: f64 = 0.005;

/// The common data of all candidates.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) machine: Machine,
    /// The backend; [`multiplying`](crate::products::multiplying) selects the products of its convolutions.
    pub(crate) backend: &'a dyn Backend,
    overhead: Overhead,
    pub(crate) data: DataFacts,
    pub(crate) planning: Planning<'a>,
}

impl<'a> Site<'a> {
    pub(crate) fn new(
        machine: Machine,
        backend: &'a dyn Backend,
        data: DataFacts,
        planning: Planning<'a>,
    ) -> Site<'a> {
        let overhead = Overhead::for_training(machine.threads, data.cases);
        Site { machine, backend, overhead, data, planning }
    }

    /// Plans a candidate for an arena of at most `room` bytes, or without recomputation if it is `None`. The observer is notified first.
    pub(crate) fn plan(
        &self,
        candidate: &Candidate,
        planner: &Planner<'_>,
        room: Option<usize>,
    ) -> Result<VerifiedPlan, PlanError> {
        self.plan_for(candidate, planner, Goal::Fastest { budget: room })
    }

    /// Plans the programs of a candidate for an arena of at most `room` bytes. Device memory has no other use than the arena, so the
    /// fastest plan is chosen there; saved host memory goes to the cache and to other processes.
    pub(crate) fn plan_to_run(
        &self,
        candidate: &Candidate,
        planner: &Planner<'_>,
        room: usize,
    ) -> Result<VerifiedPlan, PlanError> {
        let budget = Some(room);
        let goal = match self.backend.device_memory() {
            Some(_) => Goal::Fastest { budget },
            None => Goal::Sparing { budget, share: SPARING },
        };
        self.plan_for(candidate, planner, goal)
    }

    fn plan_for(
        &self,
        candidate: &Candidate,
        planner: &Planner<'_>,
        goal: Goal,
    ) -> Result<VerifiedPlan, PlanError> {
        let training = &candidate.config.training;
        let (Goal::Fastest { budget } | Goal::Sparing { budget, .. }) = goal;
        (self.planning.observer)(PlanningStep {
            patch: training.patch,
            micro_batch: training.micro_batch,
            room: budget.map(Bytes::from_len),
        });
        self.planning.plans.plan(planner, goal)
    }

    /// Returns `true` if both needs are within their limits.
    pub(crate) fn fits(&self, needs: Needs) -> bool {
        let device = self.backend.device_memory().map(DeviceMemory::limit);
        needs.ram <= self.machine.limit && needs.vram.zip(device).is_none_or(|(vram, limit)| vram <= limit)
    }
}

/// The needs of host and device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The host memory.
    pub(crate) ram: Bytes,
    /// The device memory, if the device has its own.
    pub(crate) vram: Option<Bytes>,
}

impl Needs {
    /// The lesser of both, limit by limit.
    pub(crate) fn min(self, other: Needs) -> Needs {
        Needs { ram: self.ram.min(other.ram), vram: self.vram.min(other.vram) }
    }
}

/// A configuration with its programs and all that it holds beside the arena.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) config: RunConfig,
    pub(crate) programs: RunPrograms,
    /// The share of steps that each program of gradients has.
    shares: Vec<f64>,
    pub(crate) loader: LoaderConfig,
    pub(crate) overhead: Overhead,
    /// Samples that are validated after each epoch.
    validated: u64,
    pub(crate) loader_bytes: Bytes,
    pub(crate) index_bytes: Bytes,
    pub(crate) decoding_bytes: Bytes,
    pub(crate) checkpoint_bytes: Bytes,
    /// The memory that several shards of a batch need beside the programs.
    pub(crate) shard_bytes: Bytes,
    /// The device memory of the arena, and the host memory for copies; `None` on the processor.
    pub(crate) device: Option<(DeviceMemory, Bytes)>,
}

/// The samples of a batch whose shards a process computes.
fn sample_numbers(training: &Training, place: RankPlace) -> SampleNumbers {
    if place.ranks == 1 {
        return SampleNumbers::ALL;
    }
    let run = training.shard_batch() as u64;
    SampleNumbers { first: place.rank as u64 * run, run, distance: place.ranks as u64 * run }
}

/// Rounds bytes up to whole pages.
pub(crate) fn pages(bytes: usize) -> Bytes {
    Bytes::from_len(bytes.next_multiple_of(4096))
}

/// The micro-batches that a run may have, the largest first.
pub(crate) fn micro_batches(config: &RunConfig, is_set: bool) -> Vec<usize> {
    let training = &config.training;
    let shard = training.shard_batch();
    let whole_only = training.needs_whole_batch().is_some();
    (1..=shard)
        .rev()
        .filter(|size| shard.is_multiple_of(*size))
        .filter(|size| !whole_only || *size == shard)
        .filter(|size| !is_set || *size == training.micro_batch)
        .collect()
}

impl Candidate {
    pub(crate) fn new(
        config: &RunConfig,
        micro_batch: usize,
        site: Site<'_>,
    ) -> Result<Candidate, TrainError> {
        let Site { machine, overhead, data, .. } = site;
        let mut config = config.clone();
        config.training.micro_batch = micro_batch;
        let training = &config.training;
        let programs = RunPrograms::new(training, site.planning.place)?;
        let overhead = overhead.with_nodes(programs.all().iter().map(|program| program.nodes.len()).sum());
        let mut overhead = overhead.with_ranks(site.planning.place.ranks);
        overhead.code += site.planning.later_code;
        let shares = training.loss.shares(config.iterations_per_epoch, config.epochs);
        let loader = LoaderConfig {
            mode: Mode::Training,
            seed: config.seed,
            first_step: 0,
            batch_size: training.batch / site.planning.place.ranks,
            numbers: sample_numbers(training, site.planning.place),
            slots: machine.loader_threads + 1,
            threads: machine.loader_threads,
            scratch: match data.scratch {
                ScratchFacts::Patches { largest } => Scratch::for_patches(training.patch, largest),
                ScratchFacts::Fixed(bytes) => bytes,
            },
        };
        let (channels, patch) = (training.net.in_channels(), training.patch);
        let labels = training.net.classifies().extent(patch);
        let soft = if training.loss.soft == SoftTargets::Never { 0 } else { training.net.classes() };
        let sample = SampleShape { channels, patch, labels, soft };
        let validation = BatchShape { batch_size: training.validation_batch(), sample };
        let maps = target_maps(&config, &programs);
        let loader_bytes = loader.bytes(sample, &maps)?
            + BatchReader::bytes(validation, Mode::Validation, loader.scratch, &maps)?;
        let checkpoint_bytes = Checkpoints::bytes(programs.stored(), training.net.as_architecture())?;
        let shard_bytes = Shards::bytes(training, &programs)?;
        let device = site.backend.device_memory().cloned();
        let device = device.map(|memory| (memory, DeviceMemory::staging_bytes(programs.all())));
        Ok(Candidate {
            config,
            programs,
            shares,
            loader,
            overhead,
            validated: data.validated,
            loader_bytes,
            index_bytes: data.index,
            decoding_bytes: data.decoding,
            checkpoint_bytes,
            shard_bytes,
            device,
        })
    }

    pub(crate) fn planner<'a>(&'a self, backend: &'a dyn Backend) -> Result<Planner<'a>, PlanError> {
        Planner::new(self.programs.all(), backend, Options::default())
    }

    /// The host memory beside the arena.
    pub(crate) fn fixed(&self) -> Bytes {
        let of_device = self.device.as_ref().map(|(memory, staging)| memory.driver().host + *staging);
        self.overhead.total()
            + self.loader_bytes
            + self.index_bytes
            + self.decoding_bytes
            + self.checkpoint_bytes
            + self.shard_bytes
            + of_device.unwrap_or_default()
    }

    /// The bytes left for the arena, in whole pages.
    pub(crate) fn room(&self, machine: Machine) -> usize {
        match &self.device {
            Some((memory, _)) => memory.room(),
            None => usize::try_from((machine.limit - self.fixed()).0).unwrap_or(usize::MAX) / 4096 * 4096,
        }
    }

    /// The bytes of an arena in the memory that has it.
    pub(crate) fn arena(&self, bytes: usize) -> Bytes {
        match &self.device {
            Some(_) => DeviceMemory::arena_bytes(bytes),
            None => pages(bytes),
        }
    }

    /// The device memory for the next batch beside an arena of `arena` bytes; 0 if the limit has no room, or a step is not one run of one program.
    pub(crate) fn ahead_bytes(&self, arena: usize) -> Bytes {
        let Some((memory, _)) = &self.device else { return Bytes::ZERO };
        match self.programs.is_one_run() {
            true => {
                let inputs = ahead_bytes(self.programs.gradients().iter().map(|id| &self.programs[*id]));
                memory.ahead(arena, inputs).unwrap_or(Bytes::ZERO)
            }
            false => Bytes::ZERO,
        }
    }

    /// The needs with an arena of `arena` bytes.
    pub(crate) fn needs(&self, arena: usize) -> Needs {
        match &self.device {
            Some((memory, _)) => Needs { ram: self.fixed(), vram: Some(memory.needed(arena)) },
            None => Needs { ram: self.fixed() + pages(arena), vram: None },
        }
    }

    /// The mean of a number over the programs of gradients, by the share of steps that each has.
    fn mean_over_steps(&self, of: impl Fn(ProgramId) -> f64) -> f64 {
        self.programs.gradients().iter().zip(&self.shares).map(|(program, share)| share * of(*program)).sum()
    }

    /// Predicted time of a step: the mean over the variants of the loss.
    pub(crate) fn seconds(&self, plan: &Plan) -> f64 {
        let of = |program: ProgramId| plan.schedule(program).predicted_seconds;
        let accumulation = self.config.training.accumulation() / self.programs.place().ranks;
        let micro_batch = self.mean_over_steps(of) + self.programs.sums().map_or(0.0, of);
        micro_batch * accumulation as f64 + self.programs.update().map_or(0.0, of)
    }

    /// Predicted time of an epoch: its steps, and its validation.
    pub(crate) fn seconds_per_epoch(&self, plan: &Plan) -> f64 {
        let at_once = self.config.training.validation_batch() * self.programs.place().ranks;
        let validated = self.validated as f64 / at_once as f64;
        let validation = validated * plan.schedule(self.programs.validate()).predicted_seconds;
        self.config.iterations_per_epoch as f64 * self.seconds(plan) + validation
    }

    /// Floating-point operations of a step, recomputation left out: the mean over the variants of the loss.
    pub(crate) fn flops(&self) -> u64 {
        let of = |program: ProgramId| Program::flops(&self.programs[program]) as f64;
        let micro_batch = self.mean_over_steps(of) + self.programs.sums().map_or(0.0, of);
        (micro_batch * self.config.training.accumulation() as f64).round() as u64
    }
}
