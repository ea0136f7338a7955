//! `plimsoll train`

use plimsoll_run::{RunRecord, StopReason};

use crate::args::Train;
use crate::failure::Outcome;
use crate::jobs::train::{describe, train_folds};
use crate::jobs::{evaluate, validate};
use crate::report::{Table, json, or_dash};
use crate::signals::Stop;

/// Kinds of operations of which the summary says what they took.
const LONGEST: usize = 4;

/// Trains folds.
pub fn run(args: &Train, as_json: bool) -> Outcome {
    let stop = Stop::listen()?;
    let request = args.request()?;
    if args.print_settings {
        return json(&describe(&request, as_json)?);
    }
    let trained = train_folds(&request, &stop, as_json)?;
    let Some(last) = trained.folds.last() else { return Ok(()) };
    if as_json {
        match trained.folds.as_slice() {
            [only] => json(only)?,
            all => json(&serde_json::json!({ "folds": all, "scores": trained.scores }))?,
        }
    } else {
        for fold in &trained.folds {
            println!("fold {}: {}", fold.fold, fold.record.ended);
            summary(&fold.record);
            if let Some(validation) = &fold.validation {
                evaluate::print(validation);
            }
        }
        if let Some(scores) = &trained.scores {
            validate::print(scores);
        }
    }
    if !trained.is_stopped {
        return Ok(());
    }
    let what = match last.record.ended {
        StopReason::Signal => format!("stopped after step {}; a checkpoint is written", last.record.steps),
        _ => format!("stopped while fold {} was validated; what is predicted is kept", last.fold),
    };
    Err(stop.failure(what, "the same command with --resume goes on to the same bits"))
}

/// Prints what was held against what was planned.
pub fn summary(record: &RunRecord) {
    let mut table = Table::new(["part", "planned", "held at most"]);
    for part in &record.planned {
        let held = record.held.iter().find(|held| held.holder == part.name);
        table.row([part.name.clone(), part.bytes.to_string(), or_dash(held.map(|held| held.peak))]);
    }
    let line = record.ram_budget_bytes;
    table.row(["all, as resident".into(), record.planned_bytes.to_string(), or_dash(record.peak_rss_bytes)]);
    table.print();
    let each = record.seconds_per_step.map_or(String::new(), |seconds| format!(", {seconds:.3} s each"));
    println!(
        "{} steps{}; peak resident {} of the line's {line}, {} while planning; {} heap allocations in steps",
        record.steps,
        each,
        or_dash(record.peak_rss_bytes),
        or_dash(record.planning_peak_rss_bytes),
        record.heap_allocations_in_steps
    );
    let all: f64 = record.ops.iter().map(|time| time.seconds).sum();
    if all > 0.0 {
        let longest = record.ops.iter().take(LONGEST);
        let shares = longest.map(|time| format!("{} {:.1} %", time.op, 100.0 * time.seconds / all));
        println!(
            "{all:.1} s of computing: {}; {:.1} s of waiting for batches",
            shares.collect::<Vec<_>>().join(", "),
            record.waiting_seconds
        );
    }
}
