//! `plimsoll status`

use plimsoll::{FoldStatus, OpenTrial, RunStatus, status};
use plimsoll_report::duration::duration;
use plimsoll_run::TrialFailure;

use crate::args;
use crate::failure::Outcome;
use crate::report::{Table, json, or_dash};

/// Prints the state of runs.
pub fn run(args: &args::Status, as_json: bool) -> Outcome {
    let RunStatus { folds: reports, open } = status(&args.runs)?;
    if as_json {
        let values = reports.iter().map(serde_json::to_value).chain(open.iter().map(serde_json::to_value));
        return json(&values.collect::<Result<Vec<_>, _>>()?);
    }
    let classifies = |report: &FoldStatus| {
        report.status.epoch.as_ref().is_some_and(|epoch| epoch.classification.is_some())
    };
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
        "memory",
        "planned",
        "time left",
        "state",
    ]);
    for FoldStatus { folder, status } in &reports {
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
            None => println!("{trial}: not started"),
        }
    }
    for FoldStatus { folder, status } in &reports {
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
