//! Training folds of a run, one after the other or several at the same time.

mod check;
mod launched;
#[cfg(unix)]
mod link;
mod node_limit;
mod prepare;
mod ranks;
mod request;
mod settle;
mod submit;
mod together;

use plimsoll_disk::atomic::sweep;
use plimsoll_metrics::{CrossValidation, Missing, Summary};
use plimsoll_run::{FoldFolder, FoldName, RunRecord, Specification, StopReason};
use plimsoll_train::{Job, RunData, train as train_fold};
use serde::Serialize;

pub(super) use self::check::Checked;
use self::check::{FoldToTrain, no_fold};
pub use self::launched::{mpi_libraries, rank_cores, rank_watch};
#[cfg(unix)]
pub use self::link::{LinkFailure, LinkOptions, LinkedRanks, Transport, link_ranks};
pub(super) use self::prepare::{Prepared, prepare_part};
use self::prepare::{class_warnings, fold_request, prepare};
pub use self::ranks::{RankResult, RankTraining, train_rank};
pub use self::request::{FoldChoice, TrainRequest};
pub use self::submit::{Nodes, SubmissionFile, write_submissions};
pub use self::together::train_together;
use super::listed::Listed;
use super::plan::Opened;
use super::validate::{ValidateRequest, cross_validate, summary_of};
use super::validate_images::ImageValidation;
use super::validating_ranks::ValidatingRanks;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::events::Event;
use crate::folds_at_once::AtOnce;
use crate::monitors::Monitors;
use crate::watcher::Watcher;

/// The result of one fold.
#[derive(Serialize)]
pub struct TrainedFold {
    /// The name of the fold.
    pub fold: FoldName,
    /// The record of its training.
    #[serde(flatten)]
    pub record: RunRecord,
    /// The scores of its validation cases, predicted whole.
    pub validation: Option<Summary>,
}

/// The result of a training.
#[derive(Serialize)]
pub struct Trained {
    /// The folds.
    pub folds: Vec<TrainedFold>,
    /// The scores over all validated folds of the run.
    pub scores: Option<CrossValidation>,
    /// The memory of folds that trained at the same time.
    pub at_once: Option<AtOnce>,
    /// `true` if the training was stopped before its end.
    pub is_stopped: bool,
}

/// Trains and validates folds until all are done or the context's stop token asks for an end. Finished steps are not repeated. Folds that
/// train at the same time are validated one after the other, each with the whole memory limit.
///
/// # Errors
/// Returns an error if the request is impossible, does not fit the memory limit, or a file cannot be read or written.
pub fn train(request: &TrainRequest, context: &Context) -> Outcome<Trained> {
    let (checked, mut opened) = open(request, context)?;
    train_opened(request, checked, &mut opened, context)
}

/// Refuses a convention for missing scores if the data set is one of classifiers, which have no missing scores.
pub(super) fn expect_missing_is_used(listed: &Listed, missing: Missing) -> Outcome {
    match listed {
        Listed::Images { .. } if missing != Missing::default() => Err(Error::new(
            format!(
                "‹missing={}› applies to label maps, but this data set has images with classes",
                missing.name()
            ),
            "leave it out",
        )),
        _ => Ok(()),
    }
}

/// Checks a request and inspects its data set.
fn open(request: &TrainRequest, context: &Context) -> Outcome<(Checked, Opened)> {
    let memory = request.plan.set_limit(context)?;
    let listed = request.plan.open_dataset(&memory, context)?;
    listed.folder_use().expect_in(request.run.path())?;
    let checked = request.check(&listed, &memory.budget, context)?;
    expect_missing_is_used(&listed, request.missing)?;
    Ok((checked, request.plan.inspect(listed, memory, context)?))
}

/// Trains and validates folds of a data set that is open.
pub(super) fn train_opened(
    request: &TrainRequest,
    checked: Checked,
    opened: &mut Opened,
    context: &Context,
) -> Outcome<Trained> {
    let prepared = prepare(request, checked, opened, context)?;
    begin(request, &prepared, opened, context)?;
    let Prepared { folds, at_once, .. } = &prepared;
    let mut trained =
        Trained { folds: Vec::new(), scores: None, at_once: at_once.clone(), is_stopped: false };
    let monitors = request.monitoring.open(&request.run);
    let group = trained.at_once.as_ref().map_or(1, |at_once| at_once.folds);
    for some in folds.chunks(group) {
        let siblings = trained.at_once.as_ref().map(AtOnce::siblings);
        let jobs = some.iter().map(|fold| prepared.job(request, opened, fold, siblings));
        let jobs = jobs.collect::<Outcome<Vec<Job>>>()?;
        context.keep_results();
        let records = match &mut trained.at_once {
            Some(at_once) => at_once.train(jobs, &mut opened.memory, &monitors, context)?,
            None => {
                let alone = jobs.into_iter().map(|job| train_alone(job, opened, &monitors, context));
                alone.collect::<Outcome<_>>()?
            }
        };
        trained.is_stopped |= records.iter().any(|record| record.ended == StopReason::Signal);
        for (fold, record) in some.iter().zip(records) {
            let mut alone = plimsoll_ranks::alone();
            let mut ranks = ValidatingRanks::new(&mut alone, &context.stop);
            validate_fold(request, opened, fold, record, &mut trained, &mut ranks, context)?;
        }
        if trained.is_stopped {
            return Ok(trained);
        }
    }
    trained.scores = cross_validate(&request.run, request.missing)?;
    Ok(trained)
}

/// Validates a trained fold, as the request says and unless it was stopped before, and adds it to the result.
fn validate_fold(
    request: &TrainRequest,
    opened: &mut Opened,
    FoldToTrain { folder, .. }: &FoldToTrain,
    record: RunRecord,
    trained: &mut Trained,
    ranks: &mut ValidatingRanks<'_>,
    context: &Context,
) -> Outcome {
    let mut validation = None;
    let is_validated = request.validate && is_validated(folder.name());
    if is_validated && !trained.is_stopped {
        match validate(request, opened, folder, &record, ranks, context)? {
            Validated::Volumes(summary) => validation = Some(summary),
            Validated::Images | Validated::Elsewhere => {}
            Validated::Stopped => trained.is_stopped = true,
        }
    }
    trained.folds.push(TrainedFold { fold: folder.name(), record, validation });
    Ok(())
}

/// Reports a planned training, checks that it fits, and prepares the folder of its run.
fn begin(request: &TrainRequest, prepared: &Prepared, opened: &Opened, context: &Context) -> Outcome {
    let Prepared { folds, splits, replaces_splits, planned, at_once, .. } = prepared;
    context.emit(&Event::Planned { planned, at_once: at_once.as_ref() });
    if let Some(table) = &planned.numbers.start {
        context.emit(&Event::Started { table });
    }
    for FoldToTrain { folder, cases, .. } in folds {
        for warning in class_warnings(&opened.data, &planned.config.task, folder.name(), cases) {
            context.warn(warning);
        }
    }
    planned.numbers.check()?;
    if request.run.path().is_dir() {
        // Removes unfinished files of killed processes; files of running processes are locked.
        sweep(request.run.path()).map_err(|error| Error::at_path(request.run.path(), &error))?;
    }
    let is_due = at_once.is_some() && !request.run.splits().exists();
    if let Some(splits) = splits.as_ref().filter(|_| is_due || *replaces_splits) {
        // Any of several folds could otherwise be the first to write them.
        let made = plimsoll_disk::create_dir_all(request.run.path());
        made.map_err(|error| Error::at_path(request.run.path(), &error))?;
        splits.write(request.run.splits())?;
    }
    Ok(())
}

/// The result of validating a fold.
#[expect(clippy::large_enum_variant, reason = "one is made for each fold")]
pub(super) enum Validated {
    /// The scores of the predicted label maps.
    Volumes(Summary),
    /// The table of probabilities is written.
    Images,
    /// All is done, and the first rank has the result.
    Elsewhere,
    /// The validation was stopped.
    Stopped,
}

/// Returns `true` if a fold has validation cases of its own. Fold `all` validates with its training cases.
pub(super) fn is_validated(fold: FoldName) -> bool {
    fold != FoldName::All
}

/// Returns `true` if the validation cases of a fold are predicted.
pub(super) fn has_validation(opened: &Opened, folder: &FoldFolder) -> bool {
    match opened.data {
        RunData::Volumes { .. } => summary_of(folder).is_file(),
        RunData::Images { .. } => folder.image_predictions().is_file(),
    }
}

/// Predicts the validation cases of a trained fold within the whole memory limit, and scores label maps.
pub(super) fn validate(
    request: &TrainRequest,
    opened: &mut Opened,
    folder: &FoldFolder,
    record: &RunRecord,
    ranks: &mut ValidatingRanks<'_>,
    context: &Context,
) -> Outcome<Validated> {
    let (backend, threads) = (&request.plan.backend, request.plan.threads);
    match &opened.data {
        RunData::Volumes { dataset, .. } => {
            let tensorboard = request.monitoring.tensorboard;
            let missing = request.missing;
            let fold = ValidateRequest { folder, record, dataset, backend, threads, missing, tensorboard };
            fold.run(&mut opened.memory, ranks, context)
        }
        RunData::Images { dataset, .. } => {
            let fold = ImageValidation { folder, record, images: dataset, backend, threads };
            fold.run(&mut opened.memory, ranks, context)
        }
    }
}

/// Trains one fold within the whole memory limit.
pub(super) fn train_alone(
    job: Job,
    opened: &Opened,
    monitors: &Monitors,
    context: &Context,
) -> Outcome<RunRecord> {
    let mut watcher = Watcher::new(&job.folder, &job.planned, monitors, context);
    let record = train_fold(job, &opened.memory.budget, context.stop.flag(), &mut watcher)?;
    Ok(record)
}

/// Returns the specification of the first requested fold without training it.
pub fn describe(request: &TrainRequest, context: &Context) -> Outcome<Specification> {
    let (checked, mut opened) = open(request, context)?;
    describe_opened(request, checked, &mut opened, context)
}

/// Returns the specification of the first requested fold of an open data set.
pub(super) fn describe_opened(
    request: &TrainRequest,
    checked: Checked,
    opened: &mut Opened,
    context: &Context,
) -> Outcome<Specification> {
    let Prepared { folds, initial, planned, .. } = prepare(request, checked, opened, context)?;
    let first = folds.first().ok_or_else(no_fold)?;
    Ok(fold_request(request, opened, &planned, first, &initial)?.specification)
}
