//! `plimsoll demo --classification`: classifying images, from made-up photographs to scores.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use plimsoll::{
    ClassifyOptions, Context, MemoryLimit, PredictRequest, VolumeOptions, classify, train, train_pairs,
};
use plimsoll_data::pictures::phantom::{self, PhantomImages};
use plimsoll_infer::PredictOptions;
use plimsoll_memory::{Bytes, resident};
use plimsoll_metrics::classification::{Bootstrap, Labelling, Table as Cases, classify as score};
use plimsoll_nn::{NetworkName, NetworkSettings};
use plimsoll_run::{CheckpointKind, ImageSettings, Settings};
use serde::Serialize;

use super::demo;
use crate::args::Demo;
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json, write, write_json};

/// Images that are drawn, of those that are wrong.
const MISTAKES: Option<NonZeroUsize> = NonZeroUsize::new(4);

/// The result of one kind of classifier.
#[derive(Serialize)]
struct Way {
    way: &'static str,
    quadratic_kappa: Option<f64>,
    accuracy: Option<f64>,
    planned_bytes: Bytes,
    seconds: f64,
}

/// The result of the demonstration.
#[derive(Serialize)]
struct ImageDemoReport {
    ram_budget_bytes: Bytes,
    ways: Vec<Way>,
    peak_rss_bytes: Bytes,
    seconds: f64,
}

/// Makes images in five grades, and tells them apart with one network and with one for each pair of grades.
pub fn run(args: &Demo, folder: &Path, context: &Context, quiet: bool) -> Outcome {
    let start = Instant::now();
    let say = |what: &str| {
        if !quiet {
            println!("\n== {what}");
        }
    };
    let data = folder.join("images");
    say("images: synthetic photographs of the retina in five grades");
    phantom::write(&data, &PhantomImages::default()).map_err(|error| Failure::at_path(&data, &error))?;
    let mut ways = Vec::new();
    let backend = args.compute.open()?;
    for (way, is_pairs) in [("one network", false), ("one for each pair", true)] {
        say(&format!("training: {way}"));
        let began = Instant::now();
        let run = folder.join(if is_pairs { "pairs" } else { "run" });
        let request = demo::training(args, &data, settings(), &run, backend.clone());
        let trained = match is_pairs {
            true => train_pairs(&request, context)?.into_iter().map(|pair| pair.trained).collect(),
            false => vec![train(&request, context)?],
        };
        if trained.iter().any(|trained| trained.is_stopped) {
            return Err(Failure::stopped(
                "stopped while training",
                "a demonstration always starts from the beginning",
            ));
        }
        let planned =
            trained.iter().flat_map(|trained| &trained.folds).map(|fold| fold.record.planned_bytes).max();
        say(&format!("predicting and scoring: {way}"));
        let request = PredictRequest {
            model: run.clone(),
            checkpoint: CheckpointKind::Final,
            volumes: VolumeOptions::default(),
            input: data.join("test"),
            output: run.join("predictions.csv"),
            overwrite: false,
            options: PredictOptions::new(0.5, false, args.compute.threads.count()),
            part: None,
            ram: Some(args.ram),
            backend: backend.clone(),
        };
        let options =
            ClassifyOptions { mistakes: MISTAKES.filter(|_| !is_pairs), ..ClassifyOptions::default() };
        let classified = classify(&request, &[], options, context)?;
        let memory = MemoryLimit::set(Some(args.ram), 1, context)?;
        let report = score(
            &Cases::read(&classified.file, Labelling::OneClass, &memory.budget)?,
            &Bootstrap::default(),
            &memory.budget,
        )?;
        write(&run.join("scores.json"), |file| write_json(file, &report))?;
        let overall = |name: &str| report.overall.get(name).and_then(|interval| interval.value);
        ways.push(Way {
            way,
            quadratic_kappa: overall("quadratic_kappa"),
            accuracy: overall("accuracy"),
            planned_bytes: planned.unwrap_or(Bytes::ZERO),
            seconds: began.elapsed().as_secs_f64(),
        });
    }
    let report = ImageDemoReport {
        ram_budget_bytes: args.ram,
        ways,
        peak_rss_bytes: resident()?.peak,
        seconds: start.elapsed().as_secs_f64(),
    };
    write(&folder.join("demo.json"), |file| write_json(file, &report))?;
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

impl ImageDemoReport {
    fn print(&self) {
        let mut table = Table::new(["classifier", "kappa", "accuracy", "planned", "seconds"]);
        for way in &self.ways {
            let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.3}"));
            table.row([
                way.way.to_string(),
                number(way.quadratic_kappa),
                number(way.accuracy),
                way.planned_bytes.to_string(),
                format!("{:.0}", way.seconds),
            ]);
        }
        table.print();
        println!(
            "peak resident {} of the limit of {}; {:.0} s in all",
            self.peak_rss_bytes, self.ram_budget_bytes, self.seconds
        );
    }
}

/// A narrow network on small images, and short schedules.
fn settings() -> Settings {
    Settings {
        network: NetworkSettings {
            net: Some(NetworkName::SEResNeXt50),
            features: Some(vec![128; 4]),
            ..NetworkSettings::default()
        },
        images: Some(ImageSettings { size: Some([64; 2]), ..ImageSettings::default() }),
        batch_size: Some(16),
        epochs: Some(8),
        learning_rate: Some(2e-3),
        seed: Some(1),
        ..Settings::default()
    }
}
