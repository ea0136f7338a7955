//! The trials of a sweep, one after the other or at the same time, and their results.
//!
//! The state of a trial follows from its folder alone. A killed process therefore leaves nothing to repair, and several processes can work
//! on one sweep: a trial that another process trains is locked.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::SystemTime;

use plimsoll_disk::atomic::sweep as sweep_unfinished;
use plimsoll_metrics::{CaseCounts, Metric};
use plimsoll_run::{
    FoldState, RunFolder, RunRecord, Status, StopReason, Trial, TrialFailure, holder, write_json,
};
use serde::Serialize;

use super::Sweep;
use super::planning::PlannedArm;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::events::Event;
use crate::jobs::train::{
    Prepared, TrainRequest, has_validation, is_validated, prepare_part, train_alone, validate,
};
use crate::jobs::validate::{cross_validate, read_summary};
use crate::jobs::validating_ranks::ValidatingRanks;

/// The report of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct TrialReport {
    #[serde(flatten)]
    /// The trial.
    pub trial: Trial,
    /// Its folder.
    pub folder: PathBuf,
    #[serde(flatten)]
    /// The state of the trial.
    pub state: TrialState,
}

/// The state of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TrialState {
    /// It is trained, and validated if that was requested.
    Finished {
        /// The mean over its validation cases and classes; `None` if they were not predicted whole.
        mean_dice: Option<f64>,
        /// The cases and classes behind it.
        cases: CaseCounts,
    },
    /// It failed when it was last tried.
    Failed {
        /// The error in one line.
        error: String,
        /// The remedy as a text.
        hint: String,
    },
    /// Another process trains it.
    Elsewhere {
        /// Which.
        by: String,
    },
    /// It was begun, and can be gone on with.
    Begun,
    /// It was not begun.
    Waiting,
}

impl TrialState {
    /// The mean Dice of a trial that is finished and validated.
    pub fn mean_dice(&self) -> Option<f64> {
        match self {
            TrialState::Finished { mean_dice, .. } => *mean_dice,
            _ => None,
        }
    }

    /// The cases and classes behind the mean Dice.
    pub fn cases(&self) -> CaseCounts {
        match self {
            TrialState::Finished { cases, .. } => *cases,
            _ => CaseCounts::default(),
        }
    }

    /// Returns `true` if the trial is unfinished and has not failed.
    pub fn is_left(&self) -> bool {
        matches!(self, TrialState::Elsewhere { .. } | TrialState::Begun | TrialState::Waiting)
    }
}

impl Sweep<'_> {
    /// Trains and validates all requested trials that are not done, until the stop token asks for an end. A failed trial is recorded, and
    /// the others continue.
    pub fn run(&mut self, context: &Context) -> Outcome<Vec<TrialReport>> {
        let asked = self.asked_trials();
        let (done, todo): (Vec<Trial>, Vec<Trial>) =
            asked.iter().cloned().partition(|trial| self.is_done(trial));
        for trial in &done {
            // Another process may have come to its end.
            self.forget_failure(trial)?;
        }
        if !done.is_empty() {
            context.note(format_args!("{} of {} trials are already finished", done.len(), asked.len()));
        }
        match self.job.parallel {
            1 => self.one_by_one(&todo, context)?,
            _ => {
                let trained = self.side_by_side(&todo, context)?;
                for (trial, record) in trained {
                    let validated = self.validate_trained(&trial, &record, context);
                    self.conclude(&trial, validated, context)?;
                }
            }
        }
        self.score(&asked)?;
        asked.iter().map(|trial| self.report_of(trial)).collect()
    }

    fn one_by_one(&mut self, todo: &[Trial], context: &Context) -> Outcome {
        for (number, trial) in todo.iter().enumerate() {
            if context.stop.is_asked() {
                break;
            }
            if self.is_elsewhere(trial).is_some() {
                continue;
            }
            let title = format!("{trial}: trial {} of {}", number + 1, todo.len());
            context.emit(&Event::Part { title: &title });
            let went = self.train_and_validate(trial, context);
            self.conclude(trial, went, context)?;
        }
        Ok(())
    }

    /// Trains and validates a trial with the whole machine.
    pub(super) fn train_and_validate(&mut self, trial: &Trial, context: &Context) -> Outcome {
        let (request, prepared) = self.prepare(trial, 1)?;
        let job = prepared.trial(&request, &self.opened, None)?;
        drop(prepared);
        context.keep_results();
        let monitors = request.monitoring.open(&request.run);
        let record = train_alone(job, &self.opened, &monitors, context)?;
        self.validate(&request, trial, &record, context)
    }

    /// Plans a trial for one of `parts` parts of the machine.
    pub(super) fn prepare(&mut self, trial: &Trial, parts: usize) -> Outcome<(TrainRequest, Prepared)> {
        self.state.expect_unchanged(&self.opened.data)?;
        let PlannedArm { asked, resolved, .. } = self.arm(trial).ok_or_else(|| no_arm(trial))?;
        let (request, checked) = self.request(asked, Some(resolved.clone()), trial)?;
        let prepared = prepare_part(&request, checked, &mut self.opened, parts)?;
        prepared.planned.numbers.check()?;
        sweep_run(&request.run)?;
        Ok((request, prepared))
    }

    /// Validates a trial that was trained side by side with others: with the whole limit, so that labels do not depend on these.
    fn validate_trained(&mut self, trial: &Trial, record: &RunRecord, context: &Context) -> Outcome {
        let PlannedArm { asked, resolved, .. } = self.arm(trial).ok_or_else(|| no_arm(trial))?;
        let (request, _) = self.request(asked, Some(resolved.clone()), trial)?;
        self.validate(&request, trial, record, context)
    }

    fn validate(
        &mut self,
        request: &TrainRequest,
        trial: &Trial,
        record: &RunRecord,
        context: &Context,
    ) -> Outcome {
        let is_asked = self.job.validate && is_validated(trial.fold);
        if is_asked && record.ended != StopReason::Signal && !context.stop.is_asked() {
            // If it is stopped here, the next process predicts the rest.
            let fold = self.fold(trial);
            let mut alone = plimsoll_ranks::alone();
            let mut ranks = ValidatingRanks::new(&mut alone, &context.stop);
            validate(request, &mut self.opened, &fold, record, &mut ranks, context)?;
        }
        Ok(())
    }

    /// Writes down that a trial failed, or that it no longer does. One that another process has begun meanwhile is that one's.
    pub(super) fn conclude(&self, trial: &Trial, went: Outcome, context: &Context) -> Outcome {
        let Err(failure) = went else { return self.forget_failure(trial) };
        let path = self.job.folder.failure(trial);
        if self.is_elsewhere(trial).is_some() {
            return Ok(());
        }
        context.warn(format_args!("{trial} failed: {}", failure.line()));
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let failed = TrialFailure { time, error: failure.line(), hint: failure.remedy().clone().into() };
        if let Some(run) = path.parent() {
            plimsoll_disk::create_dir_all(run).map_err(|error| Error::at_path(run, &error))?;
        }
        Ok(write_json(&path, &failed)?)
    }

    fn forget_failure(&self, trial: &Trial) -> Outcome {
        let path = self.job.folder.failure(trial);
        if !path.is_file() {
            return Ok(());
        }
        match plimsoll_disk::remove_file(&path) {
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| Error::at_path(&path, &error)),
        }
    }

    /// Writes the scores over folds of each run of the requested trials.
    fn score(&self, asked: &[Trial]) -> Outcome {
        let mut runs: Vec<RunFolder> = Vec::new();
        for trial in asked {
            let run = self.job.folder.run(&trial.arm, trial.seed);
            if !runs.contains(&run) {
                sweep_run(&run)?;
                cross_validate(&run, self.job.missing)?;
                runs.push(run);
            }
        }
        Ok(())
    }

    /// Returns `true` if a trial is done.
    fn is_done(&self, trial: &Trial) -> bool {
        let fold = self.fold(trial);
        let is_trained = |status: Status| {
            matches!(status.state, FoldState::Ended { why: StopReason::Finished | StopReason::Early, .. })
        };
        let is_validated = || {
            let is_asked = self.job.validate && is_validated(trial.fold);
            !is_asked || has_validation(&self.opened, &fold)
        };
        // Faults of a trial's folder are reported when the trial is resumed.
        fold.is_begun() && Status::read(&fold).is_ok_and(is_trained) && is_validated()
    }

    /// The process that trains a trial now, if another one does.
    pub(super) fn is_elsewhere(&self, trial: &Trial) -> Option<String> {
        let (by, has_it) = holder(&self.fold(trial))?;
        has_it.then(|| by.to_string())
    }

    fn report_of(&self, trial: &Trial) -> Outcome<TrialReport> {
        let fold = self.fold(trial);
        let state = if self.is_done(trial) {
            let summary = read_summary(&fold)?;
            let mean = summary.map(|summary| summary.mean_of(None, Metric::Dice)).unwrap_or_default();
            TrialState::Finished { mean_dice: mean.value, cases: mean.cases }
        } else if let Some(by) = self.is_elsewhere(trial) {
            TrialState::Elsewhere { by }
        } else if let Some(TrialFailure { error, hint, .. }) = self.job.folder.read_failure(trial)? {
            TrialState::Failed { error, hint }
        } else if fold.is_begun() {
            TrialState::Begun
        } else {
            TrialState::Waiting
        };
        Ok(TrialReport { trial: trial.clone(), folder: fold.path().into(), state })
    }
}

/// Removes what a killed process left unfinished in the folder of a run; what another one writes is locked.
fn sweep_run(run: &RunFolder) -> Outcome {
    match run.path().is_dir() {
        true => sweep_unfinished(run.path()).map(drop).map_err(|error| Error::at_path(run.path(), &error)),
        false => Ok(()),
    }
}

pub(super) fn no_arm(trial: &Trial) -> Error {
    Error::new(
        format!("{trial} belongs to an arm that is not planned"),
        "this is a bug: report it with the command and this message",
    )
}
