//! `plimsoll predict`

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use plimsoll_data::Dataset;
use plimsoll_infer::{Model, PredictOptions, PredictPlan, Predictor};
use plimsoll_memory::{Budget, Bytes, System, limits, resident};
use serde::Serialize;

use super::stop_on_signals;
use crate::args::Predict;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::report::json;

/// A case that was predicted.
#[derive(Serialize)]
pub struct Predicted {
    pub case: String,
    pub file: PathBuf,
    pub seconds: f64,
    pub plan: PredictPlan,
}

/// All cases that were predicted.
#[derive(Serialize)]
pub struct Report {
    pub folds: usize,
    pub engine: String,
    pub cases: Vec<Predicted>,
    pub peak_rss_bytes: Bytes,
}

/// Segments images.
pub fn run(args: &Predict, as_json: bool) -> Outcome {
    let stop = stop_on_signals()?;
    let report = predict_all(args, &stop, as_json)?;
    if as_json {
        return json(&report);
    }
    for case in &report.cases {
        println!("{} in {:.1} s, holding {}", case.file.display(), case.seconds, case.plan.total_bytes);
    }
    println!("peak resident {}", report.peak_rss_bytes);
    Ok(())
}

/// Segments every image of the input.
pub fn predict_all(args: &Predict, stop: &AtomicBool, quiet: bool) -> Outcome<Report> {
    if !(0.0..1.0).contains(&args.overlap) {
        let message = format!("--overlap {} is not at least 0 and less than 1", args.overlap);
        return Err(Failure::new(message, "half of a window, --overlap 0.5, is what most take"));
    }
    let model = Model::open(&args.model, args.checkpoint.into())?;
    let dataset = &model.config.dataset;
    let cases = Dataset::images(&args.input, &dataset.channels, &dataset.file_ending)?;
    let budget = Budget::new(limits(&System::default(), args.ram.ram).line);
    let options = PredictOptions {
        overlap: args.overlap,
        mirror: args.mirror,
        threads: args.compute.threads.count(),
        overwrite: args.overwrite,
    };
    let (folds, ending) = (model.weights.len(), dataset.file_ending.clone());
    std::fs::create_dir_all(&args.output).map_err(|error| Failure::of_path(&args.output, &error))?;
    let backend = args.compute.open()?;
    let engine = backend.identity();
    let mut predictor = Predictor::new(model, options, backend, &budget)?;
    let mut predicted = Vec::with_capacity(cases.len());
    for case in &cases {
        let file = args.output.join(format!("{}{ending}", case.id));
        let start = std::time::Instant::now();
        let progress = std::cell::OnceCell::new();
        let plan = predictor.predict(case, &file, stop, &mut |done| {
            let bar = progress.get_or_init(|| Progress::new("windows", done.of as u64, quiet));
            bar.set(done.windows as u64, case.id.clone());
        })?;
        if let Some(bar) = progress.get() {
            bar.finish();
        }
        predicted.push(Predicted {
            case: case.id.clone(),
            file,
            seconds: start.elapsed().as_secs_f64(),
            plan,
        });
    }
    Ok(Report { folds, engine, cases: predicted, peak_rss_bytes: resident()?.peak })
}
