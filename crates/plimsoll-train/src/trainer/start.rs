//! From a job to a run in memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_data::{BatchReader, Loader, LoaderConfig, LoaderError, Mode};
use plimsoll_disk::atomic::sweep;
use plimsoll_graph::Role;
use plimsoll_memory::{Budget, Bytes, Digest, forget_heap_peak, forget_resident_peak, resident};
use plimsoll_plan::{Engine, EngineError, HostSlice, open_engine_ahead};
use plimsoll_run::{
    CheckpointKind, Checkpoints, Event, EventLog, FoldFolder, FoldRequest, Holder, InitialWeights, Journal,
    Lock, NumberedProgram, Progress, RunError, Specification, StartTable, each_event, start_averages,
};

use super::ahead::AheadSteps;
use super::source::Source;
use super::step::{StepLog, internal};
use super::stored_states::StoredStates;
use super::tensors::RunTensors;
use super::{Job, KEPT_TIMES, Observer, Run, Shards};
use crate::ranks::Ranks;
use crate::{PlannedRun, RunData, RunPrograms, TrainError};

impl<'a> Run<'a> {
    pub(super) fn start(
        job: Job,
        mut ranks: Ranks<'a>,
        budget: &Budget,
        observer: &mut dyn Observer,
    ) -> Result<Run<'a>, TrainError> {
        if job.planned.programs.place() != ranks.place() {
            let (planned, place) = (job.planned.programs.place(), ranks.place());
            return Err(internal(&format!("{place:?} has a plan of {planned:?}")).into());
        }
        if !ranks.is_first() {
            // The first rank has the folder then.
            ranks.meet()?;
            return Run::start_locked(job, ranks, None, budget, observer);
        }
        let folder = job.folder.clone();
        let io = |source| RunError::Io { path: folder.path().into(), source };
        let is_begun = folder.is_begun();
        if is_begun && !job.resume {
            return Err(RunError::Occupied { folder: folder.path().into() }.into());
        }
        // The memory of planning is freed before the run reserves any.
        let mut planning_peak = None;
        if job.siblings.is_none() {
            planning_peak = resident().ok().map(|resident| resident.peak);
            forget_heap_peak();
            forget_resident_peak();
        }
        let made =
            CreatedPaths::make(&folder, job.splits.as_ref().map(|(path, _)| path.as_path())).map_err(io)?;
        let lock = Lock::take(&folder)?;
        ranks.meet()?;
        let started = Run::start_locked(job, ranks, Some(lock), budget, observer).map(|mut run| {
            run.planning_peak = planning_peak;
            run
        });
        if started.is_err() && !is_begun {
            made.remove();
        }
        started
    }

    fn start_locked(
        job: Job,
        mut ranks: Ranks<'a>,
        lock: Option<Lock>,
        budget: &Budget,
        observer: &mut dyn Observer,
    ) -> Result<Run<'a>, TrainError> {
        let Job { planned, data, request, folder, splits, log_steps, siblings, warm, cache, notes, .. } = job;
        let Restored { engine, checkpoints, specification, mut progress, mut warnings } =
            restore(&planned, &folder, lock.as_ref(), request, budget, observer)?;
        let part_count = specification.config.training.loss.part_count();
        progress.epoch_parts.resize(part_count, (0.0, 0));
        let place_of_data = absolute_place(&data);
        let source = Source::open(data, &planned, &specification, cache.as_ref(), budget)?;
        let loader_budget = budget.part("loader", planned.numbers.loader_bytes)?;
        if warm {
            observer.loaded(&source.warm(&specification)?);
        }
        let loader = start_loader(&planned, &specification, &progress, &source, &loader_budget)?;
        let validation = validation_reader(&planned, &specification, &source, &loader_budget)?;
        let tensors = RunTensors::new(&planned)?;
        let shards = Shards::new(&planned.config.training, &planned.programs, budget)?;
        let identity = specification.identity()?;
        expect_equal(&mut ranks, identity, &progress)?;
        // All that can be refused has been taken; from here on there is a run.
        let (mut journal, mut events) = (None, None);
        if ranks.is_first() {
            if let Some((path, splits)) = splits.filter(|(path, _)| !path.exists()) {
                splits.write(path)?;
            }
            specification.write(&folder)?;
            journal = Some(open_journal(&folder, &specification, &progress, &mut warnings)?);
            let log = begin_events(&folder, &specification, identity, &progress, &planned, place_of_data)?;
            events = Some(record_changes(&specification, &folder, log, observer)?);
        }
        // Room for as many times as there can be steps, as long as that is not much.
        let steps = specification.config.schedule.total_steps.saturating_sub(progress.steps);
        let kept = steps.min(KEPT_TIMES as u64) as usize;
        let step_log =
            if log_steps && ranks.is_first() { Some(StepLog::open(&folder, progress.steps)?) } else { None };
        let mut run = Run {
            states: StoredStates::new(&planned),
            planned,
            ranks,
            siblings,
            cache,
            specification,
            identity,
            budget: budget.clone(),
            folder,
            engine,
            checkpoints,
            journal,
            events,
            step_log,
            source,
            loader: Some(loader),
            loader_budget,
            validation,
            progress,
            tensors,
            shards,
            ahead: AheadSteps::new(part_count),
            cases: Vec::new(),
            parts: vec![0.0; part_count],
            step_parts: vec![(0.0, 0); part_count],
            seconds: Vec::with_capacity(kept),
            computing: Vec::with_capacity(kept),
            waiting: Duration::ZERO,
            allocations: 0,
            planning_peak: None,
            evictions: 0,
            _lock: lock,
        };
        for warning in warnings {
            run.warn(warning, observer)?;
        }
        if run.ranks.is_first() {
            record_notes(notes, &mut run)?;
        }
        Ok(run)
    }

    /// The seed of training patches.
    pub(super) fn loader_seed(&self) -> u64 {
        loader_seed(&self.specification, &self.progress)
    }

    /// Starts the loader again where the run is now.
    pub(super) fn restart_loader(&mut self) -> Result<(), LoaderError> {
        // Its threads end, and its memory is given back, before the next one takes both.
        self.loader = None;
        let (planned, specification) = (&self.planned, &self.specification);
        let next = start_loader(planned, specification, &self.progress, &self.source, &self.loader_budget)?;
        self.loader = Some(next);
        Ok(())
    }
}

/// Checks that all ranks are about to train the same from the same step.
fn expect_equal(ranks: &mut Ranks<'_>, identity: Digest, progress: &Progress) -> Result<(), TrainError> {
    if ranks.is_alone() {
        return Ok(());
    }
    let text = serde_json::to_vec(progress).map_err(|error| internal(&error.to_string()))?;
    let own = [identity.0.to_le_bytes(), Digest::compute(&text).0.to_le_bytes()].concat();
    let all = ranks.all_gather(&own)?;
    let (names, half) = (["specification of the run", "checkpoint to resume from"], own.len() / 2);
    for (rank, other) in all.chunks_exact(own.len()).enumerate() {
        for (what, (own, other)) in
            names.into_iter().zip(all.chunks_exact(half).zip(other.chunks_exact(half)))
        {
            if own != other {
                return Err(TrainError::OtherRank { rank, what });
            }
        }
    }
    Ok(())
}

/// Opens the journal of epochs. If it misses some, that is a warning.
fn open_journal(
    folder: &FoldFolder,
    specification: &Specification,
    progress: &Progress,
    warnings: &mut Vec<String>,
) -> Result<Journal, RunError> {
    let per_epoch = specification.config.iterations_per_epoch;
    let journal = Journal::open(folder, progress.validated * per_epoch, per_epoch)?;
    if journal.misses_epochs() {
        let text = "it continues without them";
        warnings.push(format!("metrics.jsonl misses epochs up to step {}: {text}", progress.steps));
    }
    Ok(journal)
}

/// The absolute path of a data set, valid from any working folder.
fn absolute_place(data: &RunData) -> Option<PathBuf> {
    let place = match data {
        RunData::Volumes { dataset, .. } => dataset.place(),
        RunData::Images { place, .. } => place,
    };
    std::path::absolute(place).ok()
}

/// The reader of validation batches.
fn validation_reader(
    planned: &PlannedRun,
    specification: &Specification,
    source: &Source,
    budget: &Budget,
) -> Result<BatchReader, LoaderError> {
    BatchReader::new(
        source.samples(),
        Mode::Validation,
        specification.config.seed,
        specification.config.training.validation_batch(),
        planned.loader.scratch,
        budget,
    )
}

/// The state from which a run starts: new, or of its last checkpoint.
struct Restored {
    engine: Box<dyn Engine>,
    checkpoints: Checkpoints,
    specification: Specification,
    progress: Progress,
    warnings: Vec<String>,
}

/// Restores a fold from its last checkpoint, or initialises its parameters.
fn restore(
    planned: &PlannedRun,
    folder: &FoldFolder,
    lock: Option<&Lock>,
    request: FoldRequest,
    budget: &Budget,
    observer: &mut dyn Observer,
) -> Result<Restored, TrainError> {
    let mut warnings = Vec::new();
    if let Some(lock) = lock {
        let io = |source| RunError::Io { path: folder.path().into(), source };
        let swept = sweep(folder.path()).map_err(io)?;
        if !swept.is_empty() {
            warnings.push(format!("{} unfinished file(s) of a killed process were removed", swept.len()));
        }
        warnings.extend(lock.abandoned().map(abandoned_warning));
    }
    let known = if folder.is_begun() { Some(Specification::read(folder)?) } else { None };
    // Differences are reported before checkpoints are searched for tensors of other shapes.
    let continuation = known.as_ref().map(|known| known.compare(folder, &request)).transpose()?;
    let ahead = planned.numbers.device.as_ref().map_or(Bytes::ZERO, |device| device.ahead_bytes);
    let mut engine = open_engine_ahead(&*planned.backend, planned.plan.clone(), budget, ahead)?;
    let updating = planned.programs.updating();
    let net = planned.config.training.net.as_architecture();
    let stored = planned.programs.stored();
    let mut checkpoints = Checkpoints::with_stored(folder, &planned.programs[updating], stored, net, budget)?;
    let resumed = match &known {
        Some(known) => checkpoints.resume(known, &mut *engine, updating)?,
        None => None,
    };
    let is_resumed = resumed.is_some();
    let mut progress = Progress::default();
    if let Some(resumed) = resumed {
        for problem in &resumed.damaged {
            warnings.push(format!("{problem}; resuming from {}", resumed.path.display()));
        }
        progress = resumed.progress;
    }
    let specification = match continuation {
        Some(continuation) => {
            let (next, notes) = continuation.from_step(progress.steps)?;
            warnings.extend(notes);
            next
        }
        None => request.specification,
    };
    specification.adapt(&mut progress);
    if let Some(last) = specification.amendments.last().filter(|last| last.steps > progress.steps) {
        warnings.push(format!(
            "steps {} to {} are run again, with the settings of step {} and later",
            progress.steps, last.steps, last.steps
        ));
    }
    if !is_resumed {
        expect_none_was_written(folder)?;
        let loaded = initialise(&mut *engine, planned, &specification, &mut checkpoints)?;
        if let Some(loaded) = loaded {
            for tensor in loaded.lines() {
                observer.loaded(&tensor);
            }
        }
    }
    Ok(Restored { engine, checkpoints, specification, progress, warnings })
}

/// Opens the log of events, and records the start and the plan of this process.
fn begin_events(
    folder: &FoldFolder,
    specification: &Specification,
    identity: Digest,
    progress: &Progress,
    planned: &PlannedRun,
    dataset: Option<PathBuf>,
) -> Result<EventLog, RunError> {
    let numbers = &planned.numbers;
    let mut events = EventLog::open(folder)?;
    events.say(Event::Start {
        by: Holder::this_process(),
        version: env!("CARGO_PKG_VERSION").into(),
        specification: identity,
        steps: progress.steps,
        of: specification.config.schedule.total_steps,
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        dataset,
    })?;
    events.say(Event::Plan {
        limit: numbers.ram_budget_bytes,
        planned: numbers.total_bytes,
        device: numbers.device.as_ref().map(|device| [device.vram_budget_bytes, device.total_bytes]),
        seconds_per_step: numbers.predicted_seconds_per_step,
    })?;
    Ok(events)
}

/// The seed of training patches. After a return to a checkpoint it changes, because the same patches would fail again.
fn loader_seed(specification: &Specification, progress: &Progress) -> u64 {
    let seed = specification.config.seed;
    match progress.rollbacks {
        0 => seed,
        rollbacks => Digest::compute(&[seed.to_le_bytes(), rollbacks.to_le_bytes()].concat()).0,
    }
}

fn start_loader(
    planned: &PlannedRun,
    specification: &Specification,
    progress: &Progress,
    source: &Source,
    budget: &Budget,
) -> Result<Loader, LoaderError> {
    let seed = loader_seed(specification, progress);
    let config = LoaderConfig { first_step: progress.steps, seed, ..planned.loader };
    Loader::start(config, source.samples(), budget)
}

/// A warning about the last process of a fold, which did not end in order, with a probable cause.
fn abandoned_warning(by: &Holder) -> String {
    let killed = match by.kills_since() {
        Some(kills @ 1..) => format!(
            "; the kernel has killed {kills} process(es) of its control group for memory since it began, so it was probably one \
             of them"
        ),
        _ => String::new(),
    };
    format!("continued from {by}, which ended without an error message{killed}")
}

/// Checks that no checkpoint was written before: otherwise the run must not begin anew.
fn expect_none_was_written(folder: &FoldFolder) -> Result<(), RunError> {
    let mut saved = None;
    each_event(folder, |timed| {
        if let Event::Checkpoint { kind: CheckpointKind::Latest, steps, .. } = timed.event {
            saved = Some(steps);
        }
    })?;
    match saved {
        Some(steps) => Err(RunError::LostCheckpoints { folder: folder.path().into(), steps }),
        None => Ok(()),
    }
}

/// Writes down notes about the data that no process has written down yet: each call that resumes a run finds them again.
fn record_notes(mut notes: Vec<String>, run: &mut Run<'_>) -> Result<(), RunError> {
    each_event(&run.folder, |timed| {
        if let Event::Warning { what } = timed.event {
            notes.retain(|note| *note != what);
        }
    })?;
    notes.into_iter().try_for_each(|what| run.say(Event::Warning { what }))
}

/// Writes down the changes that no process has written down yet: one may have been killed just after it had made them.
fn record_changes(
    specification: &Specification,
    folder: &FoldFolder,
    mut events: EventLog,
    observer: &mut dyn Observer,
) -> Result<EventLog, RunError> {
    if specification.amendments.is_empty() {
        return Ok(events);
    }
    let mut recorded = 0;
    each_event(folder, |timed| recorded += usize::from(matches!(timed.event, Event::Change { .. })))?;
    for amendment in specification.amendments.iter().skip(recorded) {
        let (steps, what) = (amendment.steps, amendment.to_string());
        observer.loaded(&format!("changed from step {steps} on: {what}"));
        events.say(Event::Change { steps, what, changes: amendment.changes.clone() })?;
    }
    Ok(events)
}

/// The files and folders that a start creates, to be removed if it fails.
struct CreatedPaths {
    files: Vec<PathBuf>,
    /// The innermost first.
    folders: Vec<PathBuf>,
}

impl CreatedPaths {
    /// Makes the folder of a fold. Of the run, `splits` may be made later.
    fn make(folder: &FoldFolder, splits: Option<&Path>) -> std::io::Result<CreatedPaths> {
        let of_fold =
            [folder.lock(), folder.events(), folder.metrics(), folder.specification(), folder.steps()];
        let is_new = |path: &PathBuf| !path.as_os_str().is_empty() && !path.exists();
        let files = of_fold.into_iter().chain(splits.map(PathBuf::from)).filter(is_new).collect();
        let folders = folder.path().ancestors().map(PathBuf::from).take_while(is_new).collect();
        let made = CreatedPaths { files, folders };
        if let Err(error) = plimsoll_disk::create_dir_all(folder.path()) {
            made.remove();
            return Err(error);
        }
        Ok(made)
    }

    /// A path that cannot be removed stays: the first error is the one to report.
    fn remove(&self) {
        for file in &self.files {
            let _ = plimsoll_disk::remove_file(file);
        }
        for folder in &self.folders {
            let _ = plimsoll_disk::remove_folder(folder);
        }
    }
}

/// Writes initial values of all that a run keeps: parameters from a file or at random, moments zero, averages as parameters.
/// Returns what was taken from a file.
pub(super) fn initialise(
    engine: &mut dyn Engine,
    planned: &PlannedRun,
    specification: &Specification,
    checkpoints: &mut Checkpoints,
) -> Result<Option<StartTable>, TrainError> {
    let programs: &RunPrograms = &planned.programs;
    let config = &specification.config;
    let updating = programs.updating();
    for id in programs[updating].with_role(Role::State) {
        let zeros = &mut checkpoints.buffer()[..programs[updating].shape(id).count()];
        zeros.fill(0.0);
        engine.write(updating, id, HostSlice::F32(zeros))?;
    }
    let fullest = programs.fullest();
    for id in programs[fullest].with_role(Role::Parameter) {
        let parameter = programs[fullest].tensor(id);
        let values = checkpoints.buffer().get_mut(..parameter.shape.count());
        let values = values
            .ok_or_else(|| EngineError::Internal(format!("checkpoints leave out {}", parameter.name)))?;
        config.training.net.initialise(parameter, config.seed, values);
        engine.write(fullest, id, HostSlice::F32(values))?;
    }
    let mut loaded = None;
    specification.initial.check()?;
    if let InitialWeights::File { path, rule, .. } = &specification.initial {
        let program = NumberedProgram { number: fullest, program: &programs[fullest] };
        let net = config.training.net.as_architecture();
        loaded = Some(checkpoints.read_start(path, rule, net, engine, program)?);
    }
    start_averages(engine, updating, &programs[updating], checkpoints.buffer())?;
    Ok(loaded)
}
