//! One training by several processes.

use std::time::Duration;

use plimsoll_nn::RankPlace;
use plimsoll_ranks::{Communicator, RanksError, Segment};
use plimsoll_run::{EpochCost, EpochRecord, RunConfig, RunRecord, Sample, Specification, StopReason};
use plimsoll_train::{Observer, RankedRun, StepReport, train_rank as train_fold_of_rank};
use serde_json::Value;

use super::check::{FoldToTrain, no_fold};
use super::node_limit::limit_of_rank;
use super::prepare::{Prepared, prepare, prepare_like};
use super::request::{FoldChoice, TrainRequest};
use super::{Trained, begin, open, validate_fold};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::plan::Opened;
use crate::jobs::validate::cross_validate;
use crate::jobs::validating_ranks::ValidatingRanks;
use crate::watcher::Watcher;

/// The longest wait while one rank inspects the data set or plans, and the others do nothing.
const PREPARING: Duration = Duration::from_secs(24 * 3600);
/// The number of steps that another rank may be late.
const LATE_STEPS: f64 = 10.0;

/// A fold that ranks have trained, not yet validated.
pub struct RankTraining {
    request: TrainRequest,
    opened: Opened,
    is_stopped: bool,
    /// The fold with its record; `None` if the first rank reports an error that all ranks have.
    trained: Option<(FoldToTrain, RunRecord)>,
}

/// Trains a fold as one of several ranks, which all call this with the same request. The first rank inspects the data set, plans and writes
/// the run. `patience` is the longest wait for another rank, unless steps take longer.
///
/// # Errors
/// Returns the errors of [`train`](super::train), and an error if ranks differ or communication fails. The other ranks wait then: report the
/// error, and [abort](Communicator::abort).
pub fn train_rank(
    request: &TrainRequest,
    communicator: &mut dyn Communicator,
    patience: Duration,
    context: &Context,
) -> Outcome<RankTraining> {
    let place = RankPlace { rank: communicator.rank(), ranks: communicator.size() };
    let is_first = place.rank == 0;
    communicator.set_patience(PREPARING);
    let mut request = request.clone();
    if !fold_has_begun(&request)? {
        request.plan.settings.shards.get_or_insert(place.ranks);
    }
    request.plan.ram = limit_of_rank(request.plan.ram, communicator, context)?;
    // The others find what the first has inspected.
    if !is_first {
        communicator.barrier()?;
    }
    let (checked, mut opened) = open(&request, context)?;
    opened.place = place;
    opened.memory.hold_messages(place.ranks)?;
    if is_first {
        communicator.barrier()?;
    }
    let prepared = match is_first {
        true => {
            let prepared = prepare(&request, checked, &mut opened, context)?;
            begin(&request, &prepared, &opened, context)?;
            let config = serde_json::to_vec(&prepared.planned.config).map_err(unwritten)?;
            broadcast(communicator, &config)?;
            prepared
        }
        false => {
            let config = broadcast(communicator, &[])?;
            let config =
                serde_json::from_slice::<Value>(&config).and_then(serde_json::from_value::<RunConfig>);
            let mut config = config.map_err(unwritten)?;
            config.restore();
            let prepared = prepare_like(&request, checked, &mut opened, &config, context)?;
            prepared.planned.numbers.check()?;
            prepared
        }
    };
    let fold = prepared.folds.first().ok_or_else(no_fold)?.clone();
    let record = train_prepared(&request, &prepared, &fold, &opened, communicator, patience, context)?;
    let is_stopped = record.as_ref().is_some_and(|record| record.ended == StopReason::Signal);
    let trained = record.map(|record| (fold, record));
    Ok(RankTraining { request, opened, is_stopped, trained })
}

/// Trains a planned fold. Returns `None` if the first rank reports an error that all ranks have.
fn train_prepared(
    request: &TrainRequest,
    prepared: &Prepared,
    fold: &FoldToTrain,
    opened: &Opened,
    communicator: &mut dyn Communicator,
    patience: Duration,
    context: &Context,
) -> Outcome<Option<RunRecord>> {
    let job = prepared.job(request, opened, fold, None)?;
    // The first rank locks the folder only when no other looks for locks any more.
    communicator.barrier()?;
    context.keep_results();
    let predicted = prepared.planned.numbers.predicted_seconds_per_step;
    let late = Duration::try_from_secs_f64(LATE_STEPS * predicted).unwrap_or(patience);
    let is_first = communicator.rank() == 0;
    let ranked = RankedRun { communicator: &mut *communicator, patience: Some(patience.max(late)) };
    let (budget, stop) = (&opened.memory.budget, context.stop.flag());
    let result = match is_first {
        true => {
            let monitors = request.monitoring.open(&request.run);
            let mut watcher = Watcher::new(&job.folder, &job.planned, &monitors, context);
            train_fold_of_rank(job, ranked, budget, stop, &mut watcher)
        }
        false => train_fold_of_rank(job, ranked, budget, stop, &mut Unwatched),
    };
    match result {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.is_of_all_ranks() => {
            // The first rank saves the state meanwhile.
            communicator.barrier()?;
            if is_first { Err(error.into()) } else { Ok(None) }
        }
        Err(error) => Err(error.into()),
    }
}

/// The result of a rank.
pub struct RankResult {
    /// The result of the training; `None` on other ranks than the first.
    pub trained: Option<Trained>,
    /// `true` on all ranks if the training or the validation was stopped before its end.
    pub is_stopped: bool,
}

impl RankTraining {
    /// Returns `true` if the ranks were asked to stop, and have written a checkpoint.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns `true` if the training has failed with an error of all ranks, which the first reports.
    pub fn has_failed(&self) -> bool {
        self.trained.is_none()
    }

    /// Predicts and scores the validation cases of the fold, as the request says. Each rank computes a part of the cases, and the first has
    /// the result. All ranks call this.
    ///
    /// # Errors
    /// Returns the errors of [`train`](super::train), and an error if communication fails. The other ranks wait then: report the error, and
    /// [abort](Communicator::abort).
    pub fn validate(self, communicator: &mut dyn Communicator, context: &Context) -> Outcome<RankResult> {
        let RankTraining { request, mut opened, is_stopped, trained } = self;
        let Some((fold, record)) = trained else { return Ok(RankResult { trained: None, is_stopped }) };
        let is_first = communicator.rank() == 0;
        let mut ranks = ValidatingRanks::new(communicator, &context.stop);
        let mut trained = Trained { folds: Vec::new(), scores: None, at_once: None, is_stopped };
        validate_fold(&request, &mut opened, &fold, record, &mut trained, &mut ranks, context)?;
        if !trained.is_stopped && is_first {
            trained.scores = cross_validate(&request.run, request.missing)?;
        }
        let is_stopped = trained.is_stopped;
        Ok(RankResult { trained: is_first.then_some(trained), is_stopped })
    }
}

/// Returns `true` if the requested fold has begun. A request of several ranks has one fold.
fn fold_has_begun(request: &TrainRequest) -> Outcome<bool> {
    match &request.folds {
        FoldChoice::Named(names) if names.len() == 1 && request.parallel == 1 => {
            Ok(names.iter().all(|name| request.run.fold(*name).is_begun()))
        }
        _ => Err(Error::new(
            "several ranks train one fold, but the request has several",
            "start a command for each fold, like ‹fold=0›",
        )),
    }
}

/// Passes the bytes of the first rank to all ranks.
fn broadcast(communicator: &mut dyn Communicator, bytes: &[u8]) -> Result<Vec<u8>, RanksError> {
    let length = Segment::copy_of(&(bytes.len() as u64).to_le_bytes());
    let length = communicator.broadcast(0, length)?;
    let mut word = [0; size_of::<u64>()];
    word.copy_from_slice(length.bytes());
    // The length of a configuration that the first rank has in memory.
    let mut all = Segment::zeroed(u64::from_le_bytes(word) as usize);
    if communicator.rank() == 0 {
        all.bytes_mut().copy_from_slice(bytes);
    }
    Ok(communicator.broadcast(0, all)?.bytes().to_vec())
}

fn unwritten(error: serde_json::Error) -> Error {
    Error::new(format!("ranks cannot exchange the configuration: {error}"), "use one version on all nodes")
}

/// The observer of a rank that reports nothing but errors.
struct Unwatched;

impl Observer for Unwatched {
    fn begin(&mut self, _: &Specification, _: u64, _: &str) {}

    fn loaded(&mut self, _: &str) {}

    fn step(&mut self, _: &StepReport) {}

    fn validating(&mut self, _: u64, _: u64) {}

    fn epoch(&mut self, _: &EpochRecord, _: &EpochCost) {}

    fn sample(&mut self, _: &Sample) {}

    fn saving(&mut self) {}

    fn warning(&mut self, _: &str) {}
}
