//! TotalSegmentator's tasks with the weights that its users have: images become label maps with names.

mod extras;
mod input;
mod parts;
mod plan;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use plimsoll_data::{Case, Preparation, ZoomSteps};
use plimsoll_disk::atomic::sweep;
use plimsoll_graph::DType;
use plimsoll_infer::{
    CaseRequest, InferError, PartLabels, PredictOptions, PredictedCase, Predictor, RingStorage, Written,
    box_of_labels, merge_labels, split_labels, write_segmentation,
};
use plimsoll_memory::{Budget, Bytes, MappedFiles, System, limits, mapped_files, resident};
use plimsoll_plan::Backend;
use plimsoll_run::nnunet::{NnUnetChoice, NnUnetModel};
use plimsoll_run::total_segmentator::{Crop, Mode, Task, TaskModels, weights_folder};
use plimsoll_run::{FoldName, SegmentationModel};
use plimsoll_volume::{LabelTable, VolumeFile, VoxelBox, is_segmentation};
use serde::Serialize;

pub use self::extras::ExtraChoice;
use self::extras::{Extras, written};
use self::input::{Input, Kind};
use self::parts::PartsFolder;
pub use self::plan::plan_all;
use crate::failure::{Failure, Outcome};
use crate::jobs::prediction_plan::ring_line;
use crate::preview::{beside, preview_of};
use crate::progress::Progress;

/// What the names of label maps end in, and those of images in folders.
const ENDING: &str = ".nii.gz";

/// The share of a window from one to the next, of the tasks of the whole body and of all others.
const STEPS: [f64; 2] = [0.8, 0.5];

/// Images to be segmented.
pub struct SegmentRequest {
    /// The name of the task.
    pub task: String,
    /// How finely.
    pub mode: Mode,
    /// An image, a folder of images, or one of a series of DICOM.
    pub input: PathBuf,
    /// The folder of an image's masks; with `one_file`, the label map of an image. Of a folder of images, a folder of these.
    pub output: PathBuf,
    /// Whether labels go into one file with names, instead of a file for each.
    pub one_file: bool,
    /// What is made beside labels.
    pub extras: ExtraChoice,
    /// The labels that are wanted; all if none is named.
    pub subset: Vec<String>,
    /// The folder of weights, if it is not TotalSegmentator's own.
    pub weights: Option<PathBuf>,
    /// Whether files that are there are replaced.
    pub overwrite: bool,
    /// The line that was asked for.
    pub ram: Option<Bytes>,
    /// How sums of logits are stored; none where that follows from the line.
    pub ring: Option<RingStorage>,
    /// How features are stored; none where that is as the models say.
    pub precision: Option<DType>,
    /// Threads of kernels.
    pub threads: usize,
    /// What runs programs.
    pub backend: Arc<dyn Backend>,
}

/// An image that was segmented.
#[derive(Serialize)]
pub struct Segmented {
    pub image: PathBuf,
    /// Its label map, or the folder of its masks.
    pub output: PathBuf,
    pub seconds: f64,
    /// What the model that held most was planned to hold.
    pub planned_bytes: Bytes,
}

/// An image that could not be segmented.
#[derive(Serialize)]
pub struct Failed {
    pub image: PathBuf,
    pub error: String,
    pub hint: String,
}

/// What came of all images.
#[derive(Serialize)]
pub struct Report {
    pub task: String,
    pub license: String,
    pub images: Vec<Segmented>,
    /// Whose files were there already.
    pub kept: Vec<PathBuf>,
    pub failed: Vec<Failed>,
    pub peak_rss_bytes: Bytes,
    /// The program and its libraries: planned as mapped, resident as far as they were touched.
    pub code: MappedFiles,
}

/// Segments every image of the input.
pub fn segment_all(request: &SegmentRequest, stop: &AtomicBool, quiet: bool) -> Outcome<Report> {
    let task = Task::named(&request.task)?;
    let models = task.models(&request.task, request.mode)?;
    if let Some(unknown) = request.subset.iter().find(|class| task.value(class).is_none()) {
        let message = format!("`{unknown}` is no label of {}", request.task);
        return Err(Failure::new(message, "`plimsoll segment --list` names the labels of each task"));
    }
    let weights = match &request.weights {
        Some(folder) => folder.clone(),
        None => weights_folder()?,
    };
    let budget = Budget::new(limits(&System::default(), request.ram).line);
    let job = Job { request, task, models, weights, budget, stop, quiet };
    let kind = Kind::of(&request.input)?;
    let is_one = kind.is_one();
    job.expect_writable(is_one)?;
    job.expect_findable()?;
    job.expect_weights()?;
    let input = Input::open(&request.input, &kind, job.beside(&request.output), &job.budget, stop)?;
    let cases = &input.cases;
    let mut report = Report {
        task: request.task.clone(),
        license: task.license.clone(),
        images: Vec::new(),
        kept: Vec::new(),
        failed: Vec::new(),
        peak_rss_bytes: Bytes::ZERO,
        code: mapped_files()?,
    };
    let output = |case: &Case| match (is_one, request.one_file) {
        (true, _) => request.output.clone(),
        (false, true) => request.output.join(format!("{}{ENDING}", case.id)),
        (false, false) => request.output.join(&case.id),
    };
    let outputs: Vec<PathBuf> = cases.iter().map(output).collect();
    job.expect_apart(cases, &outputs)?;
    for (case, output) in cases.iter().zip(outputs) {
        let Some(image) = case.images.first().map(|image| image.path.clone()) else { continue };
        // What was named, and not what a series was brought into.
        let named = if let Kind::Series(_) = kind { request.input.clone() } else { image.clone() };
        let extras = job.extras(&output);
        let labels = job.labels_written(&output).filter(|_| !request.overwrite);
        let missing = labels.map(|labels| extras.missing(labels));
        let start = std::time::Instant::now();
        let made = match missing {
            Some(missing) if missing.is_empty() => Ok(None),
            // A label map that is there has all that its statistics and its preview are made of.
            Some(missing) if request.one_file && !is_segmentation(&output) => {
                job.make(&missing, &image, &output).map(|()| None)
            }
            _ => job.segment(case, &output, &extras).map(Some),
        };
        match made {
            Ok(None) => report.kept.push(output),
            Ok(Some(planned_bytes)) => {
                let seconds = start.elapsed().as_secs_f64();
                report.images.push(Segmented { image: named, output, seconds, planned_bytes });
            }
            Err(failure) if is_one || stop.load(std::sync::atomic::Ordering::Relaxed) => return Err(failure),
            Err(failure) => {
                report.failed.push(Failed {
                    image: named,
                    error: failure.line(),
                    hint: failure.hint().into(),
                });
            }
        }
    }
    report.peak_rss_bytes = resident()?.peak;
    Ok(report)
}

/// A task with all that its stages share.
struct Job<'a> {
    request: &'a SegmentRequest,
    task: &'static Task,
    models: &'static TaskModels,
    weights: PathBuf,
    budget: Budget,
    stop: &'a AtomicBool,
    quiet: bool,
}

/// A task that is run on an image, or a part of it.
struct Stage<'a> {
    name: &'a str,
    task: &'a Task,
    models: &'a TaskModels,
    /// The box of the stored image that is looked at.
    within: Option<VoxelBox>,
    /// The labels that are wanted; all if none is named.
    subset: &'a [String],
}

impl Job<'_> {
    /// That all models that will be needed are there, before anything is computed.
    fn expect_weights(&self) -> Outcome {
        let stages = [Some((self.request.task.clone(), self.request.mode)), self.rough()];
        for (name, mode) in stages.into_iter().flatten() {
            let models = Task::named(&name)?.models(&name, mode)?;
            for part in &models.parts {
                models.folder(part, &self.weights)?;
            }
        }
        Ok(())
    }

    /// That the task which finds the box has all labels that it is around.
    fn expect_findable(&self) -> Outcome {
        let (Some(crop), Some((name, _))) = (self.crop(), self.rough()) else { return Ok(()) };
        let rough = Task::named(&name)?;
        match crop.to.iter().find(|class| rough.value(class).is_none()) {
            None => Ok(()),
            Some(class) => {
                let message = format!(
                    "`{class}` cannot be looked for: {name}, which finds where to look, does not have it"
                );
                Err(Failure::new(message, "leave --roi-subset out, or the label out of it"))
            }
        }
    }

    /// Refuses to write labels over any of the images, under whatever name they are reached.
    fn expect_apart(&self, cases: &[Case], outputs: &[PathBuf]) -> Outcome {
        let real = |path: &Path| path.canonicalize().ok();
        let images: HashSet<PathBuf> = cases.iter().flat_map(Case::image_files).filter_map(real).collect();
        for (case, output) in cases.iter().zip(outputs) {
            let files = match self.request.one_file {
                true => vec![output.clone()],
                false => self.masks(output).collect(),
            };
            // What is not there yet is no image.
            if let Some(image) = files.iter().filter_map(|file| real(file)).find(|file| images.contains(file))
            {
                return Err(InferError::ReplacesImage { case: case.id.clone(), image }.into());
            }
        }
        Ok(())
    }

    /// The files of masks in a folder.
    fn masks(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        self.names().labels.into_iter().map(move |(_, name)| folder.join(format!("{name}{ENDING}")))
    }

    /// The task that finds the box which images are cut to.
    fn rough(&self) -> Option<(String, Mode)> {
        self.crop().map(|crop| crop.of(&self.request.task))
    }

    /// What images are cut to: as the task has it, or to the labels that are wanted.
    fn crop(&self) -> Option<Crop> {
        match &self.models.crop {
            Some(crop) => Some(crop.clone()),
            None if self.request.subset.is_empty() => None,
            None => Some(Crop::around(self.request.subset.clone())),
        }
    }

    /// The names of labels that are written.
    fn names(&self) -> LabelTable {
        let is_wanted =
            |class: &String| self.request.subset.is_empty() || self.request.subset.contains(class);
        let wanted = self.task.classes.iter().filter(|class| is_wanted(class));
        LabelTable {
            labels: wanted
                .filter_map(|class| Some((self.task.value(class)?.into(), class.clone())))
                .collect(),
        }
    }

    /// When the labels of an image were written last; none if not all are there.
    fn labels_written(&self, output: &Path) -> Option<SystemTime> {
        match self.request.one_file {
            true => written(output),
            false => {
                let all = self.masks(output).map(|mask| written(&mask));
                all.collect::<Option<Vec<SystemTime>>>()?.into_iter().max()
            }
        }
    }

    /// Refuses names that no label map can be written under, before anything is computed.
    fn expect_writable(&self, is_one: bool) -> Outcome {
        let (output, one_file) = (&self.request.output, self.request.one_file);
        let name = output.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let is_file =
            is_segmentation(output) || [".nii", ".nii.gz"].iter().any(|ending| name.ends_with(ending));
        let wrong = |why: &str, hint: &str| Err(Failure::new(format!("{} {why}", output.display()), hint));
        match (is_one && one_file, is_file) {
            (true, false) => wrong(
                "is no name of a label map",
                "let it end in .nii.gz or .nii, or in .seg.nrrd for 3D Slicer",
            ),
            (false, true) if is_one => {
                wrong("is the name of a file, but masks go into a folder", "say --ml for one file")
            }
            (false, true) => wrong("is the name of a file, but there may be several images", "name a folder"),
            _ => Ok(()),
        }
    }

    /// Where what is made beside labels goes.
    fn extras(&self, output: &Path) -> Extras {
        let ExtraChoice { statistics, preview, .. } = self.request.extras;
        let of_statistics = || match self.request.one_file {
            // Several label maps may be in a folder.
            true => beside(output, ".statistics.json"),
            false => output.join("statistics.json"),
        };
        let of_preview = || match self.request.one_file {
            true => preview_of(output),
            false => output.join("preview.png"),
        };
        Extras { statistics: statistics.then(of_statistics), preview: preview.then(of_preview) }
    }

    /// The folder that an output goes to.
    fn beside<'b>(&self, output: &'b Path) -> &'b Path {
        match self.request.one_file {
            true => output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
            false => output,
        }
    }

    /// Segments an image. Returns what the model that held most was planned to hold.
    fn segment(&self, case: &Case, output: &Path, extras: &Extras) -> Outcome<Bytes> {
        let Some(image) = case.images.first().map(|image| image.path.as_path()) else {
            return Err(Failure::new(format!("{} has no image", case.id), "name an image"));
        };
        let beside = self.beside(output);
        plimsoll_disk::create_dir_all(beside).map_err(|error| Failure::of_path(beside, &error))?;
        sweep(beside).map_err(|error| Failure::of_path(beside, &error))?;
        let parts = PartsFolder::make(beside, &case.id)?;
        let mut most = Bytes::ZERO;
        let names = self.names();
        let mut found = Vec::new();
        let within = match (self.crop(), self.rough()) {
            (Some(crop), Some((name, mode))) => {
                let task = Task::named(&name)?;
                let models = task.models(&name, mode)?;
                let stage = Stage { name: &name, task, models, within: None, subset: &[] };
                let rough = self.labels(&stage, case, &parts, &mut most)?;
                Some(self.box_around(image, &rough, (&crop, task))?)
            }
            _ => None,
        };
        // A box around nothing: there is nothing to find.
        if within != Some(None) {
            let stage = Stage {
                name: &self.request.task,
                task: self.task,
                models: self.models,
                within: within.flatten(),
                subset: &self.request.subset,
            };
            found = self.labels(&stage, case, &parts, &mut most)?;
        }
        let is_whole = self.request.one_file && !is_segmentation(output);
        let whole = if is_whole { output.to_path_buf() } else { parts.file("whole") };
        merge_labels(&found, &Written { path: &whole, image, names: &names }, &self.budget, self.stop)?;
        match (self.request.one_file, is_whole) {
            (true, true) => {}
            (true, false) => write_segmentation(&whole, output, &names, &self.budget, self.stop)?,
            (false, _) => split_labels(&whole, output, &names, &self.budget, self.stop)?,
        }
        self.make(extras, image, &whole)?;
        parts.remove();
        Ok(most)
    }

    /// Makes what is asked for beside a label map.
    fn make(&self, extras: &Extras, image: &Path, labels: &Path) -> Outcome {
        extras.make((image, labels), &self.names(), self.request.extras, &self.budget, self.stop)
    }

    /// The labels of each model of a task, in files.
    fn labels(
        &self,
        stage: &Stage<'_>,
        case: &Case,
        parts: &PartsFolder,
        most: &mut Bytes,
    ) -> Outcome<Vec<PartLabels>> {
        let needed = stage.models.parts.iter();
        let is_needed = |part: &&plimsoll_run::total_segmentator::PartModel| {
            stage.subset.is_empty() || stage.task.has_any(part, stage.subset)
        };
        let needed: Vec<_> = needed.filter(is_needed).collect();
        let mut found = Vec::with_capacity(needed.len());
        for (number, part) in needed.iter().enumerate() {
            let folder = stage.models.folder(part, &self.weights)?;
            let model = open(&folder, stage.models, &self.budget)?;
            let file = parts.file(&part.dataset.to_string());
            let is_whole_body = stage.name.starts_with("total");
            let options = PredictOptions {
                ring: self.request.ring,
                precision: self.request.precision,
                ..PredictOptions::new(STEPS[usize::from(!is_whole_body)], false, self.request.threads)
            };
            let mut predictor =
                Predictor::new(model, options, Arc::clone(&self.request.backend), &self.budget)?;
            let what = format!("{}, {} {} of {}", case.id, stage.name, number + 1, needed.len());
            let mut bar: Option<Progress> = None;
            let request =
                CaseRequest { case, earlier: None, labels: &file, probabilities: None, within: stage.within };
            let PredictedCase { plan, .. } = predictor.predict(&request, self.stop, &mut |windows| {
                let bar =
                    bar.get_or_insert_with(|| Progress::new(what.clone(), windows.of as u64, self.quiet));
                bar.set(windows.windows as u64, String::new());
            })?;
            if let Some(bar) = bar {
                bar.finish();
            }
            // Who asked for it knows it.
            let unasked = ring_line(&plan).filter(|_| self.request.ring.is_none() && !self.quiet);
            if let Some(line) = unasked {
                eprintln!("warning: {what}: {line}");
            }
            *most = (*most).max(plan.total_bytes);
            found.push(PartLabels { file, lookup: stage.task.lookup(part)? });
        }
        Ok(found)
    }

    /// The box of the stored image around some labels and a margin; none if they are nowhere.
    fn box_around(
        &self,
        image: &Path,
        rough: &[PartLabels],
        (crop, task): (&Crop, &Task),
    ) -> Outcome<Option<VoxelBox>> {
        let geometry = *VolumeFile::open(image)?.geometry();
        let mut found: Option<VoxelBox> = None;
        for part in rough {
            let wanted: Vec<u8> = crop.to.iter().filter_map(|class| task.value(class)).collect();
            let values = (0..).zip(&part.lookup).filter(|(_, value)| wanted.contains(value));
            let values: Vec<u16> = values.map(|(value, _)| value).collect();
            let of_part = box_of_labels(&part.file, &values, &self.budget, self.stop)?;
            found = match (found, of_part) {
                (Some(one), Some(other)) => Some(one.around(&other)),
                (one, other) => one.or(other),
            };
        }
        let spacing = geometry.spacing().0;
        Ok(found.map(|found| {
            // In whole voxels, as nibabel has the spacing.
            let margin = spacing.map(|length| (crop.margin_mm / f64::from(length as f32)) as usize);
            let last = |axis: usize| {
                (found.start[axis] + found.shape[axis] + margin[axis]).min(geometry.shape()[axis])
            };
            VoxelBox::between(
                [0, 1, 2].map(|axis| found.start[axis].saturating_sub(margin[axis])),
                [0, 1, 2].map(last),
            )
        }))
    }
}

/// Opens a model that sees images at the spacing of its task.
fn open(folder: &Path, models: &TaskModels, budget: &Budget) -> Outcome<SegmentationModel> {
    let folds = models.folds.iter().flatten().map(|fold| FoldName::Number(*fold as usize)).collect();
    // Its own trainers change how models are trained, none the network.
    let trainer = Some("nnUNetTrainer".to_string());
    let choice = NnUnetChoice { folds, trainer, ..NnUnetChoice::default() };
    let mut model = NnUnetModel::open(folder, &choice, budget)?.model;
    model.preparation = match model.preparation {
        Preparation::NnUnet(then) => Preparation::Zoomed(ZoomSteps { spacing: models.spacing(), then }),
        other => other,
    };
    Ok(model)
}
