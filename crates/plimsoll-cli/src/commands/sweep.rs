//! `plimsoll sweep`

use std::collections::BTreeMap;

use plimsoll::{ArmReport, Sweep, SweepReport, TrialReport, TrialState};
use plimsoll_metrics::CaseCounts;
use plimsoll_report::duration::duration;

use crate::args::Sweep as Arguments;
use crate::failure::{Failure, Outcome};
use crate::invocation::Invocation;
use crate::report::{Table, json, or_dash};
use crate::terminal;

/// Failed trials that are named in the error line.
const MOST_NAMED: usize = 5;

/// Plans a sweep and trains its trials.
pub fn run(args: &Arguments, invocation: &Invocation, as_json: bool) -> Outcome {
    let context = terminal::context(as_json)?;
    let mut job = args.job()?;
    // A sweep that has begun can be planned, too.
    job.resume |= args.plan && job.folder.is_begun();
    let mut sweep = Sweep::open(&job, &context)?;
    let report = sweep.report();
    if !as_json {
        print_plan(&report);
    }
    if args.plan && as_json {
        json(&report)?;
    }
    sweep.expect_all_fit()?;
    if args.plan {
        return Ok(());
    }
    sweep.record()?;
    let files = args.batch_files(&job, report.ram_budget_bytes, invocation)?;
    if !files.is_empty() {
        for file in &files {
            sweep.write_batch(file)?;
            if !as_json {
                println!("{} tasks are written to {}", report.trials, file.path.display());
            }
        }
        return if as_json { json(&report) } else { Ok(()) };
    }
    let trials = sweep.run(&context)?;
    if as_json {
        json(&serde_json::json!({ "folder": job.folder.path(), "plan": report, "trials": trials }))?;
    } else {
        print_trials(&trials);
    }
    finish(&trials, context.stop.is_asked())
}

fn print_plan(report: &SweepReport) {
    let limit = report.ram_budget_bytes;
    let has_device = report.arms.iter().any(|arm| arm.planned_vram_bytes.is_some());
    let mut columns = vec!["arm", "patch", "batch", "memory", "least limit", "s/step", "steps", "a trial"];
    columns.extend(has_device.then_some("of the device"));
    columns.push("");
    let mut table = Table::new(columns);
    for arm in &report.arms {
        let ArmReport { patch_size: [d, h, w], batch_size, micro_batch, .. } = arm;
        let mut row = vec![
            arm.name.clone(),
            format!("{d}×{h}×{w}"),
            format!("{batch_size} as {} × {micro_batch}", batch_size / micro_batch.max(&1)),
            arm.planned_bytes.to_string(),
            arm.minimum_ram_bytes.to_string(),
            format!("{:.3}", arm.predicted_seconds_per_step),
            arm.steps.to_string(),
            duration(arm.predicted_seconds),
        ];
        row.extend(has_device.then(|| or_dash(arm.planned_vram_bytes)));
        row.push(match (arm.fits, arm.changes.as_slice()) {
            (false, _) => "does not fit".into(),
            (true, changes) => changes.join(", "),
        });
        table.row(row);
    }
    table.print();
    if report.arms.iter().any(|arm| arm.patch_size != report.arms[0].patch_size) {
        println!("patches differ, which alone may change scores: set `patch_size` in [settings]");
    }
    let which = match report.trials == report.all_trials {
        true => format!(
            "{} trials: {} arms × {} seed(s) × {} fold(s)",
            report.trials,
            report.arms.len(),
            report.seeds,
            report.folds
        ),
        false => format!("{} of {} trials", report.trials, report.all_trials),
    };
    println!(
        "{which}, {}, below {limit}: about {}, plus the prediction of validation cases",
        match report.parallel {
            1 => "one after the other".into(),
            parallel => format!("up to {parallel} at once"),
        },
        duration(report.predicted_seconds),
    );
}

/// Prints the states of the trials of each arm.
fn print_trials(trials: &[TrialReport]) {
    let mut arms: Vec<&str> = Vec::new();
    let mut of_arm: BTreeMap<&str, Vec<&TrialState>> = BTreeMap::new();
    for report in trials {
        let name = report.trial.arm.as_str();
        if !arms.contains(&name) {
            arms.push(name);
        }
        of_arm.entry(name).or_default().push(&report.state);
    }
    println!();
    let mut table = Table::new(["arm", "trials", "finished", "failed", "left", "mean Dice", "least", "most"]);
    for name in arms {
        let states = &of_arm[name];
        let count = |is: fn(&TrialState) -> bool| states.iter().filter(|state| is(state)).count();
        let finished = count(|state| matches!(state, TrialState::Finished { .. }));
        let failed = count(|state| matches!(state, TrialState::Failed { .. }));
        let dice: Vec<f64> = states.iter().filter_map(|state| state.mean_dice()).collect();
        let cases = states.iter().fold(CaseCounts::default(), |all, state| all.and(state.cases()));
        let number = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.4}")));
        let mean = (!dice.is_empty()).then(|| dice.iter().sum::<f64>() / dice.len() as f64);
        table.row([
            name.into(),
            states.len().to_string(),
            finished.to_string(),
            failed.to_string(),
            (states.len() - finished - failed).to_string(),
            cases.beside(mean, |mean| format!("{mean:.4}")),
            number(dice.iter().copied().reduce(f64::min)),
            number(dice.iter().copied().reduce(f64::max)),
        ]);
    }
    table.print();
}

/// Says what is not done, and why.
fn finish(trials: &[TrialReport], is_stopped: bool) -> Outcome {
    let failed: Vec<(&TrialReport, &String, &String)> = trials
        .iter()
        .filter_map(|report| match &report.state {
            TrialState::Failed { error, hint } => Some((report, error, hint)),
            _ => None,
        })
        .collect();
    let left = trials.iter().filter(|report| report.state.is_left()).count();
    if left > 0 && is_stopped {
        let what = format!("stopped with {} of {} trials left; checkpoints are written", left, trials.len());
        return Err(Failure::stopped(
            what,
            "the same command with --resume continues, with the same results",
        ));
    }
    if let Some((_, _, hint)) = failed.first() {
        let named: Vec<String> = failed
            .iter()
            .take(MOST_NAMED)
            .map(|(report, error, _)| format!("{}: {error}", report.trial))
            .collect();
        let more = if failed.len() > MOST_NAMED { "; …" } else { "" };
        let message =
            format!("{} of {} trials failed: {}{more}", failed.len(), trials.len(), named.join("; "));
        return Err(Failure::new(
            message,
            format!("{hint}; the same command with --resume tries them again"),
        ));
    }
    let elsewhere = trials.iter().find_map(|report| match &report.state {
        TrialState::Elsewhere { by } => Some((&report.trial, by)),
        _ => None,
    });
    match elsewhere {
        None if left == 0 => Ok(()),
        // Another process had them, and has ended before they were done.
        None => Err(Failure::new(
            format!("{left} of {} trials are not finished", trials.len()),
            "the same command with --resume trains the rest",
        )),
        Some((trial, by)) => Err(Failure::new(
            format!("{left} of {} trials are not finished: {trial} is being trained by {by}", trials.len()),
            "wait for it; the same command with --resume then trains the rest",
        )),
    }
}
