//! `plimsoll demo`: the whole job on a small data set that it makes itself.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use plimsoll_data::Dataset;
use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_memory::{Bytes, resident};
use plimsoll_metrics::Metric;
use plimsoll_nn::{NetworkName, NetworkSettings, Optimizer};
use plimsoll_train::Settings;
use serde::Serialize;

use super::{evaluate, inspect, plan, predict, prepare, stop_on_signals, train};
use crate::args::{
    Classification, Demo, Evaluate, Metrics, Predict, Ram, RunArgs, Scores, Train, WhichCheckpoint,
};
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json, write, write_json};

/// What the demonstration comes to.
#[derive(Serialize)]
struct Report {
    ram_budget_bytes: Bytes,
    planned_bytes: Bytes,
    peak_rss_bytes: Bytes,
    mean_dice: f64,
    seconds: f64,
    steps: u64,
    seconds_per_step: f64,
    heap_allocations_in_steps: u64,
}

/// Makes a data set, inspects it, plans, trains, predicts, evaluates.
pub fn run(args: &Demo, as_json: bool) -> Outcome {
    let stop = stop_on_signals()?;
    match &args.out {
        Some(folder) => {
            if folder.join("demo.json").exists() || folder.join("dataset").exists() {
                let message = format!("{} holds a demonstration already", folder.display());
                return Err(Failure::new(message, "choose another folder with --out, or remove it"));
            }
            let io = |error| Failure::of_path(folder, &error);
            std::fs::create_dir_all(folder).map_err(io)?;
            whole_job(args, folder, &stop, as_json)
        }
        None => {
            let folder = tempfile::tempdir()?;
            whole_job(args, folder.path(), &stop, as_json)
        }
    }
}

fn whole_job(args: &Demo, folder: &Path, stop: &AtomicBool, quiet: bool) -> Outcome {
    let start = Instant::now();
    let say = |what: &str| {
        if !quiet {
            println!("\n== {what}");
        }
    };
    let data = folder.join("dataset");
    say("a data set: vessel trees in noise, at several spacings, one of them far off");
    phantom::write(&data, &PhantomConfig::default())?;
    let settings = settings();
    let run_args = || RunArgs {
        dataset: data.clone(),
        ram: Ram { ram: Some(args.ram) },
        compute: args.compute,
        ..RunArgs::default()
    };
    {
        let line = prepare::Line::draw(&Ram { ram: Some(args.ram) }, args.compute.threads.count())?;
        let dataset = Dataset::open(&data)?;
        let inspection = prepare::inspect(&dataset, None, args.compute.threads.count(), &line.budget, quiet)?;
        if !quiet {
            inspect::print(&dataset, &inspection);
        }
    }
    say(&format!("a plan under a line of {}", args.ram));
    {
        let prepared = prepare::prepare(&run_args(), &settings, None, true)?;
        if !quiet {
            plan::print(&prepared.planned);
        }
        prepared.planned.numbers.check()?;
    }
    say("training");
    let run = folder.join("run");
    let train_args = Train {
        run: run_args(),
        fold: "0".into(),
        out: Some(run.clone()),
        resume: false,
        weights: None,
        splits: None,
    };
    let record = train::train_fold(&train_args, &settings, stop, quiet)?;
    if !record.finished {
        let message = format!("stopped after step {}", record.steps);
        return Err(Failure::new(message, "a demonstration starts anew each time"));
    }
    if !quiet {
        train::summary(&record);
    }
    say("predicting the cases held out");
    let predictions = folder.join("predictions");
    let predict_args = Predict {
        model: run,
        input: data.join("imagesTs"),
        output: predictions.clone(),
        checkpoint: WhichCheckpoint::Final,
        overlap: 0.5,
        mirror: false,
        overwrite: false,
        ram: Ram { ram: Some(args.ram) },
        compute: args.compute,
    };
    predict::predict_all(&predict_args, stop, quiet)?;
    say("evaluating");
    let summary = evaluate::compare(
        &Evaluate {
            predictions: Some(predictions),
            references: Some(data.join("labelsTs")),
            labels: None,
            partial: false,
            scores: Scores { metrics: vec![Metrics::Overlap], ..Scores::default() },
            images: Some(data.join("imagesTs")),
            pictures: Some(folder.join("pictures")),
            classification: Classification::default(),
            output: None,
            ram: Ram { ram: Some(args.ram) },
            threads: args.compute.threads,
        },
        quiet,
    )?;
    if !quiet {
        evaluate::print(&summary);
    }
    let report = Report {
        ram_budget_bytes: args.ram,
        planned_bytes: record.planned_bytes,
        peak_rss_bytes: resident()?.peak,
        mean_dice: summary.foreground_mean.get(Metric::Dice).unwrap_or(0.0),
        seconds: start.elapsed().as_secs_f64(),
        steps: record.steps,
        seconds_per_step: record.seconds_per_step,
        heap_allocations_in_steps: record.heap_allocations_in_steps,
    };
    let path = folder.join("demo.json");
    write(&path, |file| write_json(file, &report))?;
    if quiet {
        return json(&report);
    }
    say("what it came to");
    let mut table = Table::new(["line", "planned", "measured", "Dice", "seconds"]);
    table.row([
        report.ram_budget_bytes.to_string(),
        report.planned_bytes.to_string(),
        report.peak_rss_bytes.to_string(),
        format!("{:.3}", report.mean_dice),
        format!("{:.0}", report.seconds),
    ]);
    table.print();
    if args.out.is_some() {
        println!("everything is in {}", folder.display());
    }
    Ok(())
}

/// A small network and a short schedule: enough for vessels that a threshold does not find.
fn settings() -> Settings {
    Settings {
        network: NetworkSettings {
            net: Some(NetworkName::DynUNet),
            features: Some(vec![16, 32, 64, 96]),
            ..NetworkSettings::default()
        },
        patch_size: Some([48; 3]),
        batch_size: Some(2),
        epochs: Some(8),
        iterations_per_epoch: Some(40),
        validation_iterations: Some(8),
        optimizer: Some(Optimizer::adamw()),
        learning_rate: Some(3e-3),
        seed: Some(1),
        ..Settings::default()
    }
}
