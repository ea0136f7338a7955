//! Segmenting images with a trained network.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use plimsoll_data::{Case, Dataset, prediction_ending};
use plimsoll_disk::atomic::sweep;
use plimsoll_infer::{
    CaseReport, Destination, FolderProgress, FolderReport, InferError, Outcome as CaseOutcome,
    PredictOptions, PredictPlan, Predictor, predict_cases,
};
use plimsoll_memory::{Budget, Bytes, MappedFiles, System, limits, mapped_files, resident};
use plimsoll_plan::Backend;
use plimsoll_run::nnunet::{
    KeepLargest, NnUnetChoice, NnUnetModel, find_model, is_nnunet, read_postprocessing,
};
use plimsoll_run::{CheckpointKind, Model, SegmentationModel};
use serde::Serialize;

use super::keep_largest::keep_largest;
use crate::duration::duration;
use crate::failure::{Failure, Outcome, one_line};
use crate::progress::{Progress, TimeLeft};

/// What predictions of volumes have beside those of whole images.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    /// What of the folder is used, where it is a model of nnU-Net.
    pub nnunet: Option<NnUnetChoice>,
    /// Labels of an earlier stage of a cascade; none where it is to predict them.
    pub earlier: Option<PathBuf>,
    /// Whether probabilities are written beside labels.
    pub probabilities: bool,
    /// Steps that are done after each prediction.
    pub postprocessing: Option<PathBuf>,
    /// Whether it is said what the model is.
    pub verbose: bool,
}

/// Images to be segmented.
#[derive(Clone)]
pub struct PredictRequest {
    /// The folder of a run, or of one fold.
    pub model: PathBuf,
    /// Which weights.
    pub checkpoint: CheckpointKind,
    /// What only volumes have.
    pub volumes: VolumeOptions,
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

/// The folder below that of labels in which they are as they were before post-processing.
const UNPROCESSED: &str = "unprocessed";

/// A model that is to predict.
pub(super) struct Opened {
    /// Its own folder.
    pub(super) folder: PathBuf,
    pub(super) model: SegmentationModel,
    /// The configuration of a cascade whose labels it takes beside the image, if it does.
    previous: Option<String>,
}

/// Opens a model.
pub(super) fn open(request: &PredictRequest, budget: &Budget) -> Outcome<Opened> {
    let Some(choice) = &request.volumes.nnunet else {
        let model = SegmentationModel::try_from(Model::open(&request.model, request.checkpoint)?)?;
        return Ok(Opened { folder: request.model.clone(), model, previous: None });
    };
    let folder = find_model(&request.model)?;
    let opened = NnUnetModel::open(&folder, choice, budget)?;
    if request.volumes.verbose {
        opened.lines().iter().for_each(|line| eprintln!("{line}"));
    }
    Ok(Opened { folder, model: opened.model, previous: opened.previous })
}

/// Refuses labels of an earlier stage that none of the models takes.
pub(super) fn expect_earlier_used(request: &PredictRequest, models: &[&Opened]) -> Outcome {
    let Some(given) = &request.volumes.earlier else { return Ok(()) };
    if models.iter().any(|opened| opened.previous.is_some()) {
        return Ok(());
    }
    let folders: Vec<String> = models.iter().map(|opened| opened.folder.display().to_string()).collect();
    let message = format!("-prev_stage_predictions {} has no effect", given.display());
    let hint = format!("leave it out: {} is no later stage of a cascade", folders.join(", or "));
    Err(Failure::new(message, hint))
}

/// Where the labels of the earlier stage are that a model takes, if it takes any: those that are given, or else that stage predicts them
/// now.
pub(super) fn earlier_labels(
    request: &PredictRequest,
    opened: &Opened,
    stop: &AtomicBool,
    quiet: bool,
) -> Outcome<Option<PathBuf>> {
    let Some(previous) = &opened.previous else { return Ok(None) };
    match &request.volumes.earlier {
        Some(given) => Ok(Some(given.clone())),
        None => predict_earlier(request, &opened.folder, previous, stop, quiet).map(Some),
    }
}

/// Predicts with the earlier stage of a cascade, whose folder is beside that of the later one, into a folder of its name below that of
/// the labels.
fn predict_earlier(
    request: &PredictRequest,
    folder: &Path,
    previous: &str,
    stop: &AtomicBool,
    quiet: bool,
) -> Outcome<PathBuf> {
    let hint = "name the folder of its labels with -prev_stage_predictions";
    let own = folder.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once("__"));
    let Some((trained, _)) = own else {
        let message =
            format!("{} takes labels of {previous}, and is not named as nnU-Net names it", folder.display());
        return Err(Failure::new(message, hint));
    };
    let model = folder.with_file_name(format!("{trained}__{previous}"));
    if !is_nnunet(&model)? {
        let message =
            format!("{} takes labels of {previous}, but {} is no model", folder.display(), model.display());
        return Err(Failure::new(message, hint));
    }
    let output = request.output.join(previous);
    let volumes = VolumeOptions {
        nnunet: request.volumes.nnunet.clone(),
        verbose: request.volumes.verbose,
        ..VolumeOptions::default()
    };
    let stage = PredictRequest { model, volumes, output: output.clone(), ..request.clone() };
    predict_all(&stage, stop, quiet)?.check()?;
    Ok(output)
}

/// Where labels are written, and what is done with them after that.
pub(super) struct LabelFolder {
    /// The folder that a prediction is written to.
    pub(super) folder: PathBuf,
    /// The folder that they are in when all is done, if steps are done on them.
    steps: Option<(PathBuf, Vec<KeepLargest>)>,
    threads: usize,
}

impl LabelFolder {
    /// That of a request.
    pub(super) fn of(request: &PredictRequest, budget: &Budget) -> Outcome<LabelFolder> {
        let (output, threads) = (request.output.clone(), request.options.threads);
        match &request.volumes.postprocessing {
            None => Ok(LabelFolder { folder: output, steps: None, threads }),
            Some(path) => {
                let steps = read_postprocessing(path, budget)?;
                Ok(LabelFolder { folder: output.join(UNPROCESSED), steps: Some((output, steps)), threads })
            }
        }
    }

    /// Whether steps are done on labels.
    fn is_processed(&self) -> bool {
        self.steps.is_some()
    }

    /// Makes it, without what a killed process left in it.
    pub(super) fn make(&self) -> Outcome {
        make_folder(&self.folder)
    }

    /// Does the steps on labels that are new, or that have none of it yet, and says where all labels are then.
    pub(super) fn process(&self, cases: &mut Cases, budget: &Budget, stop: &AtomicBool) -> Outcome {
        let Some((output, steps)) = &self.steps else { return Ok(()) };
        let new = cases.predicted.iter_mut().map(|case| (&mut case.file, true));
        for (file, is_new) in new.chain(cases.kept.iter_mut().map(|case| (&mut case.file, false))) {
            let Some(name) = file.file_name() else { continue };
            let processed = output.join(name);
            if is_new || !processed.exists() {
                if stop.load(Ordering::Relaxed) {
                    return Err(Failure::new("interrupted", "the same command goes on with what is missing"));
                }
                keep_largest(file, &processed, steps, budget, self.threads)?;
            }
            *file = processed;
        }
        Ok(())
    }
}

fn make_folder(folder: &Path) -> Outcome {
    let failed = |error| Failure::of_path(folder, &error);
    plimsoll_disk::create_dir_all(folder).map_err(failed)?;
    sweep(folder).map_err(failed)?;
    Ok(())
}

/// A case that was predicted.
#[derive(Serialize)]
pub struct Predicted {
    pub case: String,
    pub file: PathBuf,
    pub windows: usize,
    pub seconds: f64,
    /// What it held; none where probabilities were there already and only their mean was missing.
    pub plan: Option<PredictPlan>,
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

impl Failed {
    /// A case, and why it could not be predicted.
    pub(super) fn new(case: String, error: InferError) -> Failed {
        let error = Failure::from(error);
        let (text, hint) = (of_case(&case, error.line()), error.hint().into());
        Failed { case, error: text, hint }
    }
}

/// What came of each case.
#[derive(Default)]
pub(super) struct Cases {
    pub(super) predicted: Vec<Predicted>,
    pub(super) kept: Vec<Kept>,
    pub(super) failed: Vec<Failed>,
}

impl From<FolderReport> for Cases {
    fn from(found: FolderReport) -> Cases {
        let mut cases = Cases::default();
        for CaseReport { case, file, outcome } in found.cases {
            match outcome {
                CaseOutcome::Predicted { windows, seconds, plan } => {
                    cases.predicted.push(Predicted { case, file, windows, seconds, plan: Some(plan) });
                }
                CaseOutcome::Kept => cases.kept.push(Kept { case, file }),
                CaseOutcome::Failed(error) => cases.failed.push(Failed::new(case, error)),
            }
        }
        cases
    }
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
    /// Of cases that so many folds of weights predicted.
    pub(super) fn of(cases: Cases, folds: usize, engine: String) -> Outcome<Report> {
        let Cases { predicted, kept, failed } = cases;
        match kept.len() {
            0 => {}
            1 => eprintln!("warning: 1 prediction is there already and was kept; --overwrite replaces it"),
            n => eprintln!(
                "warning: {n} predictions are there already and were kept; --overwrite replaces them"
            ),
        }
        let planned_bytes = predicted.iter().filter_map(|case| Some(case.plan.as_ref()?.total_bytes)).max();
        let (peak_rss_bytes, code) = (resident()?.peak, mapped_files()?);
        Ok(Report { folds, engine, cases: predicted, kept, failed, planned_bytes, peak_rss_bytes, code })
    }

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
    expect_sound(request)?;
    let budget = Budget::new(limits(&System::default(), request.ram).line);
    let labels = LabelFolder::of(request, &budget)?;
    let opened = open(request, &budget)?;
    expect_earlier_used(request, &[&opened])?;
    let earlier = earlier_labels(request, &opened, stop, quiet)?;
    let Opened { model, .. } = opened;
    let cases = Dataset::images(&request.input, &model.channels, &model.file_ending)?;
    let to = Destination {
        folder: labels.folder.clone(),
        ending: prediction_ending(&model.file_ending).into(),
        overwrite: request.overwrite,
        probabilities: request.volumes.probabilities,
        earlier,
    };
    // Where labels are when all is done: below it those that are to be processed.
    let last = Destination { folder: request.output.clone(), ..to.clone() };
    last.check(&cases)?;
    // What is processed already is kept, whether or not what it was made of is still there.
    let is_done = |case: &Case| {
        let has_probabilities = to.probabilities(case).is_none_or(|file| file.exists());
        labels.is_processed() && !request.overwrite && last.file(case).exists() && has_probabilities
    };
    let (done, cases): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(is_done);
    let folds = model.weights.len();
    let found = predict_into(&to, (&cases[..], model), request, &budget, stop, quiet)?;
    let mut cases = Cases::from(found);
    labels.process(&mut cases, &budget, stop)?;
    cases.kept.extend(done.iter().map(|case| Kept { case: case.id.clone(), file: last.file(case) }));
    Report::of(cases, folds, request.backend.identity())
}

/// Refuses what can be predicted with no model.
pub(super) fn expect_sound(request: &PredictRequest) -> Outcome {
    keep_apart(&request.input, &request.output)
}

/// Predicts cases with a model, into a folder that is made.
pub(super) fn predict_into(
    to: &Destination,
    (cases, model): (&[Case], SegmentationModel),
    request: &PredictRequest,
    budget: &Budget,
    stop: &AtomicBool,
    quiet: bool,
) -> Outcome<FolderReport> {
    to.check(cases)?;
    make_folder(&to.folder)?;
    let mut predictor = Predictor::new(model, request.options, Arc::clone(&request.backend), budget)?;
    let mut watcher = Watcher::new(quiet);
    Ok(predict_cases(&mut predictor, cases, to, stop, &mut |progress| watcher.see(progress))?)
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
