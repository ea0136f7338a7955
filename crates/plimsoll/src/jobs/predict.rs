//! Segmenting images with a trained network.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use plimsoll_data::{Case, Dataset, FoundImages, LengthUnit, RefusedImage, prediction_ending};
use plimsoll_infer::{
    CaseReport, CaseSpacing, Destination, FolderProgress, InferError, LabelNames, Outcome as CaseOutcome,
    PredictOptions, Predictor, predict_cases,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::nnunet::NnUnetChoice;
use plimsoll_models::{OpenOptions, OpenedModel, SegmentationModel, WindowLayout};
use plimsoll_plan::Backend;
use plimsoll_report::duration::duration;
use plimsoll_run::{CheckpointKind, FolderUse, one_line};

use super::bids;
use super::cascade::earlier_labels;
use super::finished_cases::FinishedCases;
use super::label_folder::{LabelFolder, make_folder};
use super::outliers::{Counting, OutlierRemedy, WindowCounts};
use super::prediction_parts::{self, PartLock};
use super::prediction_plan::CaseFiles;
use super::prediction_record::{Record, RecordFiles};
use super::prediction_report::{Cases, Failed, Found, ImageWarning, Kept, Predicted, PredictionReport};
use super::previews::Previews;
use super::steps::StepChoice;
use crate::backend::{DeviceName, all_cores};
use crate::context::{Context, Progress, TimeLeft};
use crate::error::{Error, Outcome};
use crate::part::{Part, Share};

/// Options of predictions of volumes.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    /// The unit that lengths in headers of images are in, whatever headers say.
    pub unit: Option<LengthUnit>,
    /// The parts of a model folder of nnU-Net to use.
    pub nnunet: Option<NnUnetChoice>,
    /// The labels of an earlier stage of a cascade; `None` if that stage predicts them.
    pub earlier: Option<PathBuf>,
    /// Writes probabilities beside labels.
    pub probabilities: bool,
    /// Steps that are done after each prediction.
    pub postprocessing: StepChoice,
    /// The spacing of cases with far more windows than the others; `None` for the model's spacing.
    pub outlier_spacing: Option<CaseSpacing>,
    /// The axes of the network along which windows are mirrored; `None` for all axes that the model allows.
    pub mirror_axes: Option<[bool; 3]>,
    /// Draws a picture of each case beside its labels.
    pub preview: bool,
    /// Reports a description of the model.
    pub verbose: bool,
    /// The input is a data set of BIDS, and labels become a derivative of it: what the names of its images end in, one for each channel, or
    /// nothing where that is what the channels are called.
    pub bids: Option<Vec<String>>,
}

impl VolumeOptions {
    /// The naming scheme of label files.
    pub fn names(&self) -> LabelNames {
        if self.bids.is_some() { LabelNames::Bids } else { LabelNames::Cases }
    }
}

impl PredictRequest {
    /// Predicting on the processor with all cores, with the final weights of a model, windows that overlap by half, and its own steps of
    /// post-processing.
    ///
    /// # Errors
    /// Returns an error if the processor's threads cannot be started.
    pub fn new(
        model: impl Into<PathBuf>,
        input: impl Into<PathBuf>,
        output: impl Into<PathBuf>,
    ) -> Outcome<PredictRequest> {
        let threads = all_cores();
        Ok(PredictRequest {
            model: model.into(),
            checkpoint: CheckpointKind::Final,
            volumes: VolumeOptions { postprocessing: StepChoice::OfModel, ..VolumeOptions::default() },
            input: input.into(),
            output: output.into(),
            overwrite: false,
            options: PredictOptions::new(0.5, false, threads),
            part: None,
            ram: None,
            backend: DeviceName::Cpu.open(threads, None)?,
        })
    }

    /// Finds the images for a model.
    pub fn images(&self, model: &SegmentationModel, budget: &Budget) -> Outcome<FoundImages> {
        let mut found = match &self.volumes.bids {
            Some(suffixes) => bids::images(&self.input, suffixes, model, budget)?,
            None => Dataset::find_images(&self.input, &model.channels, &model.file_ending, budget)?,
        };
        found.cases.iter_mut().for_each(|case| case.reading.unit = self.volumes.unit);
        Ok(found)
    }
}

/// Images to be segmented.
#[derive(Clone)]
pub struct PredictRequest {
    /// A model: a folder or a file.
    pub model: PathBuf,
    /// The kind of weights.
    pub checkpoint: CheckpointKind,
    /// Options of volumes.
    pub volumes: VolumeOptions,
    /// A folder of images, or one image.
    pub input: PathBuf,
    /// The folder of label maps.
    pub output: PathBuf,
    /// Replaces existing predictions.
    pub overwrite: bool,
    /// How.
    pub options: PredictOptions,
    /// The part of the images that is predicted; `None` for all. Several processes predict the parts into the same folder.
    pub part: Option<Part>,
    /// The memory limit; `None` for the limit of the machine.
    pub ram: Option<Bytes>,
    /// The backend that runs programs.
    pub backend: Arc<dyn Backend>,
}

/// A model that is to predict.
pub(super) struct Opened {
    /// Its own folder.
    pub(super) folder: PathBuf,
    pub(super) model: SegmentationModel,
    /// The configuration of a cascade whose labels it takes beside the image, if it does.
    pub(super) previous: Option<String>,
}

/// Opens a model.
pub(super) fn open(request: &PredictRequest, budget: &Budget, context: &Context) -> Outcome<Opened> {
    let mut opened = open_model(request, budget, context)?;
    // Images of another format than those that it was trained on are the same to it.
    let ending = &mut opened.model.file_ending;
    *ending = match &request.volumes.bids {
        // As BIDS has images, and labels.
        Some(_) => bids::ENDING.into(),
        None => Dataset::input_ending(&request.input, ending)?,
    };
    if let Some(chosen) = request.volumes.mirror_axes {
        let allowed = opened.model.mirror_axes;
        if let Some(axis) = (0..3).find(|axis| chosen[*axis] && !allowed[*axis]) {
            let all: Vec<String> =
                (0..3).filter(|axis| allowed[*axis]).map(|axis| axis.to_string()).collect();
            let message =
                format!("{} was not trained with mirroring along axis {axis}", request.model.display());
            let hint = match all.is_empty() {
                true => "leave ‹mirror_axes› out: it was trained without mirroring".to_string(),
                false => format!("choose from its axes with ‹mirror_axes={}›", all.join(",")),
            };
            return Err(Error::new(message, hint));
        }
        opened.model.mirror_axes = chosen;
    }
    Ok(opened)
}

fn open_model(request: &PredictRequest, budget: &Budget, context: &Context) -> Outcome<Opened> {
    let nnunet = request.volumes.nnunet.clone().unwrap_or_default();
    let options = OpenOptions { checkpoint: request.checkpoint, nnunet, ..OpenOptions::default() };
    let opened = OpenedModel::open(&request.model, &options, budget)?;
    if request.volumes.verbose {
        opened.lines().iter().for_each(|line| context.note(line));
    }
    let (folder, previous) = (opened.path().to_path_buf(), opened.previous().map(String::from));
    Ok(Opened { folder, model: opened.into_segmentation()?, previous })
}

/// Refuses labels of an earlier stage that none of the models takes.
pub(super) fn expect_earlier_used(request: &PredictRequest, models: &[&Opened]) -> Outcome {
    let Some(given) = &request.volumes.earlier else { return Ok(()) };
    if models.iter().any(|opened| opened.previous.is_some()) {
        return Ok(());
    }
    let folders: Vec<String> = models.iter().map(|opened| opened.folder.display().to_string()).collect();
    let message = format!("-prev_stage_predictions {} has no effect", given.display());
    let hint = format!("leave it out: {} is not a later stage of a cascade", folders.join(", or "));
    Err(Error::new(message, hint))
}

/// Segments every image of the input, or of one part of them.
pub fn predict(request: &PredictRequest, context: &Context) -> Outcome<PredictionReport> {
    predict_share(request, None, context)
}

/// Segments the images of a share; without one, of the requested part, or all. The earlier stage of a cascade has the share of the later one,
/// since its own windows would be divided otherwise.
pub(super) fn predict_share(
    request: &PredictRequest,
    share: Option<&Share>,
    context: &Context,
) -> Outcome<PredictionReport> {
    let start = Instant::now();
    let budget = Budget::new(context.limits(request.ram).limit);
    expect_sound(request, &budget)?;
    let labels = LabelFolder::open(request, &budget, context)?;
    let opened = open(request, &budget, context)?;
    expect_earlier_used(request, &[&opened])?;
    let found = request.images(&opened.model, &budget)?;
    let share = share.cloned().or_else(|| request.share(&[&opened], &found, context));
    let is_own = |case: &str| share.as_ref().is_none_or(|share| share.has(case));
    let FoundImages { cases, refused, memory: _memory } = found;
    let refused = refuse(refused.into_iter().filter(|image| is_own(&image.case)).collect(), context);
    let _lock = share.as_ref().map(|share| PartLock::take(&request.output, share.part)).transpose()?;
    // Before anything is predicted: another program's folder is refused.
    if request.volumes.bids.is_some() {
        bids::describe(request, &opened, labels.is_kept_apart())?;
    }
    let earlier = earlier_labels(request, &opened, share.as_ref(), context)?;
    let Opened { model, .. } = opened;
    let previews = request.volumes.preview.then(|| Previews::new(&cases, &model));
    let to = Destination {
        folder: labels.folder.clone(),
        names: request.volumes.names(),
        ending: prediction_ending(&model.file_ending).into(),
        overwrite: request.overwrite,
        probabilities: request.volumes.probabilities,
        earlier,
    };
    // Where labels are when all is done: below it those that are to be processed.
    let last = labels.last(&to);
    last.check(&cases)?;
    if to.ending != model.file_ending {
        context.note(format_args!(
            "images end in {}, which labels cannot be written as; choose one of {}",
            model.file_ending, to.ending
        ));
    }
    let is_done = |case: &Case| labels.is_processed(case, &to);
    let own = cases.iter().filter(|case| is_own(&case.id)).cloned();
    let (done, left): (Vec<Case>, Vec<Case>) = own.partition(is_done);
    let folds = model.weights.len();
    let warnings = ImageWarning::collect(left.iter().filter(|case| !to.keeps(case)), context);
    let predicted = left.iter().filter(|case| !to.keeps(case));
    forget(request, predicted, &budget)?;
    let mut finished = FinishedCases::none(request, folds, context);
    let mut finish = |predicted: &Predicted| finished.add(predicted);
    let job = PredictionJob { request, budget: &budget, context };
    let found = job.predict_into(&to, Some(&labels), &cases, &left, model, &mut finish)?;
    let mut cases = Cases::from(found);
    cases.failed.splice(..0, refused);
    labels.process(&mut cases, &budget, context.stop.flag())?;
    cases.kept.extend(done.iter().map(|case| Kept::new(case.id.clone(), last.file(case))));
    let not_drawn =
        previews.map_or(Ok(Vec::new()), |previews| previews.draw(&cases, &budget, context.stop.flag()))?;
    let report = PredictionReport::write(job, cases, warnings, not_drawn, finished, share.as_ref(), start)?;
    share.map_or(Ok(()), |share| prediction_parts::merge(request, &share, &budget, context))?;
    Ok(report)
}

/// Prints why images are refused, and returns them as cases that failed.
pub(super) fn refuse(refused: Vec<RefusedImage>, context: &Context) -> Vec<Failed> {
    let fail = |RefusedImage { case, error }| {
        let failed = Failed::new(case, error);
        context.note(&failed.error);
        failed
    };
    refused.into_iter().map(fail).collect()
}

/// Refuses what can be predicted with no model.
pub(super) fn expect_sound(request: &PredictRequest, budget: &Budget) -> Outcome {
    keep_apart(&request.input, &request.output)?;
    FolderUse::Predictions.expect_in(&request.output)?;
    // Read again when it is replaced: until then its memory is the network's.
    Record::read(&RecordFiles::of(request), budget).map(|_| ())
}

/// Removes the records of labels that are about to be predicted. Cases that a killed call had finished are then in the record.
pub(super) fn forget<'a>(
    request: &PredictRequest,
    cases: impl Iterator<Item = &'a Case>,
    budget: &Budget,
) -> Outcome {
    let cases: BTreeSet<&str> = cases.map(|case| case.id.as_str()).collect();
    prediction_parts::forget(request, &cases, budget)
}

/// A request with the budget and the observer of its call.
#[derive(Clone, Copy)]
pub(super) struct PredictionJob<'a> {
    pub(super) request: &'a PredictRequest,
    pub(super) budget: &'a Budget,
    pub(super) context: &'a Context,
}

impl PredictionJob<'_> {
    /// Predicts `cases`, the unfinished ones of `all`, into a folder that is created if it does not exist. Each finished case is passed to
    /// `finish`. Files derived from earlier labels of these cases are removed first.
    pub(super) fn predict_into(
        &self,
        to: &Destination,
        labels: Option<&LabelFolder>,
        all: &[Case],
        cases: &[Case],
        model: SegmentationModel,
        finish: &mut dyn FnMut(&Predicted),
    ) -> Outcome<Found> {
        let PredictionJob { request, budget, context } = *self;
        to.check(cases)?;
        let can_overlap = can_overlap(&model, request.options);
        let mut predictor = Predictor::new(model, request.options, Arc::clone(&request.backend), budget)?;
        let left: BTreeSet<&str> =
            cases.iter().filter(|case| !to.keeps(case)).map(|case| case.id.as_str()).collect();
        let files: Vec<CaseFiles> = all.iter().map(|case| CaseFiles::new(case.clone(), to)).collect();
        let counting = files.iter().map(|files| Counting {
            request: files.request(),
            is_kept: !left.contains(files.case.id.as_str()),
        });
        let remedy = OutlierRemedy::asked(request.volumes.outlier_spacing);
        let windows = WindowCounts::count(&mut predictor, &counting.collect::<Vec<_>>(), remedy, context)?;
        let folders: BTreeSet<PathBuf> =
            cases.iter().filter_map(|case| Some(to.file(case).parent()?.to_path_buf())).collect();
        std::iter::once(&to.folder).chain(&folders).try_for_each(|folder| make_folder(folder))?;
        if let Some(labels) = labels {
            labels.remove_outdated(cases.iter().filter(|case| left.contains(case.id.as_str())), to)?;
        }
        let mut watcher = PredictionWatcher::new(context).knowing(windows.clone(), can_overlap);
        let report = predict_cases(&mut predictor, cases, to, context.stop.flag(), &mut |progress| {
            watcher.see(progress);
            if let FolderProgress::Case { report, .. } = progress {
                Predicted::new(report, &windows).iter().for_each(&mut *finish);
            }
        })?;
        Ok(Found { report, windows })
    }
}

/// The share of a window from one to the next that a hint asks for with `--overlap 0.25`.
const FAR_STEP: f64 = 0.75;

/// Returns `true` if `--overlap 0.25` would reduce the windows of a model's cases.
pub(super) fn can_overlap(model: &SegmentationModel, options: PredictOptions) -> bool {
    matches!(model.windows, WindowLayout::Even) && options.step < FAR_STEP
}

/// Refuses to write label maps into the folder of the images: they would be taken for images the next time, or stand in their
/// place.
fn keep_apart(input: &Path, output: &Path) -> Outcome {
    let same = match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input == output,
        // A missing output is another folder, and unreadable paths are reported when they are read.
        _ => false,
    };
    if !same {
        return Ok(());
    }
    let message = format!("{} is the folder of the images: labels would replace them", output.display());
    Err(Error::new(message, "write the labels to another folder with ‹output›"))
}

/// The error of a case, beginning with its name.
pub(super) fn case_error(case: &str, error: String) -> String {
    let error = error.strip_prefix("case ").unwrap_or(&error);
    match error.starts_with(case) {
        true => error.into(),
        false => format!("{case}: {error}"),
    }
}

/// Shows how far the cases are.
pub struct PredictionWatcher<'a> {
    context: &'a Context,
    /// The bar of the present case, and when its first window began.
    case: Option<(Progress, Instant)>,
    left: TimeLeft,
    windows: WindowCounts,
    can_overlap: bool,
}

impl<'a> PredictionWatcher<'a> {
    /// A watcher whose events go to a context.
    pub fn new(context: &'a Context) -> PredictionWatcher<'a> {
        PredictionWatcher {
            context,
            case: None,
            left: TimeLeft::default(),
            windows: WindowCounts::default(),
            can_overlap: false,
        }
    }

    /// With the windows of all cases: one that has far more than the others is called out before it begins, with `--overlap` as a way out
    /// of it where that makes them fewer.
    #[must_use]
    pub fn knowing(self, windows: WindowCounts, can_overlap: bool) -> PredictionWatcher<'a> {
        PredictionWatcher { windows, can_overlap, ..self }
    }

    /// Passes progress on as events.
    pub fn see(&mut self, progress: FolderProgress<'_>) {
        match progress {
            FolderProgress::Window { number, of, case, windows } => {
                if self.case.is_none()
                    && let Some(outlier) = self.windows.outlier(&case.id)
                {
                    // Without the time: rates of this machine are measured for `--plan` alone.
                    self.context.warn(format_args!("{}", outlier.line(&case.id, None, self.can_overlap)));
                }
                let (bar, start) = self.case.get_or_insert_with(|| {
                    let what = format!("case {number} of {of}, windows");
                    (self.context.work(what, windows.of as u64), Instant::now())
                });
                let seconds = start.elapsed().as_secs_f64();
                let more = self.windows.behind(&case.id).unwrap_or((of - number) as f64);
                let left = self.left.for_present_case(seconds, windows.windows, windows.of, more);
                let note = left.map(|(this, all)| {
                    let (this, all) = (duration(this), duration(all));
                    format!("{}: {this} left, {all} for all", case.id)
                });
                bar.set(windows.windows as u64, note.unwrap_or_else(|| case.id.clone()));
            }
            FolderProgress::Case { number, of, report } => {
                let bar = self.case.take().map(|(bar, _)| bar);
                self.say_end(bar.as_ref(), number, of, report);
            }
        }
    }

    fn say_end(&mut self, bar: Option<&Progress>, number: usize, of: usize, report: &CaseReport) {
        let more = self.windows.behind(&report.case).unwrap_or((of - number) as f64);
        let left = |times: &TimeLeft| match times.for_cases(more) {
            Some(left) if number < of => format!("; about {} left", duration(left)),
            _ => String::new(),
        };
        match &report.outcome {
            CaseOutcome::Predicted { windows, seconds, .. } => {
                self.left.done(*seconds);
                let left = left(&self.left);
                let case = &report.case;
                let line =
                    format!("case {number} of {of}: {case}, {windows} windows in {seconds:.1} s{left}");
                match bar {
                    Some(bar) => bar.note(line),
                    None => self.context.note(line),
                }
            }
            CaseOutcome::Failed(error) => self.context.note(failure_line(&report.case, error)),
            CaseOutcome::Kept => {}
        }
    }
}

fn failure_line(case: &str, error: &InferError) -> String {
    case_error(case, one_line(error))
}
