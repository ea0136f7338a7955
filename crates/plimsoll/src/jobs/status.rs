//! The state of runs, from their files alone.

use std::path::PathBuf;

use plimsoll_report::live::folds_in;
use plimsoll_run::{Status, SweepFolder, Trial, TrialFailure};
use serde::Serialize;

use crate::error::Outcome;

/// The state of a fold of a run.
#[derive(Serialize)]
pub struct FoldStatus {
    /// The folder of the fold.
    pub folder: PathBuf,
    /// Its state.
    #[serde(flatten)]
    pub status: Status,
}

/// A trial of a sweep that was not begun, or failed.
#[derive(Serialize)]
pub struct OpenTrial {
    /// The folder of its fold.
    pub folder: PathBuf,
    /// The trial.
    #[serde(flatten)]
    pub trial: Trial,
    /// The last failure; `None` if the trial has not begun.
    pub failure: Option<TrialFailure>,
}

/// The state of runs and sweeps.
#[derive(Serialize)]
pub struct RunStatus {
    /// Folds that are begun.
    pub folds: Vec<FoldStatus>,
    /// Trials that are not begun, or failed.
    pub open: Vec<OpenTrial>,
}

/// Reads the state of runs, of folds of runs, or of sweeps.
///
/// # Errors
/// Returns an error if a folder holds none of these, or a file cannot be read.
pub fn status(runs: &[PathBuf]) -> Outcome<RunStatus> {
    let (mut reports, mut open) = (Vec::new(), Vec::new());
    for path in runs {
        let folds = folds_in(path)?;
        if folds.planned.is_some() {
            open.extend(open_trials(&SweepFolder::new(path))?);
        }
        for folder in folds.begun {
            let status = Status::read(&folder)?;
            reports.push(FoldStatus { folder: folder.path().into(), status });
        }
    }
    Ok(RunStatus { folds: reports, open })
}

/// The trials of a sweep that were not begun, or failed when they were last tried.
fn open_trials(sweep: &SweepFolder) -> Outcome<Vec<OpenTrial>> {
    let mut open = Vec::new();
    for trial in sweep.read()?.each() {
        let folder = sweep.trial(&trial.arm, trial.seed, trial.fold);
        let failure = sweep.read_failure(&trial)?;
        if !folder.is_begun() || failure.is_some() {
            open.push(OpenTrial { folder: folder.path().into(), trial, failure });
        }
    }
    Ok(open)
}
