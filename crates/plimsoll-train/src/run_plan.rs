//! What a run holds, part by part, before it begins.

use plimsoll_cpu::CpuLayout;
use plimsoll_data::{BatchReader, BatchShape, Fingerprint, LoaderConfig, Mode, Scratch};
use plimsoll_graph::{DType, Program};
use plimsoll_memory::{Bytes, resident};
use plimsoll_plan::{Options, Plan, plan};
use serde::{Deserialize, Serialize};

use crate::{Checkpoint, RunConfig, TrainError};

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

/// Memory that is not reserved by size: code, heap, stacks, page tables' slack.
const FIXED_OVERHEAD: Bytes = Bytes::mib(24);
/// The same, for each thread.
const OVERHEAD_PER_THREAD: Bytes = Bytes::mib(1);

/// What a process holds beside what it reserves: what is resident now, and an allowance for heap and stacks to come.
pub fn overhead(threads: usize) -> Bytes {
    let now = resident().map(|resident| resident.now).unwrap_or(Bytes::mib(16));
    now + FIXED_OVERHEAD + Bytes(OVERHEAD_PER_THREAD.0 * threads as u64)
}

/// A named part of the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is for.
    pub name: String,
    /// How much.
    pub bytes: Bytes,
}

/// What a run holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The memory line.
    pub ram_budget_bytes: Bytes,
    /// Code, heap and stacks.
    pub overhead_bytes: Bytes,
    /// Parameters, moments, gradients, features and kernels' scratch: one allocation.
    pub arena_bytes: Bytes,
    /// What no placement of the same schedule could do without.
    pub arena_lower_bound_bytes: Bytes,
    /// Batches being made and waiting, and what threads read into; for training and validation.
    pub loader_bytes: Bytes,
    /// Where the foreground is.
    pub index_bytes: Bytes,
    /// A copy of the largest tensor, for writing and reading checkpoints.
    pub checkpoint_bytes: Bytes,
    /// Decoded volumes.
    pub cache_bytes: Bytes,
    /// All of these.
    pub total_bytes: Bytes,
    /// Whether that is within the line.
    pub feasible: bool,
    /// The least line that would do: without a cache.
    pub minimum_ram_bytes: Bytes,
    /// Depth, height, width of a patch.
    pub patch_size: [usize; 3],
    /// Samples of a step.
    pub batch_size: usize,
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// Micro-batches of a step.
    pub accumulation: usize,
    /// How features are stored.
    pub precision: DType,
    /// Floating-point operations beyond those of the network, as a fraction.
    pub recompute_flops_fraction: f64,
    /// Floating-point operations of a step.
    pub flops_per_step: u64,
    /// Numbers that are learned.
    pub parameters: u64,
    /// All volumes of the data set, decoded: what the cache would hold if it could.
    pub decoded_bytes: Bytes,
}

impl RunPlan {
    /// The parts, as they add up to the total.
    pub fn parts(&self) -> Vec<Part> {
        [
            ("overhead", self.overhead_bytes),
            ("arena", self.arena_bytes),
            ("loader", self.loader_bytes),
            ("foreground index", self.index_bytes),
            ("checkpoint", self.checkpoint_bytes),
            ("cache", self.cache_bytes),
        ]
        .map(|(name, bytes)| Part { name: name.into(), bytes })
        .to_vec()
    }

    /// That the run fits.
    ///
    /// # Errors
    /// If it does not, with the numbers.
    pub fn check(&self) -> Result<(), TrainError> {
        if self.feasible {
            return Ok(());
        }
        let mut parts: Vec<Part> = self
            .parts()
            .into_iter()
            .filter(|part| part.bytes > Bytes::ZERO && part.name != "cache")
            .collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        let parts: Vec<String> = parts.iter().map(|part| format!("{} {}", part.name, part.bytes)).collect();
        Err(TrainError::Infeasible {
            needed: self.minimum_ram_bytes,
            line: self.ram_budget_bytes,
            parts: parts.join(", "),
        })
    }
}

/// A run whose memory is planned.
pub struct PlannedRun {
    /// What it holds.
    pub numbers: RunPlan,
    /// The configuration, with the micro-batch that was chosen.
    pub config: RunConfig,
    /// The programs: a micro-batch's gradients, the update where it is one of its own, validation.
    pub programs: Vec<Program>,
    /// Where everything lies.
    pub plan: Plan,
    pub(crate) loader: LoaderConfig,
}

impl PlannedRun {
    /// The place of validation among the programs.
    pub(crate) fn validate(&self) -> usize {
        self.programs.len() - 1
    }

    /// The place of the update among the programs, where it is one of its own.
    pub(crate) fn update(&self) -> Option<usize> {
        (self.programs.len() == 3).then_some(1)
    }

    /// The program that has all parameters and moments.
    pub(crate) fn keeper(&self) -> usize {
        self.update().unwrap_or(0)
    }
}

/// Plans a run: with the micro-batch that is set, or else with the largest that fits the line (the smallest if none does).
/// What the line leaves goes to the cache, as far as the data set can use it.
///
/// # Errors
/// If the configuration makes no programs, or no plan.
pub fn plan_run(
    config: &RunConfig,
    micro_batch_is_set: bool,
    machine: Machine,
    fingerprint: &Fingerprint,
    index_bytes: Bytes,
) -> Result<PlannedRun, TrainError> {
    let batch = config.training.batch;
    let divisors = (1..=batch).rev().filter(|size| batch.is_multiple_of(*size));
    // Parts of a batch would change a Dice over the whole batch.
    let whole_only = config.training.loss.needs_whole_batch();
    let mut last = None;
    for micro_batch in divisors.filter(|size| !whole_only || *size == batch) {
        if micro_batch_is_set && micro_batch != config.training.micro_batch {
            continue;
        }
        let mut config = config.clone();
        config.training.micro_batch = micro_batch;
        let planned = plan_with(config, machine, fingerprint, index_bytes)?;
        if planned.numbers.feasible {
            return Ok(planned);
        }
        last = Some(planned);
    }
    match last {
        Some(planned) => Ok(planned),
        // A micro-batch that does not divide the batch: the programs say so.
        None => plan_with(config.clone(), machine, fingerprint, index_bytes),
    }
}

fn plan_with(
    config: RunConfig,
    machine: Machine,
    fingerprint: &Fingerprint,
    index_bytes: Bytes,
) -> Result<PlannedRun, TrainError> {
    let training = &config.training;
    let programs = training.programs()?;
    let gradient_flops = programs.gradient.flops();
    let programs: Vec<Program> =
        [Some(programs.gradient), programs.update, Some(programs.validate)].into_iter().flatten().collect();
    let layout = CpuLayout { threads: machine.threads };
    let plan = plan(&programs, &layout, Options::default())?;
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
    let loader_bytes =
        loader.bytes(channels, training.patch)? + BatchReader::bytes(validation, Scratch::DEFAULT)?;
    let keeper = &programs[usize::from(programs.len() == 3)];
    let checkpoint_bytes = Checkpoint::bytes(keeper)?;
    let overhead_bytes = overhead(machine.threads + machine.loader_threads);
    let arena_bytes = Bytes::of(plan.arena_bytes.next_multiple_of(4096));
    let minimum_ram_bytes = overhead_bytes + arena_bytes + loader_bytes + index_bytes + checkpoint_bytes;
    let decoded_bytes = decoded(fingerprint);
    let cache_bytes = decoded_bytes.min(machine.line - minimum_ram_bytes);
    let parameters = programs[0]
        .with_role(plimsoll_graph::Role::Parameter)
        .map(|id| programs[0].shape(id).count() as u64)
        .sum();
    let numbers = RunPlan {
        ram_budget_bytes: machine.line,
        overhead_bytes,
        arena_bytes,
        arena_lower_bound_bytes: Bytes::of(plan.lower_bound_bytes.next_multiple_of(4096)),
        loader_bytes,
        index_bytes,
        checkpoint_bytes,
        cache_bytes,
        total_bytes: minimum_ram_bytes + cache_bytes,
        feasible: minimum_ram_bytes <= machine.line,
        minimum_ram_bytes,
        patch_size: training.patch,
        batch_size: training.batch,
        micro_batch: training.micro_batch,
        accumulation: training.accumulation(),
        precision: training.precision,
        recompute_flops_fraction: plan.programs[0].recompute_flops_fraction,
        flops_per_step: gradient_flops * training.accumulation() as u64,
        parameters,
        decoded_bytes,
    };
    Ok(PlannedRun { numbers, programs, plan, loader, config })
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
