//! Segmenting images with a trained network.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use plimsoll_data::{Dataset, prediction_ending};
use plimsoll_disk::atomic::sweep;
use plimsoll_infer::{
    CaseReport, Destination, FolderProgress, InferError, Outcome as CaseOutcome, PredictOptions, PredictPlan,
    Predictor, predict_cases,
};
use plimsoll_memory::{Budget, Bytes, MappedFiles, System, limits, mapped_files, resident};
use plimsoll_plan::Backend;
use plimsoll_run::{CheckpointKind, Model};
use serde::Serialize;

use crate::duration::duration;
use crate::failure::{Failure, Outcome, one_line};
use crate::progress::{Progress, TimeLeft};

/// Images to be segmented.
pub struct PredictRequest {
    /// The folder of a run, or of one fold.
    pub model: PathBuf,
    /// Which weights.
    pub checkpoint: CheckpointKind,
    /// A folder of images, or one image.
    pub input: PathBuf,
    /// Where label maps go.
    pub output: PathBuf,
    /// Whether predictions that are there are replaced.
    pub overwrite: bool,
    /// How.
    pub options: PredictOptions,
    /// The line that was asked for.
    pub ram: Option<Bytes>,
    /// What runs programs.
    pub backend: Arc<dyn Backend>,
}

/// A case that was predicted.
#[derive(Serialize)]
pub struct Predicted {
    pub case: String,
    pub file: PathBuf,
    pub windows: usize,
    pub seconds: f64,
    pub plan: PredictPlan,
}

/// A case whose prediction was there already.
#[derive(Serialize)]
pub struct Kept {
    pub case: String,
    pub file: PathBuf,
}

/// A case that could not be predicted.
#[derive(Serialize)]
pub struct Failed {
    pub case: String,
    pub error: String,
    pub hint: String,
}

/// What came of all cases.
#[derive(Serialize)]
pub struct Report {
    pub folds: usize,
    pub engine: String,
    pub cases: Vec<Predicted>,
    pub kept: Vec<Kept>,
    pub failed: Vec<Failed>,
    /// What the case that held most was planned to hold; none if no case was predicted.
    pub planned_bytes: Option<Bytes>,
    pub peak_rss_bytes: Bytes,
    /// The program and its libraries: planned as mapped, resident as far as they were touched.
    pub code: MappedFiles,
}

impl Report {
    /// That no case failed.
    pub fn check(&self) -> Outcome {
        let Some(first) = self.failed.first() else { return Ok(()) };
        let failed = self.failed.len();
        let of = failed + self.cases.len() + self.kept.len();
        let which = if failed == 1 { "" } else { ", the first" };
        let message = format!("{failed} of {of} cases could not be predicted{which}: {}", first.error);
        Err(Failure::new(message, first.hint.as_str()))
    }
}

/// Segments every image of the input.
pub fn predict_all(request: &PredictRequest, stop: &AtomicBool, quiet: bool) -> Outcome<Report> {
    let overlap = request.options.overlap;
    if !(0.0..1.0).contains(&overlap) {
        let message = format!("--overlap {overlap} is not at least 0 and less than 1");
        return Err(Failure::new(message, "half of a window, --overlap 0.5, is what most take"));
    }
    keep_apart(&request.input, &request.output)?;
    let model = Model::open(&request.model, request.checkpoint)?;
    let dataset = &model.config.task.segmentation()?.dataset;
    let cases = Dataset::images(&request.input, &dataset.channels, &dataset.file_ending)?;
    let to = Destination {
        folder: request.output.clone(),
        ending: prediction_ending(&dataset.file_ending).into(),
        overwrite: request.overwrite,
    };
    to.check(&cases)?;
    let budget = Budget::new(limits(&System::default(), request.ram).line);
    let folds = model.weights.len();
    let output = |error| Failure::of_path(&request.output, &error);
    plimsoll_disk::create_dir_all(&request.output).map_err(output)?;
    sweep(&request.output).map_err(output)?;
    let engine = request.backend.identity();
    let mut predictor = Predictor::new(model, request.options, Arc::clone(&request.backend), &budget)?;
    let mut watcher = Watcher::new(quiet);
    let found = predict_cases(&mut predictor, &cases, &to, stop, &mut |progress| watcher.see(progress))?;
    let (mut cases, mut kept, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for CaseReport { case, file, outcome } in found.cases {
        match outcome {
            CaseOutcome::Predicted { windows, seconds, plan } => {
                cases.push(Predicted { case, file, windows, seconds, plan });
            }
            CaseOutcome::Kept => kept.push(Kept { case, file }),
            CaseOutcome::Failed(error) => {
                let error = Failure::from(error);
                let (text, hint) = (of_case(&case, error.line()), error.hint().into());
                failed.push(Failed { case, error: text, hint });
            }
        }
    }
    match kept.len() {
        0 => {}
        1 => eprintln!("warning: 1 prediction is there already and was kept; --overwrite replaces it"),
        n => eprintln!("warning: {n} predictions are there already and were kept; --overwrite replaces them"),
    }
    let planned_bytes = cases.iter().map(|case| case.plan.total_bytes).max();
    let (peak_rss_bytes, code) = (resident()?.peak, mapped_files()?);
    Ok(Report { folds, engine, cases, kept, failed, planned_bytes, peak_rss_bytes, code })
}

/// Refuses to write label maps into the folder of the images: they would be taken for images the next time, or stand in their
/// place.
fn keep_apart(input: &Path, output: &Path) -> Outcome {
    let same = match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input == output,
        // What is not there yet is another folder, and what cannot be reached is said when it is read.
        _ => false,
    };
    if !same {
        return Ok(());
    }
    let message =
        format!("{} is the folder of the images: labels would stand in their place", output.display());
    Err(Failure::new(message, "write the labels to another folder with -o"))
}

/// What is wrong with a case, beginning with its name.
fn of_case(case: &str, error: String) -> String {
    let error = error.strip_prefix("case ").unwrap_or(&error);
    match error.starts_with(case) {
        true => error.into(),
        false => format!("{case}: {error}"),
    }
}

/// Shows how far the cases are.
pub struct Watcher {
    quiet: bool,
    /// The bar of the present case, and when its first window began.
    case: Option<(Progress, Instant)>,
    left: TimeLeft,
}

impl Watcher {
    pub fn new(quiet: bool) -> Watcher {
        Watcher { quiet, case: None, left: TimeLeft::default() }
    }

    pub fn see(&mut self, progress: FolderProgress<'_>) {
        match progress {
            FolderProgress::Window { number, of, case, windows } => {
                let (bar, start) = self.case.get_or_insert_with(|| {
                    let what = format!("case {number} of {of}, windows");
                    (Progress::new(what, windows.of as u64, self.quiet), Instant::now())
                });
                let seconds = start.elapsed().as_secs_f64();
                let left = self.left.of_present(seconds, windows.windows, windows.of, of - number);
                let note = left.map(|(this, all)| {
                    let (this, all) = (duration(this), duration(all));
                    format!("{}: {this} left, {all} for all", case.id)
                });
                bar.set(windows.windows as u64, note.unwrap_or_else(|| case.id.clone()));
            }
            FolderProgress::Case { number, of, report } => {
                let bar = self.case.take().map(|(bar, _)| bar);
                let bar = bar.unwrap_or_else(|| Progress::new("", 0, self.quiet));
                bar.finish();
                self.say_end(&bar, number, of, report);
            }
        }
    }

    fn say_end(&mut self, bar: &Progress, number: usize, of: usize, report: &CaseReport) {
        let left = |times: &TimeLeft| match times.of_cases(of - number) {
            Some(left) if number < of => format!("; about {} left", duration(left)),
            _ => String::new(),
        };
        match &report.outcome {
            CaseOutcome::Predicted { windows, seconds, .. } => {
                self.left.done(*seconds);
                let left = left(&self.left);
                let case = &report.case;
                bar.note(format!("case {number} of {of}: {case}, {windows} windows in {seconds:.1} s{left}"));
            }
            CaseOutcome::Failed(error) => bar.say(told(&report.case, error)),
            CaseOutcome::Kept => {}
        }
    }
}

fn told(case: &str, error: &InferError) -> String {
    of_case(case, one_line(error))
}
