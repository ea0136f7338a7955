//! `plimsoll status`

use plimsoll_report::duration::duration;
use plimsoll_report::live::folds_in;
use plimsoll_run::{Status, SweepFolder, Trial, TrialFailure};
use serde::Serialize;

use crate::args;
use crate::failure::Outcome;
use crate::report::{Table, json, or_dash};

/// How a fold of a run stands.
#[derive(Serialize)]
struct Report {
    folder: std::path::PathBuf,
    #[serde(flatten)]
    status: Status,
}

/// A trial of a sweep that was not begun, or failed.
#[derive(Serialize)]
struct OpenTrial {
    folder: std::path::PathBuf,
    #[serde(flatten)]
    trial: Trial,
    /// Why it failed when it was last tried; null where it was not begun.
    failure: Option<TrialFailure>,
}

/// Says how runs stand.
pub fn run(args: &args::Status, as_json: bool) -> Outcome {
    let (mut reports, mut open) = (Vec::new(), Vec::new());
    for path in &args.runs {
        let folds = folds_in(path)?;
        if folds.planned.is_some() {
            open.extend(open_trials(&SweepFolder::new(path))?);
        }
        for folder in folds.begun {
            let status = Status::of(&folder)?;
            reports.push(Report { folder: folder.path().into(), status });
        }
    }
    if as_json {
        let values = reports.iter().map(serde_json::to_value).chain(open.iter().map(serde_json::to_value));
        return json(&values.collect::<Result<Vec<_>, _>>()?);
    }
    let classifies =
        |report: &Report| report.status.epoch.as_ref().is_some_and(|epoch| epoch.classification.is_some());
    let scores = match !reports.is_empty() && reports.iter().all(classifies) {
        true => ["accuracy", "kappa"],
        false => ["pseudo-Dice", "average"],
    };
    let mut table = Table::new([
        "fold",
        "epoch",
        "loss",
        "validation",
        scores[0],
        scores[1],
        "held",
        "planned",
        "time left",
        "state",
    ]);
    for Report { folder, status } in &reports {
        let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.4}"));
        let epoch = status.epoch.as_ref();
        table.row([
            folder.display().to_string(),
            format!("{}/{}", status.epochs_done, status.epochs),
            number(epoch.and_then(|epoch| epoch.train_loss)),
            number(epoch.and_then(|epoch| epoch.validation_loss)),
            number(epoch.and_then(|epoch| match &epoch.classification {
                Some(scores) => Some(scores.balanced_accuracy),
                None => epoch.mean_pseudo_dice,
            })),
            number(epoch.and_then(|epoch| match &epoch.classification {
                Some(scores) => scores.kappa,
                None => epoch.ema_pseudo_dice,
            })),
            or_dash(status.resident),
            or_dash(status.planned),
            or_dash(status.seconds_left.map(duration)),
            status.state.describe(),
        ]);
    }
    table.print();
    for OpenTrial { trial, failure, .. } in &open {
        match failure {
            Some(TrialFailure { time, error, .. }) => println!("{trial}: failed at {time}: {error}"),
            None => println!("{trial}: not begun"),
        }
    }
    for Report { folder, status } in &reports {
        let said =
            |what: &Option<(String, String)>| what.as_ref().map(|(time, what)| format!("{what} at {time}"));
        if let Some(regions) = status.regions_in_words() {
            println!("{}: {regions}", folder.display());
        }
        if let Some(last) = said(&status.last_event) {
            println!("{}: last event {last}", folder.display());
        }
        if let Some(warning) = &status.last_warning {
            println!("{}: warning: {warning}", folder.display());
        }
    }
    Ok(())
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
