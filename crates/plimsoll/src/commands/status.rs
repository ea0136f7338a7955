//! `plimsoll status`

use std::path::Path;

use plimsoll_run::{FoldFolder, RunFolder, Status};
use serde::Serialize;

use crate::args;
use crate::duration::duration;
use crate::failure::{Failure, Outcome};
use crate::jobs::pairs::pair_run;
use crate::jobs::pairs::pairs_of;
use crate::report::{Table, json, or_dash};

/// How a fold of a run stands.
#[derive(Serialize)]
struct Report {
    folder: std::path::PathBuf,
    #[serde(flatten)]
    status: Status,
}

/// Says how runs stand.
pub fn run(args: &args::Status, as_json: bool) -> Outcome {
    let mut reports = Vec::new();
    for path in &args.runs {
        for folder in folds(path)? {
            let status = Status::of(&folder)?;
            reports.push(Report { folder: folder.path().into(), status });
        }
    }
    if as_json {
        return json(&reports);
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
    for Report { folder, status } in &reports {
        let said =
            |what: &Option<(String, String)>| what.as_ref().map(|(time, what)| format!("{what} at {time}"));
        if let Some(last) = said(&status.last_event) {
            println!("{}: last event {last}", folder.display());
        }
        if let Some(warning) = &status.last_warning {
            println!("{}: warning: {warning}", folder.display());
        }
    }
    Ok(())
}

fn folds(path: &Path) -> Outcome<Vec<FoldFolder>> {
    if let Some(fold) = FoldFolder::at(path).filter(FoldFolder::is_begun) {
        return Ok(vec![fold]);
    }
    let mut folds = RunFolder::new(path).folds()?;
    for pair in pairs_of(path)? {
        folds.extend(pair_run(path, pair).folds()?);
    }
    if folds.is_empty() {
        let message = format!("{} holds no run", path.display());
        return Err(Failure::new(
            message,
            "name the folder that `plimsoll train --out` wrote, or one of its folds",
        ));
    }
    Ok(folds)
}
