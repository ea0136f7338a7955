//! `plimsoll demo`: the whole job on a small data set that it makes itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use plimsoll::{
    Context, EvaluateRequest, Evaluated, PlanRequest, PredictRequest, TrainRequest, VolumeOptions, evaluate,
    predict, train,
};
use plimsoll_data::Oversampling;
use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_infer::PredictOptions;
use plimsoll_memory::{Bytes, resident};
use plimsoll_metrics::Metric;
use plimsoll_nn::{NetworkName, NetworkSettings, Optimizer};
use plimsoll_plan::Backend;
use plimsoll_run::{CheckpointKind, RunRecord, Settings};
use serde::Serialize;

use super::scores::print_scores;
use super::{demo_images, inspect, plan, train};
use crate::args::Demo;
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json, or_dash, write, write_json};
use crate::terminal;

/// The result of the demonstration.
#[derive(Serialize)]
struct DemoReport {
    ram_budget_bytes: Bytes,
    planned_bytes: Bytes,
    peak_rss_bytes: Option<Bytes>,
    /// None if no class has one.
    mean_dice: Option<f64>,
    seconds: f64,
    steps: u64,
    seconds_per_step: Option<f64>,
    heap_allocations_in_steps: u64,
}

/// Makes a data set, inspects it, plans, trains, predicts, evaluates.
pub fn run(args: &Demo, as_json: bool) -> Outcome {
    let context = terminal::context(as_json)?;
    let job = if args.classification { demo_images::run } else { whole_job };
    match &args.out {
        Some(folder) => {
            if folder.join("demo.json").exists() || folder.join("dataset").exists() {
                let message = format!("{} already holds a demonstration", folder.display());
                return Err(Failure::new(message, "choose another folder with --out, or remove it"));
            }
            let io = |error| Failure::at_path(folder, &error);
            plimsoll_disk::create_dir_all(folder).map_err(io)?;
            job(args, folder, &context, as_json)
        }
        None => {
            let folder = tempfile::tempdir()?;
            job(args, folder.path(), &context, as_json)
        }
    }
}

fn whole_job(args: &Demo, folder: &Path, context: &Context, quiet: bool) -> Outcome {
    let start = Instant::now();
    let say = |what: &str| {
        if !quiet {
            println!("\n== {what}");
        }
    };
    let data = folder.join("dataset");
    say("a data set: vessel trees in noise, at several spacings, one of them far off");
    phantom::write(&data, &PhantomConfig::default())?;
    let run = folder.join("run");
    // No validation: the demonstration predicts images that were never seen. All steps share one backend: a second one of the same card
    // would measure and allocate beside the first.
    let backend = args.compute.open()?;
    let request =
        TrainRequest { validate: false, ..training(args, &data, settings(), &run, backend.clone()) };
    say(&format!("a plan within a limit of {}", args.ram));
    {
        let (opened, planned, _) = request.plan.prepare(context)?;
        if !quiet {
            inspect::print_data(&opened.data);
            plan::print(&planned);
        }
        planned.numbers.check()?;
    }
    say("training");
    let record = train_fold(&request, context)?;
    if !quiet {
        train::summary(&record);
    }
    say("predicting the held-out cases");
    let predictions = folder.join("predictions");
    let threads = args.compute.threads.count();
    let request = PredictRequest {
        model: run,
        checkpoint: CheckpointKind::Final,
        volumes: VolumeOptions::default(),
        input: data.join("imagesTs"),
        output: predictions.clone(),
        overwrite: false,
        options: PredictOptions::new(0.5, false, threads),
        part: None,
        ram: Some(args.ram),
        backend,
    };
    predict(&request, context)?.check()?;
    say("evaluating");
    let request = EvaluateRequest {
        pictures: Some((data.join("imagesTs"), folder.join("pictures"))),
        ram: Some(args.ram),
        threads,
        ..EvaluateRequest::new(predictions, data.join("labelsTs"))
    };
    let Evaluated { summary, names, .. } = evaluate(&request, context)?;
    if !quiet {
        print_scores(&summary, &names);
    }
    let report = DemoReport {
        ram_budget_bytes: args.ram,
        planned_bytes: record.planned_bytes,
        peak_rss_bytes: record.peak_rss_bytes.max(Some(resident()?.peak)),
        mean_dice: summary.foreground_mean.get(Metric::Dice),
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
    say("result");
    report.print();
    if args.out.is_some() {
        println!("everything is in {}", folder.display());
    }
    Ok(())
}

/// Trains a fold to its end.
fn train_fold(request: &TrainRequest, context: &Context) -> Outcome<RunRecord> {
    let trained = train(request, context)?;
    let Some(record) = trained.folds.into_iter().next().map(|fold| fold.record) else {
        return Err(Failure::new("the demonstration trained nothing", "report this as a bug"));
    };
    if !record.finished {
        return Err(Failure::stopped(
            format!("stopped after step {}", record.steps),
            "a demonstration always starts from the beginning",
        ));
    }
    Ok(record)
}

impl DemoReport {
    fn print(&self) {
        let mut table = Table::new(["limit", "planned", "measured", "Dice", "seconds"]);
        table.row([
            self.ram_budget_bytes.to_string(),
            self.planned_bytes.to_string(),
            or_dash(self.peak_rss_bytes),
            or_dash(self.mean_dice.map(|dice| format!("{dice:.3}"))),
            format!("{:.0}", self.seconds),
        ]);
        table.print();
    }
}

/// A training of one fold from nothing, validated.
pub fn training(
    args: &Demo,
    dataset: &Path,
    settings: Settings,
    run: &Path,
    backend: Arc<dyn Backend>,
) -> TrainRequest {
    let plan = PlanRequest {
        dataset: dataset.to_path_buf(),
        settings,
        ram: Some(args.ram),
        threads: args.compute.threads.count(),
        loader_threads: None,
        skip_bad_cases: false,
        backend,
        allowed: Vec::new(),
        plans_from: None,
        start: None,
        allow_outside: false,
    };
    TrainRequest { device: args.compute.device, ..TrainRequest::new(plan, run) }
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
        // One of two patches on foreground, as nnU-Net has it, shows a short training too little of bright background.
        oversampling: Some(Oversampling::Random),
        seed: Some(1),
        ..Settings::default()
    }
}
