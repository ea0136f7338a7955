//! Training a fold: steps, validation, checkpoints.

mod ahead;
mod bad_numbers;
mod batch_sums;
mod class_scores;
mod run_record;
mod running;
mod sample;
mod shards;
mod source;
mod start;
mod step;
mod step_record;
mod stored_states;
mod tensors;
mod validated_batch;
mod validation;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_data::{BatchReader, Loader, Splits};
use plimsoll_memory::{Budget, Bytes, Digest, System, shortfall};
use plimsoll_plan::Engine;
use plimsoll_ranks::RanksError;
use plimsoll_run::{
    CacheFolder, CheckpointKind, Checkpoints, EpochCost, EpochRecord, Event, EventLog, FoldFolder,
    FoldRequest, Journal, Lock, PartSums, Progress, RunConfig, RunError, RunRecord, RunState, Sample,
    Specification, StopReason, one_line, write_json,
};

use crate::ranks::{RankedRun, Ranks, Wishes};
use crate::rates::doubt;
use crate::{PlannedRun, RunData, TrainError};
use ahead::AheadSteps;
use run_record::upper_median;
pub(crate) use shards::Shards;
use source::Source;
use step::StepLog;
pub(crate) use step_record::RecordShape;
use stored_states::StoredStates;
use tensors::RunTensors;

/// A checkpoint is written after each epoch, and within an epoch that takes longer than this.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(600);
/// The interval between checks of whether other processes need the memory of the cache.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A sample of the process's memory is written after each epoch, and within an epoch that takes longer than this.
const SAMPLE_EVERY: Duration = Duration::from_secs(60);
/// The number of step times that are kept for the median.
const KEPT_TIMES: usize = 1 << 14;
/// So many steps' times say whether a prediction was right.
const ENOUGH_TIMES: usize = 20;

/// The share of the time of steps that they may wait for batches without a warning: the first batch is always waited for.
const MOST_WAITING: f64 = 0.05;

/// A fold to be trained.
pub struct Job {
    /// The plan of the run, and its programs.
    pub planned: PlannedRun,
    /// The training data.
    pub data: RunData,
    /// The request of the fold.
    pub request: FoldRequest,
    /// The folder of the fold.
    pub folder: FoldFolder,
    /// Resumes a fold that has begun.
    pub resume: bool,
    /// Folds to be kept with the run when it begins, and where.
    pub splits: Option<(PathBuf, Splits)>,
    /// Writes the numbers of each step.
    pub log_steps: bool,
    /// The other folds that train in this process at the same time.
    pub siblings: Option<Siblings>,
    /// Reads cases into the cache before the first step.
    pub warm: bool,
    /// The folder of files that can be computed again.
    pub cache: Option<CacheFolder>,
    /// Earlier notes to the user, for the events of the run.
    pub notes: Vec<String>,
}

/// Folds that train at the same time in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Siblings {
    /// The number of folds, this one included.
    pub folds: usize,
    /// The planned memory of all folds together.
    pub planned_bytes: Bytes,
}

/// The numbers of a step.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct StepReport {
    /// Steps done.
    pub steps: u64,
    /// Steps of the run.
    pub of: u64,
    /// The loss; not finite where numbers ending wrong and the step was left out.
    pub loss: f32,
    /// The norm of all gradients, before they are scaled down.
    pub grad_norm: f32,
    /// The learning rate.
    pub learning_rate: f64,
    /// The factor of the loss for gradients; `None` unless features are stored in half precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f32>,
    /// The time of the step.
    pub seconds: f64,
}

/// Whoever wants to know how a run goes.
pub trait Observer {
    /// The run begins at a step, on an engine.
    fn begin(&mut self, specification: &Specification, first_step: u64, engine: &str);
    /// Receives a line about a tensor of the file of initial weights or a parameter, or about the cases in the cache before the first
    /// step.
    fn loaded(&mut self, what: &str);
    /// A step is done.
    fn step(&mut self, report: &StepReport);
    /// So many of the patches of an epoch are validated.
    fn validating(&mut self, done: u64, of: u64);
    /// An epoch is done and validated.
    fn epoch(&mut self, record: &EpochRecord, cost: &EpochCost);
    /// Receives the memory and the time of the process so far; at the end of an epoch, before the numbers of the epoch.
    fn sample(&mut self, sample: &Sample);
    /// A checkpoint is about to be written: a resumed run does not repeat the steps before it.
    fn saving(&mut self);
    /// Something that the user should know.
    fn warning(&mut self, what: &str);
    /// Returns a fault of the observer itself, to be recorded among the events of the run; `None` if there was none since the last call.
    fn notice(&mut self) -> Option<String> {
        None
    }
}

/// Trains a fold, from the beginning or from its last checkpoint, to the end or until `stop` is set; a checkpoint then exists to resume
/// from. Memory is reserved from `budget`, which must have the limit of the plan and must already hold the plan's overhead and the
/// inspection's index.
///
/// # Errors
/// Returns an error if the folder holds another run or another process uses it, memory or disk space is refused, an image has become
/// unreadable, or numbers are not finite. A checkpoint is written first if possible.
pub fn train(
    job: Job,
    budget: &Budget,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<RunRecord, TrainError> {
    let mut communicator = plimsoll_ranks::alone();
    train_rank(job, RankedRun { communicator: &mut communicator, patience: None }, budget, stop, observer)
}

/// The same as one of several ranks that train together. Each rank has a job for its place, with the same request and folder; the first writes
/// the files of the run.
///
/// # Errors
/// Returns the errors of [`train`], and an error if communication fails or ranks differ. The caller reports it and
/// [aborts](plimsoll_ranks::Communicator::abort), since the other ranks wait.
pub fn train_rank(
    job: Job,
    ranked: RankedRun<'_>,
    budget: &Budget,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<RunRecord, TrainError> {
    let mut run = Run::start(job, Ranks::new(ranked.communicator), budget, observer)?;
    if let Some(patience) = ranked.patience {
        run.ranks.set_patience(patience);
    }
    observer.begin(&run.specification, run.progress.steps, run.engine.plan().backend());
    let ending = run.go(stop, observer);
    run.end(ending, observer)
}

/// A run in memory.
struct Run<'a> {
    planned: PlannedRun,
    ranks: Ranks<'a>,
    siblings: Option<Siblings>,
    cache: Option<CacheFolder>,
    specification: Specification,
    identity: Digest,
    budget: Budget,
    folder: FoldFolder,
    engine: Box<dyn Engine>,
    checkpoints: Checkpoints,
    /// The files that the first rank writes; `None` on the others.
    journal: Option<Journal>,
    events: Option<EventLog>,
    step_log: Option<StepLog>,
    source: Source,
    /// None only while it is replaced.
    loader: Option<Loader>,
    loader_budget: Budget,
    validation: BatchReader,
    progress: Progress,
    tensors: RunTensors,
    /// None if a batch is one shard.
    shards: Option<Shards>,
    /// The steps that a device has begun, and the batch that was copied to it; not used where a device does not copy ahead.
    ahead: AheadSteps,
    /// The cases of the last batch, where a batch is one shard.
    cases: Vec<usize>,
    /// Room for the parts of a loss, and for the sums of a step.
    parts: Vec<f32>,
    step_parts: PartSums,
    seconds: Vec<f64>,
    /// The same without waiting for batches, which no prediction counts.
    computing: Vec<f64>,
    waiting: Duration,
    allocations: u64,
    /// The highest resident memory before the run began.
    planning_peak: Option<Bytes>,
    /// The number of reported evictions of the cache.
    evictions: u64,
    /// Moments and averages, with the rank that has each.
    states: StoredStates,
    /// Given back last, when all is written. The first rank has it.
    _lock: Option<Lock>,
}

/// The end of the training loop.
enum Ending {
    Finished,
    Early,
    Stopped,
}

impl Run<'_> {
    fn config(&self) -> &RunConfig {
        &self.specification.config
    }

    /// Runs epochs until the end, until the score has not risen for too long, or until the run is stopped.
    fn go(&mut self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        let (total, per_epoch) = (self.config().schedule.total_steps, self.config().iterations_per_epoch);
        let mut last_checkpoint = Instant::now();
        let mut epoch_start = Instant::now();
        let mut last_look = Instant::now();
        let mut last_sample = Instant::now();
        let mut wishes = self.wishes(stop, false)?;
        loop {
            self.note(observer)?;
            let steps = self.progress.steps;
            if steps / per_epoch > self.progress.validated {
                // Where this fails or is stopped, it is done again from the checkpoint.
                let Some(record) = self.end_epoch(epoch_start, stop, observer)? else {
                    self.write(CheckpointKind::Latest, observer)?;
                    return Ok(Ending::Stopped);
                };
                let rule = self.specification.config.early_stopping;
                self.progress.patience = match rule {
                    Some(rule) => rule.after(self.progress.patience, &record).0,
                    None => None,
                };
                self.write(CheckpointKind::Latest, observer)?;
                (last_checkpoint, epoch_start) = (Instant::now(), Instant::now());
                last_sample = epoch_start;
            }
            let patience = self.config().early_stopping.map(|rule| rule.patience);
            if patience.zip(self.progress.patience).is_some_and(|(most, (_, since))| since >= most) {
                self.write(CheckpointKind::Final, observer)?;
                return Ok(Ending::Early);
            }
            if steps >= total {
                self.write(CheckpointKind::Final, observer)?;
                return Ok(Ending::Finished);
            }
            let is_stopped = wishes.stop || (self.ranks.is_alone() && stop.load(Ordering::Relaxed));
            if is_stopped && self.ahead.settles() {
                self.write(CheckpointKind::Latest, observer)?;
                return Ok(Ending::Stopped);
            }
            match self.step() {
                Ok(report) => observer.step(&report),
                Err(problem) => self.after_bad_step(problem, observer)?,
            }
            if last_look.elapsed() > LOOK_EVERY {
                self.make_room_for_others(observer)?;
                last_look = Instant::now();
            }
            if last_sample.elapsed() > SAMPLE_EVERY {
                self.sample(observer)?;
                last_sample = Instant::now();
            }
            wishes = self.wishes(stop, last_checkpoint.elapsed() > CHECKPOINT_EVERY)?;
            if wishes.checkpoint && self.ahead.settles() {
                self.write(CheckpointKind::Latest, observer)?;
                last_checkpoint = Instant::now();
            }
        }
    }

    /// The wishes of all ranks at the end of a step.
    fn wishes(&mut self, stop: &AtomicBool, is_due: bool) -> Result<Wishes, RanksError> {
        let checkpoint = is_due && self.ranks.is_first();
        self.ranks.agree(Wishes { stop: stop.load(Ordering::Relaxed), checkpoint })
    }

    /// Records an event, if this rank writes the files of the run.
    fn say(&mut self, event: Event) -> Result<(), RunError> {
        self.events.as_mut().map_or(Ok(()), |events| events.say(event))
    }

    /// Lets the cache hold as much less as others have taken of the machine since the limit was set, and as much as was planned
    /// once they gave it back.
    fn make_room_for_others(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let numbers = &self.planned.numbers;
        let (planned, folds) = self
            .siblings
            .map_or((numbers.total_bytes, 1), |siblings| (siblings.planned_bytes, siblings.folds));
        let missing = shortfall(&System::default(), planned);
        let cache = numbers.cache_bytes - Bytes(missing.0.div_ceil(folds as u64));
        self.source.limit_cache(cache);
        let evictions = self.source.cache().evictions;
        if evictions > self.evictions {
            self.say(Event::Eviction { volumes: evictions - self.evictions, cache })?;
            self.evictions = evictions;
            self.sample(observer)?;
        }
        Ok(())
    }

    fn write(&mut self, kind: CheckpointKind, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let start = Instant::now();
        observer.saving();
        if let Some(log) = &mut self.step_log {
            // Going on from here, the steps before are not done again.
            log.flush()?;
        }
        let state = RunState {
            engine: &*self.engine,
            program: self.planned.programs.updating(),
            specification: self.identity,
            progress: &self.progress,
            net: self.planned.config.training.net.as_architecture(),
        };
        match self.ranks.is_first() {
            true => self.states.write(&mut self.checkpoints, kind, state, &mut self.ranks)?,
            false => self.states.send(&*self.engine, self.checkpoints.buffer(), &mut self.ranks)?,
        }
        let (steps, seconds) = (self.progress.steps, start.elapsed().as_secs_f64());
        Ok(self.say(Event::Checkpoint { kind, steps, seconds })?)
    }

    fn warn(&mut self, what: String, observer: &mut dyn Observer) -> Result<(), RunError> {
        observer.warning(&what);
        self.say(Event::Warning { what })
    }

    /// Records what ending wrong with the observer.
    fn note(&mut self, observer: &mut dyn Observer) -> Result<(), RunError> {
        match observer.notice() {
            Some(what) => self.say(Event::Warning { what }),
            None => Ok(()),
        }
    }

    /// Writes down how the run ended and what it held.
    fn end(
        mut self,
        ending: Result<Ending, TrainError>,
        observer: &mut dyn Observer,
    ) -> Result<RunRecord, TrainError> {
        let steps = self.progress.steps;
        let (why, detail) = match &ending {
            Ok(Ending::Finished) => (StopReason::Finished, String::new()),
            Ok(Ending::Early) => (StopReason::Early, String::new()),
            Ok(Ending::Stopped) => (StopReason::Signal, String::new()),
            Err(problem) => (StopReason::Error, one_line(problem)),
        };
        let problem = match ending {
            Ok(_) => {
                self.note(observer)?;
                self.doubt_rates(observer)?;
                self.say_waiting(observer)?;
                let record = self.record(why);
                if self.ranks.is_first() {
                    write_json(&self.folder.record(), &record)?;
                }
                self.say(Event::Stop { why, steps, detail })?;
                return Ok(record);
            }
            Err(problem) => problem,
        };
        // The computed state is saved if the disk allows it; the first error is the one to report.
        // Other ranks may not know of an error of this one, so that they would not send what they have.
        if problem.leaves_state_sound() && (self.ranks.is_alone() || problem.is_of_all_ranks()) {
            let _ = self.write(CheckpointKind::Latest, observer);
        }
        let _ = self.say(Event::Stop { why, steps, detail });
        Err(problem)
    }

    /// Says so if steps took much more or less than was predicted; the next process then measures the rates again.
    fn doubt_rates(&mut self, observer: &mut dyn Observer) -> Result<(), RunError> {
        // Rates are measured alone: others that compute or send at the same time say nothing about them.
        let is_alone = self.siblings.is_none() && self.ranks.is_alone();
        if self.computing.len() < ENOUGH_TIMES || !is_alone {
            return Ok(());
        }
        let predicted = self.planned.numbers.predicted_seconds_per_step;
        let Some(taken) = upper_median(&mut self.computing) else { return Ok(()) };
        match doubt(&*self.planned.backend, self.cache.as_ref(), predicted, taken) {
            Some(what) => self.warn(what, observer),
            None => Ok(()),
        }
    }

    /// Says so if steps waited for their batches.
    fn say_waiting(&mut self, observer: &mut dyn Observer) -> Result<(), RunError> {
        let all: f64 = self.seconds.iter().sum();
        let waiting = self.waiting.as_secs_f64();
        if self.seconds.len() < ENOUGH_TIMES || waiting <= MOST_WAITING * all {
            return Ok(());
        }
        let cache = self.source.cache();
        let asked = (cache.hits + cache.misses + cache.bypasses).max(1);
        self.warn(
            format!(
                "steps waited {waiting:.1} s of {all:.1} s for their batches, with {:.0} % of their files in the cache: ‹job bench \
                 system› finds the bottleneck; more ‹ram›, ‹loader_threads› or ‹warm› may help",
                100.0 * cache.hits as f64 / asked as f64
            ),
            observer,
        )
    }
}
