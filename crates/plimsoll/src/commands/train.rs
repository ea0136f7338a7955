//! `plimsoll train`

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_train::{EpochRecord, Job, Observer, RunRecord, Settings, StepReport, train};

use super::prepare::{fold, prepare, settings};
use super::{plan, stop_on_signals};
use crate::args::Train;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::report::{Table, json};

/// Kinds of operations of which the summary says what they took.
const LONGEST: usize = 4;

/// Trains a fold.
pub fn run(args: &Train, as_json: bool) -> Outcome {
    let stop = stop_on_signals()?;
    let record = train_fold(args, &settings(&args.run)?, &stop, as_json)?;
    if as_json {
        json(&record)?;
    } else {
        summary(&record);
    }
    if record.finished {
        return Ok(());
    }
    let message = format!("stopped after step {}; a checkpoint is written", record.steps);
    Err(Failure::new(message, "the same command with --resume goes on to the same bits"))
}

/// The folder of a run.
pub fn run_folder(args: &Train) -> PathBuf {
    args.out.clone().unwrap_or_else(|| {
        let name = args.run.dataset.file_name().unwrap_or(args.run.dataset.as_os_str());
        Path::new("runs").join(name)
    })
}

/// Trains a fold until the end or until told to stop.
pub fn train_fold(args: &Train, settings: &Settings, stop: &AtomicBool, quiet: bool) -> Outcome<RunRecord> {
    let run = run_folder(args);
    let prepared = prepare(&args.run, settings, Some(&run), quiet)?;
    if !quiet {
        plan::print(&prepared.planned);
    }
    prepared.planned.numbers.check()?;
    prepared.planned.config.establish(&run)?;
    prepared.inspection.save(&run, &prepared.dataset)?;
    let fold = fold(&prepared.dataset, &run, args.splits.as_deref(), &args.fold)?;
    let steps = prepared.planned.config.schedule.total_steps;
    let job = Job {
        folder: run.join(format!("fold_{}", args.fold)),
        planned: prepared.planned,
        dataset: prepared.dataset,
        inspection: prepared.inspection,
        fold,
        resume: args.resume,
        weights: args.weights.clone(),
    };
    let mut watcher = Watcher { progress: Progress::new("training", steps, quiet), mean: None };
    let record = train(job, &prepared.budget, stop, &mut watcher)?;
    watcher.progress.finish();
    Ok(record)
}

/// Shows how a run goes.
struct Watcher {
    progress: Progress,
    /// A moving average of the loss.
    mean: Option<f64>,
}

impl Observer for Watcher {
    fn begin(&mut self, first_step: u64, of: u64, engine: &str) {
        let from = if first_step > 0 { format!(", going on after step {first_step}") } else { String::new() };
        self.progress.say(format!("{of} steps on {engine}{from}"));
        self.progress.set(first_step, String::new());
    }

    fn step(&mut self, report: &StepReport) {
        let loss = f64::from(report.loss);
        let mean = self.mean.map_or(loss, |mean| 0.95 * mean + 0.05 * loss);
        self.mean = Some(mean);
        self.progress.set(report.steps, format!("loss {mean:.4}, {:.2} s", report.seconds));
    }

    fn epoch(&mut self, record: &EpochRecord) {
        let dice = record.mean_pseudo_dice.map_or("–".into(), |dice| format!("{dice:.4}"));
        let ema = record.ema_pseudo_dice.map_or("–".into(), |dice| format!("{dice:.4}"));
        self.progress.say(format!(
            "epoch {}: loss {:.4}, validation {:.4}, pseudo-Dice {dice} (average {ema}), {:.1} s",
            record.epoch, record.train_loss, record.validation_loss, record.seconds
        ));
    }
}

/// Prints what was held against what was planned.
pub fn summary(record: &RunRecord) {
    let mut table = Table::new(["part", "planned", "held at most"]);
    for part in &record.planned {
        let held = record.held.iter().find(|held| held.holder == part.name);
        let held = match part.name.as_str() {
            "cache" => record.cache.peak_bytes.to_string(),
            "overhead" => "–".into(),
            _ => held.map_or("–".into(), |held| held.peak.to_string()),
        };
        table.row([part.name.clone(), part.bytes.to_string(), held]);
    }
    let line = record.ram_budget_bytes;
    table.row([
        "all, as resident".into(),
        record.planned_bytes.to_string(),
        record.peak_rss_bytes.to_string(),
    ]);
    table.print();
    println!(
        "{} steps, {:.3} s each; peak resident {} of the line's {line}; {} heap allocations in steps",
        record.steps, record.seconds_per_step, record.peak_rss_bytes, record.heap_allocations_in_steps
    );
    let all: f64 = record.ops.iter().map(|time| time.seconds).sum();
    let longest = record.ops.iter().take(LONGEST);
    let shares = longest.map(|time| format!("{} {:.1} %", time.op, 100.0 * time.seconds / all));
    println!(
        "{all:.1} s of computing: {}; {:.1} s of waiting for batches",
        shares.collect::<Vec<_>>().join(", "),
        record.waiting_seconds
    );
}
