//! `plimsoll train`

use plimsoll::{Trained, describe, describe_pairs, train, train_pairs, write_submissions};
use plimsoll_report::ClassNames;
use plimsoll_run::{RunRecord, Specification, StopReason};

use super::scores::{print_folds, print_scores};
use super::train_ranks;
use crate::args::{Train, warn_of_unread};
use crate::failure::{Failure, Outcome};
use crate::invocation::Invocation;
use crate::launch;
use crate::report::{Table, json, or_dash};
use crate::terminal;

/// Kinds of operations of which the summary says what they took.
const LONGEST: usize = 4;

/// Trains folds.
pub fn run(args: &Train, invocation: &Invocation, as_json: bool) -> Outcome {
    if args.submission.is_some() {
        return submit(args, invocation, as_json);
    }
    if let Some(launch) = launch::launched_ranks()?.filter(|_| !args.print_settings) {
        return train_ranks::run(args, &launch, as_json);
    }
    let of_ranks = [
        (args.patience.is_some(), "--patience is the wait for other ranks"),
        (args.transport.is_some(), "--transport is the way of messages between ranks"),
    ];
    if let Some((_, what)) = of_ranks.iter().find(|(is_set, _)| *is_set && !args.print_settings) {
        return Err(Failure::new(
            format!("{what}, but this training has one process"),
            "leave it out, or start several ranks with `mpirun -n N plimsoll train …`",
        ));
    }
    let context = terminal::context(as_json)?;
    let request = args.request()?;
    warn_of_unread(&args.run.dataset, args.run.config.as_deref(), &context);
    if args.print_settings && args.one_vs_one {
        return json(&describe_pairs(&request, &context)?);
    }
    if args.print_settings {
        return json(&describe(&request, &context)?);
    }
    if args.one_vs_one {
        let pairs = train_pairs(&request, &context)?;
        if as_json {
            json(&pairs)?;
        }
        let Some(last) = pairs.into_iter().next_back() else { return Ok(()) };
        return finish(&last.trained, !as_json);
    }
    let trained = train(&request, &context)?;
    print(&trained, as_json)
}

/// Writes files that submit the training.
fn submit(args: &Train, invocation: &Invocation, as_json: bool) -> Outcome {
    let context = terminal::context(as_json)?;
    let request = args.request()?;
    warn_of_unread(&args.run.dataset, args.run.config.as_deref(), &context);
    let (nodes, files) = (args.submission.nodes(args.run.compute)?, args.submission.files(invocation)?);
    let numbers = write_submissions(&request, &nodes, &files, &context)?;
    if as_json {
        return json(&numbers);
    }
    for file in &files {
        println!("a training by {} rank(s) is written to {}", nodes.count, file.path.display());
    }
    Ok(())
}

/// Prints the result, and fails if the training was stopped.
pub(super) fn print(trained: &Trained, as_json: bool) -> Outcome {
    if as_json {
        match trained.folds.as_slice() {
            [only] => json(only)?,
            all => json(&serde_json::json!({
                "folds": all,
                "scores": trained.scores,
                "at_once": trained.at_once,
            }))?,
        }
    }
    finish(trained, !as_json)
}

/// Prints the result for people, and fails if the training was stopped.
fn finish(trained: &Trained, is_told: bool) -> Outcome {
    let Some(last) = trained.folds.last() else { return Ok(()) };
    if is_told {
        for fold in &trained.folds {
            println!("fold {}: {}", fold.fold, fold.record.ended);
            summary(&fold.record);
            if let Some(validation) = &fold.validation {
                print_scores(validation, &class_names(&fold.record.specification)?);
            }
        }
        if let Some(at_once) = &trained.at_once {
            println!(
                "{} folds at once: {} planned, peak resident {} of the limit of {}",
                at_once.folds,
                at_once.planned_bytes,
                or_dash(at_once.peak_rss_bytes),
                at_once.ram_budget_bytes
            );
        }
        if let Some(scores) = &trained.scores {
            print_folds(scores, &class_names(&last.record.specification)?);
        }
    }
    if !trained.is_stopped {
        return Ok(());
    }
    let stopped: Vec<_> =
        trained.folds.iter().filter(|fold| fold.record.ended == StopReason::Signal).collect();
    let what = match stopped.as_slice() {
        [only] => format!("stopped after step {}; a checkpoint is written", only.record.steps),
        [_, ..] => {
            let steps: Vec<String> =
                stopped.iter().map(|fold| format!("{} of fold {}", fold.record.steps, fold.fold)).collect();
            format!("stopped after steps {}; checkpoints are written", steps.join(", "))
        }
        [] => format!("stopped while fold {} was validated; finished predictions are kept", last.fold),
    };
    Err(Failure::stopped(what, "the same command with --resume continues, with the same results"))
}

/// The names of the classes that voxels are labelled with.
fn class_names(specification: &Specification) -> Outcome<ClassNames> {
    Ok(ClassNames::new(&specification.config.task.segmentation()?.dataset.labels))
}

/// Prints what was held against what was planned.
pub fn summary(record: &RunRecord) {
    let mut table = Table::new(["part", "planned", "peak"]);
    for part in &record.planned {
        let held = record.held.iter().find(|held| held.holder == part.name);
        table.row([part.name.clone(), part.bytes.to_string(), or_dash(held.map(|held| held.peak))]);
    }
    let limit = record.ram_budget_bytes;
    table.row(["all, resident".into(), record.planned_bytes.to_string(), or_dash(record.peak_rss_bytes)]);
    table.print();
    if let Some(device) = &record.device {
        let arena = device.planned.iter().find(|part| part.name == "arena").map(|part| part.bytes);
        println!(
            "of the device's memory {} planned and {} used, of the limit of {}; of its arena's {}, kernels used {}",
            device.planned_bytes,
            or_dash(device.used_bytes),
            device.vram_budget_bytes,
            or_dash(arena),
            record.arena_used_bytes
        );
    }
    let each = record.seconds_per_step.map_or(String::new(), |seconds| format!(", {seconds:.3} s each"));
    println!(
        "{} steps{}; peak resident {} of the limit of {limit}, {} while planning; {} heap allocations in steps",
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
