//! Runs on disk: their state, their curves, and a page about them.

use std::path::PathBuf;

use plimsoll::{Context, ReportRequest};
use plimsoll_memory::Bytes;
use plimsoll_report::contents;
use plimsoll_report::live::folds_in;
use plimsoll_run::{EpochCost, EpochRecord, Event, FoldFolder, RunFolder, Status, each_epoch, each_event};
use serde::{Deserialize, Serialize};

use super::files::Files;
use super::{JobFailure, parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunPath {
    path: PathBuf,
}

/// A fold of a run.
#[derive(Serialize)]
struct Fold {
    folder: PathBuf,
    status: Status,
    /// The numbers of each epoch.
    epochs: Vec<EpochRecord>,
    /// The time and the memory of each epoch, by its number.
    costs: Vec<EpochCost>,
    /// The file of the record of its last process.
    record: PathBuf,
    /// The folder of the predicted validation cases.
    validation: PathBuf,
}

#[derive(Serialize)]
struct RunResult {
    folds: Vec<Fold>,
    /// The file of the scores over folds.
    scores: PathBuf,
}

/// Reads the folds of a run, or of one of its folds.
pub(super) fn read_run(arguments: &str, _: &Context) -> Result<String, Failure> {
    let RunPath { path } = parsed(arguments)?;
    let folds = folds_in(&path).map_err(JobFailure::wrap)?.begun;
    let folds = folds.iter().map(read_fold).collect::<Result<Vec<_>, _>>()?;
    written(&RunResult { folds, scores: RunFolder::new(&path).scores() })
}

fn read_fold(folder: &FoldFolder) -> Result<Fold, Failure> {
    let (mut epochs, mut costs) = (Vec::new(), Vec::new());
    each_epoch(folder, |epoch| epochs.push(epoch)).map_err(JobFailure::wrap)?;
    each_event(folder, |timed| {
        if let Event::Epoch(cost) = timed.event {
            costs.push(cost);
        }
    })
    .map_err(JobFailure::wrap)?;
    Ok(Fold {
        folder: folder.path().into(),
        status: Status::read(folder).map_err(JobFailure::wrap)?,
        costs: last_costs(&epochs, &costs),
        epochs,
        record: folder.record(),
        validation: folder.validation(),
    })
}

/// The last cost of each epoch: an epoch that was repeated after a killed process has several.
fn last_costs(epochs: &[EpochRecord], costs: &[EpochCost]) -> Vec<EpochCost> {
    epochs.iter().filter_map(|epoch| costs.iter().rfind(|cost| cost.epoch == epoch.epoch).copied()).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusArguments {
    runs: Vec<PathBuf>,
}

/// Reads the state of runs and sweeps.
pub(super) fn status(arguments: &str, _: &Context) -> Result<String, Failure> {
    let StatusArguments { runs } = parsed(arguments)?;
    written(&plimsoll::status(&runs).map_err(JobFailure::wrap)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportArguments {
    run: PathBuf,
    output: PathBuf,
    dataset: Option<PathBuf>,
    allow_outside: bool,
    cases: usize,
    volumes: usize,
    ram: Option<Bytes>,
}

/// Writes a page about a run or a sweep.
pub(super) fn report(arguments: &str, context: &Context) -> Result<String, Failure> {
    let ReportArguments { run, output, dataset, allow_outside, cases, volumes, ram } = parsed(arguments)?;
    let context = Files::default()
        .read("the run", [&run])
        .read("the data set", &dataset)
        .write("output", Some(&output), contents::PAGE)
        .check(context)?;
    let request = ReportRequest { run, page: output, dataset, allow_outside, cases, volumes, ram };
    written(&plimsoll::report(&request, &context).map_err(JobFailure::wrap)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_that_was_repeated_has_its_last_cost() {
        let cost = |epoch: u64, seconds: f64| EpochCost {
            epoch,
            seconds,
            validation_seconds: 0.0,
            resident_bytes: None,
            peak_resident_bytes: None,
            ram_budget_bytes: None,
        };
        let record = |epoch: u64| -> EpochRecord {
            serde_json::from_value(serde_json::json!({
                "epoch": epoch, "steps": 4, "learning_rate": 0.01, "train_loss": null, "validation_loss": null,
                "train_loss_parts": [], "validation_loss_parts": [], "pseudo_dice": [], "mean_pseudo_dice": null,
                "ema_pseudo_dice": null, "skipped_steps": 0,
            }))
            .unwrap()
        };
        let found =
            last_costs(&[record(0), record(1)], &[cost(0, 1.0), cost(1, 2.0), cost(1, 3.0), cost(2, 4.0)]);
        assert_eq!(found, [cost(0, 1.0), cost(1, 3.0)]);
    }
}
