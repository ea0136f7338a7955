//! The loop: steps, validation, checkpoints.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_data::{
    BatchReader, Dataset, Fold, Inspection, Loader, LoaderConfig, Mode, Patches, Sampler, Scratch,
    VolumeCache,
};
use plimsoll_graph::ops::Noise;
use plimsoll_graph::{Role, TensorId};
use plimsoll_memory::{
    Budget, Bytes, System, heap_use, resident, shortfall, watch_this_thread, watched_allocations,
};
use plimsoll_nn::{TargetInput, Variant, names};
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId};

use crate::checkpoint::{PartSums, Progress};
use crate::journal::{Journal, LossPart, write_json};
use crate::{
    Checkpoint, CheckpointKind, EpochRecord, METRICS_FILE, PlannedRun, RUN_FILE, RunConfig, RunPrograms,
    RunRecord, TrainError,
};

/// A checkpoint is written after each epoch, and within an epoch that takes longer than this.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(600);
/// How often it is looked whether others need the memory of the cache.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A fold to be trained.
pub struct Job {
    /// What the run holds, and its programs.
    pub planned: PlannedRun,
    /// The images.
    pub dataset: Dataset,
    /// What was found out about them.
    pub inspection: Arc<Inspection>,
    /// Which cases are trained on, and which validated.
    pub fold: Fold,
    /// Where the fold's files go.
    pub folder: PathBuf,
    /// Whether to go on with what is there.
    pub resume: bool,
    /// Parameters to start from, instead of random ones.
    pub weights: Option<PathBuf>,
}

/// What is told of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Steps done.
    pub steps: u64,
    /// Steps of the run.
    pub of: u64,
    /// The loss.
    pub loss: f32,
    /// Of the step.
    pub seconds: f64,
}

/// Whoever wants to know how a run goes.
pub trait Observer {
    /// The run begins at a step, on an engine.
    fn begin(&mut self, first_step: u64, of: u64, engine: &str);
    /// A step is done.
    fn step(&mut self, report: &StepReport);
    /// An epoch is done and validated.
    fn epoch(&mut self, record: &EpochRecord);
}

/// Trains a fold, from the beginning or from its last checkpoint, to the end or until `stop` is set; then there is a checkpoint
/// to go on from. Everything is reserved from `budget`, whose line the plan was made for and which holds the plan's overhead
/// and the inspection's index already.
///
/// # Errors
/// If the folder holds another run, memory or disk are refused, an image has become unreadable, or the loss is no longer a
/// number.
pub fn train(
    job: Job,
    budget: &Budget,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<RunRecord, TrainError> {
    let mut run = Run::start(job, budget)?;
    observer.begin(run.progress.steps, run.config().schedule.total_steps, run.engine.plan().backend());
    let finished = run.go(stop, observer)?;
    run.finish(finished)
}

/// A run in memory.
struct Run {
    planned: PlannedRun,
    budget: Budget,
    folder: PathBuf,
    engine: Box<dyn Engine>,
    checkpoint: Checkpoint,
    journal: Journal,
    patches: Arc<Patches>,
    loader: Loader,
    validation: BatchReader,
    progress: Progress,
    tensors: RunTensors,
    /// Room for the parts of a loss.
    parts: Vec<f32>,
    seconds: Vec<f64>,
    waiting: Duration,
    allocations: u64,
}

/// The inputs and outputs of a run's programs.
struct RunTensors {
    /// One for each variant of the loss.
    gradients: Vec<LossTensors>,
    /// The rates of the update, where it is a program of its own.
    update: Option<(ProgramId, TensorId)>,
    validate: LossTensors,
    counts: TensorId,
}

/// The inputs and outputs of a program with a loss.
struct LossTensors {
    program: ProgramId,
    image: TensorId,
    labels: TensorId,
    /// Maps of the labels, by their place in the batch.
    targets: Vec<(usize, TensorId)>,
    /// Where a program updates parameters.
    rates: Option<TensorId>,
    /// What dropout follows from, where there is any.
    noise: Option<TensorId>,
    loss: TensorId,
    /// The parts of the loss, and which they are.
    parts: (TensorId, Vec<usize>),
}

fn find(programs: &RunPrograms, program: ProgramId, name: &str) -> Result<TensorId, TrainError> {
    let program = &programs[program];
    program.find(name).ok_or_else(|| {
        let (program, tensor) = (program.name.clone(), name.to_string());
        TrainError::Plan(plimsoll_graph::GraphError::MissingValue { program, tensor }.into())
    })
}

impl LossTensors {
    /// Of a program that has `parts` of the loss.
    fn of(programs: &RunPrograms, program: ProgramId, parts: Vec<usize>) -> Result<LossTensors, TrainError> {
        let if_there = |name: &str| programs[program].find(name);
        let target = |(map, target): (usize, &TargetInput)| Some((map, if_there(&target.name)?));
        Ok(LossTensors {
            program,
            image: find(programs, program, names::IMAGE)?,
            labels: find(programs, program, names::LABELS)?,
            targets: programs.targets().iter().enumerate().filter_map(target).collect(),
            rates: if_there(names::RATES),
            noise: if_there(names::NOISE),
            loss: find(programs, program, names::LOSS)?,
            parts: (find(programs, program, names::LOSS_PARTS)?, parts),
        })
    }
}

impl RunTensors {
    fn of(planned: &PlannedRun) -> Result<RunTensors, TrainError> {
        let (programs, objective) = (&planned.programs, &planned.config.training.loss);
        let of_variant = |(program, variant): (&ProgramId, &Variant)| {
            LossTensors::of(programs, *program, objective.parts(variant))
        };
        let gradients = programs.gradients().iter().zip(programs.variants());
        let update = programs.update().map(|update| {
            let rates = find(programs, update, names::RATES)?;
            Ok::<_, TrainError>((update, rates))
        });
        let validate = programs.validate();
        Ok(RunTensors {
            gradients: gradients.map(of_variant).collect::<Result<_, _>>()?,
            update: update.transpose()?,
            validate: LossTensors::of(programs, validate, objective.parts(&objective.validation()))?,
            counts: find(programs, validate, names::COUNTS)?,
        })
    }
}

impl Run {
    fn start(job: Job, budget: &Budget) -> Result<Run, TrainError> {
        let Job { planned, dataset, inspection, fold, folder, resume, weights } = job;
        let io = |source| TrainError::io(&folder, source);
        fs::create_dir_all(&folder).map_err(io)?;
        if !resume && folder.join(CheckpointKind::Latest.file()).exists() {
            return Err(TrainError::Occupied { folder });
        }
        let config = &planned.config;
        let arena = budget.reserve("arena", planned.numbers.arena_bytes)?;
        let mut engine = planned.backend.engine(planned.plan.clone(), arena)?;
        let (programs, net) = (&planned.programs, config.training.net.as_architecture());
        let updating = programs.updating();
        let mut checkpoint = Checkpoint::new(&folder, &programs[updating], budget)?;
        let resumed = if resume { checkpoint.resume(&mut *engine, updating)? } else { None };
        let mut progress = match resumed {
            Some(progress) => progress,
            None => {
                let fullest = programs.fullest();
                match &weights {
                    Some(file) => {
                        let program = (fullest, &programs[fullest]);
                        checkpoint.load_parameters(file, net, &mut *engine, program)?;
                    }
                    None => initialise(&mut *engine, programs, config)?,
                }
                Progress::default()
            }
        };
        let part_count = config.training.loss.part_count();
        progress.epoch_parts.resize(part_count, (0.0, 0));
        let journal = Journal::open(folder.join(METRICS_FILE), progress.journal_bytes)?;
        let sampler = Sampler::new(inspection, &fold, config.sampler())?;
        let cache_budget = budget.part("cache", planned.numbers.cache_bytes)?;
        let cache = Arc::new(VolumeCache::new(cache_budget));
        let patches = Patches::new(&dataset, sampler, cache)?.with_targets(planned.target_maps());
        let patches = Arc::new(patches);
        let loader_budget = budget.part("loader", planned.numbers.loader_bytes)?;
        let loader_config = LoaderConfig { first_step: progress.steps, ..planned.loader };
        let loader = Loader::start(loader_config, Arc::clone(&patches), &loader_budget)?;
        let validation = BatchReader::new(
            Arc::clone(&patches),
            Mode::Validation,
            config.seed,
            config.training.micro_batch,
            Scratch::DEFAULT,
            &loader_budget,
        )?;
        let tensors = RunTensors::of(&planned)?;
        // Room for as many times as there can be steps, as long as that is not much.
        let steps = planned.config.schedule.total_steps.saturating_sub(progress.steps);
        let seconds = Vec::with_capacity(steps.min(KEPT_TIMES as u64) as usize);
        Ok(Run {
            planned,
            budget: budget.clone(),
            folder,
            engine,
            checkpoint,
            journal,
            patches,
            loader,
            validation,
            progress,
            tensors,
            parts: vec![0.0; part_count],
            seconds,
            waiting: Duration::ZERO,
            allocations: 0,
        })
    }

    fn config(&self) -> &RunConfig {
        &self.planned.config
    }

    /// Runs epochs until the end or until told to stop; whether the end was reached.
    fn go(&mut self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<bool, TrainError> {
        let (total, per_epoch) = (self.config().schedule.total_steps, self.config().iterations_per_epoch);
        let mut last_checkpoint = Instant::now();
        let mut epoch_start = Instant::now();
        let mut last_look = Instant::now();
        while self.progress.steps < total {
            if stop.load(Ordering::Relaxed) {
                self.write(CheckpointKind::Latest)?;
                return Ok(false);
            }
            let report = self.step()?;
            observer.step(&report);
            if last_look.elapsed() > LOOK_EVERY {
                self.make_room_for_others();
                last_look = Instant::now();
            }
            if self.progress.steps.is_multiple_of(per_epoch) {
                let record = self.end_epoch(epoch_start.elapsed())?;
                observer.epoch(&record);
                (last_checkpoint, epoch_start) = (Instant::now(), Instant::now());
            } else if last_checkpoint.elapsed() > CHECKPOINT_EVERY {
                self.write(CheckpointKind::Latest)?;
                last_checkpoint = Instant::now();
            }
        }
        self.write(CheckpointKind::Final)?;
        Ok(true)
    }

    /// Lets the cache hold as much less as others have taken of the machine since the line was drawn, and as much as was planned
    /// once they gave it back.
    fn make_room_for_others(&self) {
        let numbers = &self.planned.numbers;
        let missing = shortfall(&System::default(), numbers.total_bytes);
        self.patches.cache().shrink_to(numbers.cache_bytes - missing);
    }

    fn step(&mut self) -> Result<StepReport, TrainError> {
        let start = Instant::now();
        let before = watched_allocations();
        let watch = watch_this_thread();
        let step = self.progress.steps;
        let (training, seed) = (&self.planned.config.training, self.planned.config.seed);
        let rates = training.optimizer.rates(self.planned.config.schedule.at(step), step + 1);
        let asked = Instant::now();
        let batch = self.loader.next_batch()?;
        self.waiting += asked.elapsed();
        let per_epoch = self.planned.config.iterations_per_epoch;
        let variant = training.loss.variant_at(self.planned.programs.variants(), step, per_epoch);
        let tensors = &self.tensors.gradients[variant];
        let program = tensors.program;
        let micro_batches = training.accumulation();
        let mut loss = 0.0;
        for part in 0..micro_batches {
            let images = share(batch.images(), part, micro_batches);
            self.engine.write(program, tensors.image, HostSlice::F32(images))?;
            let labels = share(batch.labels(), part, micro_batches);
            self.engine.write(program, tensors.labels, HostSlice::U8(labels))?;
            if let Some(input) = tensors.noise {
                let noise = Noise::of_step(seed, step, (part * training.micro_batch) as u32);
                self.engine.write(program, input, HostSlice::F32(&noise.to_table()))?;
            }
            for (map, input) in &tensors.targets {
                let values = share(batch.target(*map), part, micro_batches);
                self.engine.write(program, *input, HostSlice::F32(values))?;
            }
            if let Some(input) = tensors.rates {
                self.engine.write(program, input, HostSlice::F32(&rates))?;
            }
            self.engine.run(program)?;
            let mut value = [0.0];
            self.engine.read(program, tensors.loss, HostSliceMut::F32(&mut value))?;
            add_parts(&*self.engine, tensors, &mut self.parts, &mut self.progress.epoch_parts)?;
            loss += value[0] / micro_batches as f32;
        }
        if let Some((update, input)) = self.tensors.update {
            // Inputs of one program lie where another has its values, so they are written just before it runs.
            self.engine.write(update, input, HostSlice::F32(&rates))?;
            self.engine.run(update)?;
        }
        drop(batch);
        drop(watch);
        if !self.seconds.is_empty() {
            self.allocations += watched_allocations() - before;
        }
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step: step + 1, loss });
        }
        self.progress.steps += 1;
        self.progress.epoch_loss += f64::from(loss);
        let seconds = start.elapsed().as_secs_f64();
        if self.seconds.len() < KEPT_TIMES {
            self.seconds.push(seconds);
        }
        Ok(StepReport { steps: self.progress.steps, of: self.config().schedule.total_steps, loss, seconds })
    }

    fn end_epoch(&mut self, training_time: Duration) -> Result<EpochRecord, TrainError> {
        let start = Instant::now();
        let Validated { loss, parts, pseudo_dice } = self.validate()?;
        let scored: Vec<f64> = pseudo_dice.iter().flatten().copied().collect();
        let mean = (!scored.is_empty()).then(|| scored.iter().sum::<f64>() / scored.len() as f64);
        let ema = match (self.progress.ema, mean) {
            (Some(ema), Some(mean)) => Some(0.9 * ema + 0.1 * mean),
            (known, new) => new.or(known),
        };
        self.progress.ema = ema;
        let per_epoch = self.config().iterations_per_epoch;
        let record = EpochRecord {
            epoch: self.progress.steps / per_epoch - 1,
            steps: self.progress.steps,
            learning_rate: self.config().schedule.at(self.progress.steps - 1),
            train_loss: self.progress.epoch_loss / per_epoch as f64,
            validation_loss: loss,
            train_loss_parts: self.means(&self.progress.epoch_parts),
            validation_loss_parts: parts,
            pseudo_dice,
            mean_pseudo_dice: mean,
            ema_pseudo_dice: ema,
            seconds: (training_time + start.elapsed()).as_secs_f64(),
            resident_bytes: resident().map(|resident| resident.now.0).unwrap_or(0),
        };
        self.progress.epoch_loss = 0.0;
        self.progress.epoch_parts.fill((0.0, 0));
        self.journal.append(&record)?;
        self.progress.journal_bytes = self.journal.length();
        if ema > self.progress.best {
            self.progress.best = ema;
            self.write(CheckpointKind::Best)?;
        }
        self.write(CheckpointKind::Latest)?;
        Ok(record)
    }

    /// The mean loss of the validation batches and its parts, and the Dice of each class but the background over all their
    /// voxels.
    fn validate(&mut self) -> Result<Validated, TrainError> {
        let validate = self.tensors.validate.program;
        let classes = self.config().training.net.classes();
        let batches = self.config().validation_iterations;
        let micro_batches = self.config().training.accumulation() as u64;
        let mut counts = vec![0.0f64; classes * 3];
        let mut totals = vec![0.0f64; classes * 3];
        let mut parts = vec![(0.0, 0); self.config().training.loss.part_count()];
        let mut loss = 0.0;
        for step in 0..batches * micro_batches {
            let batch = self.validation.load(step)?;
            let tensors = &self.tensors.validate;
            self.engine.write(validate, tensors.image, HostSlice::F32(batch.images()))?;
            self.engine.write(validate, tensors.labels, HostSlice::U8(batch.labels()))?;
            for (map, input) in &tensors.targets {
                self.engine.write(validate, *input, HostSlice::F32(batch.target(*map)))?;
            }
            self.engine.run(validate)?;
            let mut one = [0.0];
            self.engine.read(validate, tensors.loss, HostSliceMut::F32(&mut one))?;
            add_parts(&*self.engine, tensors, &mut self.parts, &mut parts)?;
            self.engine.read(validate, self.tensors.counts, HostSliceMut::F64(&mut counts))?;
            loss += f64::from(one[0]);
            for (total, count) in totals.iter_mut().zip(&counts) {
                *total += count;
            }
        }
        let dice = totals.chunks_exact(3).skip(1).map(|class| {
            let denominator = 2.0 * class[0] + class[1] + class[2];
            (denominator > 0.0).then(|| 2.0 * class[0] / denominator)
        });
        Ok(Validated {
            loss: loss / (batches * micro_batches).max(1) as f64,
            parts: self.means(&parts),
            pseudo_dice: dice.collect(),
        })
    }

    /// The means of the parts of the loss that there were.
    fn means(&self, sums: &PartSums) -> Vec<LossPart> {
        let objective = &self.config().training.loss;
        let there = sums.iter().enumerate().filter(|(_, (_, count))| *count > 0);
        let mean = |(part, (sum, count)): (usize, &(f64, u64))| LossPart {
            name: objective.part_name(part),
            value: sum / *count as f64,
        };
        there.map(mean).collect()
    }

    fn write(&mut self, kind: CheckpointKind) -> Result<(), TrainError> {
        let (updating, net) = (self.planned.programs.updating(), &self.planned.config.training.net);
        self.checkpoint.write(kind, &*self.engine, updating, &self.progress, net.as_architecture())
    }

    fn finish(mut self, finished: bool) -> Result<RunRecord, TrainError> {
        self.seconds.sort_by(f64::total_cmp);
        let numbers = &self.planned.numbers;
        let record = RunRecord {
            ram_budget_bytes: numbers.ram_budget_bytes,
            planned_bytes: numbers.total_bytes,
            peak_rss_bytes: resident().map(|resident| resident.peak).unwrap_or_default(),
            arena_bytes: Bytes::of(self.planned.plan.arena_bytes),
            arena_used_bytes: Bytes::of(self.engine.used_bytes()),
            heap_allocations_in_steps: self.allocations,
            steps: self.progress.steps,
            seconds_per_step: self.seconds.get(self.seconds.len() / 2).copied().unwrap_or(0.0),
            finished,
            planned: numbers.parts(),
            held: self.budget.holders(),
            heap: heap_use(),
            cache: self.patches.cache().statistics().into(),
            engine: self.engine.plan().backend().into(),
            ops: self.engine.times(),
            batches: self.patches.times(),
            waiting_seconds: self.waiting.as_secs_f64(),
            ema_pseudo_dice: self.progress.ema,
        };
        write_json(&self.folder.join(RUN_FILE), &record)?;
        Ok(record)
    }
}

/// How many steps' times are kept for the median.
const KEPT_TIMES: usize = 1 << 14;

/// What validation finds.
struct Validated {
    loss: f64,
    parts: Vec<LossPart>,
    /// Dice of each class but the background.
    pseudo_dice: Vec<Option<f64>>,
}

/// Adds the parts of the loss that a program has just computed. `room` has room for all of them.
fn add_parts(
    engine: &dyn Engine,
    tensors: &LossTensors,
    room: &mut [f32],
    sums: &mut PartSums,
) -> Result<(), EngineError> {
    let (tensor, parts) = &tensors.parts;
    let values = &mut room[..parts.len()];
    engine.read(tensors.program, *tensor, HostSliceMut::F32(values))?;
    for (part, value) in parts.iter().zip(values) {
        sums[*part].0 += f64::from(*value);
        sums[*part].1 += 1;
    }
    Ok(())
}

/// One of so many equal parts of a batch.
fn share<T>(values: &[T], part: usize, parts: usize) -> &[T] {
    let count = values.len() / parts;
    &values[part * count..][..count]
}

/// Writes random initial values of all parameters.
fn initialise(
    engine: &mut dyn Engine,
    programs: &RunPrograms,
    config: &RunConfig,
) -> Result<(), EngineError> {
    let fullest = programs.fullest();
    for id in programs[fullest].with_role(Role::Parameter) {
        let values = config.training.net.initial_values(programs[fullest].tensor(id), config.seed);
        engine.write(fullest, id, HostSlice::F32(&values))?;
    }
    Ok(())
}
