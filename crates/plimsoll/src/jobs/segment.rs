//! TotalSegmentator's tasks with the weights that its users have: images become label maps with names.

mod parts;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{Case, Channel, Dataset, Normalisation, Preparation, ZoomSteps};
use plimsoll_disk::atomic::sweep;
use plimsoll_infer::{
    CaseRequest, InferError, PartLabels, PredictOptions, PredictPlan, Predictor, Written, box_of_labels,
    merge_labels, split_labels,
};
use plimsoll_memory::{Budget, Bytes, MappedFiles, System, limits, mapped_files, resident};
use plimsoll_plan::Backend;
use plimsoll_run::nnunet::{NnUnetChoice, NnUnetModel};
use plimsoll_run::total_segmentator::{Crop, Mode, Task, TaskModels, weights_folder};
use plimsoll_run::{FoldName, SegmentationModel};
use plimsoll_volume::{LabelTable, VolumeFile, VoxelBox};
use serde::Serialize;

use self::parts::PartsFolder;
use crate::failure::{Failure, Outcome};
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
    /// An image, or a folder of images.
    pub input: PathBuf,
    /// The folder of an image's masks; with `one_file`, the label map of an image. Of a folder of images, a folder of these.
    pub output: PathBuf,
    /// Whether labels go into one file with names, instead of a file for each.
    pub one_file: bool,
    /// The labels that are wanted; all if none is named.
    pub subset: Vec<String>,
    /// The folder of weights, if it is not TotalSegmentator's own.
    pub weights: Option<PathBuf>,
    /// Whether files that are there are replaced.
    pub overwrite: bool,
    /// The line that was asked for.
    pub ram: Option<Bytes>,
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
    let is_one = request.input.is_file();
    let is_plain = is_one && request.input.extension().is_some_and(|ending| ending == "nii");
    // How it is normalised follows from each model.
    let channels = [Channel { name: "image".into(), normalisation: Normalisation::None }];
    let cases = Dataset::images(&request.input, &channels, if is_plain { ".nii" } else { ENDING })?;
    let budget = Budget::new(limits(&System::default(), request.ram).line);
    let job = Job { request, task, models, weights, budget, stop, quiet };
    job.expect_findable()?;
    job.expect_weights()?;
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
    job.expect_apart(&cases, &outputs)?;
    for (case, output) in cases.iter().zip(outputs) {
        let Some(image) = case.images.first().map(|image| image.path.clone()) else { continue };
        if job.is_done(&output) && !request.overwrite {
            report.kept.push(output);
            continue;
        }
        let start = std::time::Instant::now();
        match job.segment(case, &output) {
            Ok(planned_bytes) => {
                let seconds = start.elapsed().as_secs_f64();
                report.images.push(Segmented { image, output, seconds, planned_bytes });
            }
            Err(failure) if is_one || stop.load(std::sync::atomic::Ordering::Relaxed) => return Err(failure),
            Err(failure) => {
                report.failed.push(Failed { image, error: failure.line(), hint: failure.hint().into() });
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

    /// Whether all that would be written is there.
    fn is_done(&self, output: &Path) -> bool {
        match self.request.one_file {
            true => output.is_file(),
            false => self.masks(output).all(|mask| mask.is_file()),
        }
    }

    /// Segments an image. Returns what the model that held most was planned to hold.
    fn segment(&self, case: &Case, output: &Path) -> Outcome<Bytes> {
        let Some(image) = case.images.first().map(|image| image.path.as_path()) else {
            return Err(Failure::new(format!("{} has no image", case.id), "name an image"));
        };
        let beside = match self.request.one_file {
            true => output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
            false => output,
        };
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
        if self.request.one_file {
            merge_labels(&found, &Written { path: output, image, names: &names }, &self.budget, self.stop)?;
        } else {
            let whole = parts.file("whole");
            merge_labels(&found, &Written { path: &whole, image, names: &names }, &self.budget, self.stop)?;
            split_labels(&whole, output, &names, &self.budget, self.stop)?;
        }
        parts.remove();
        Ok(most)
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
                step: STEPS[usize::from(!is_whole_body)],
                mirror: false,
                threads: self.request.threads,
            };
            let mut predictor =
                Predictor::new(model, options, Arc::clone(&self.request.backend), &self.budget)?;
            let what = format!("{}, {} {} of {}", case.id, stage.name, number + 1, needed.len());
            let mut bar: Option<Progress> = None;
            let request =
                CaseRequest { case, earlier: None, labels: &file, probabilities: None, within: stage.within };
            let plan: PredictPlan = predictor.predict(&request, self.stop, &mut |windows| {
                let bar =
                    bar.get_or_insert_with(|| Progress::new(what.clone(), windows.of as u64, self.quiet));
                bar.set(windows.windows as u64, String::new());
            })?;
            if let Some(bar) = bar {
                bar.finish();
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
                (Some(one), Some(other)) => Some(around_both(one, other)),
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

fn around_both(one: VoxelBox, other: VoxelBox) -> VoxelBox {
    let end = |of: VoxelBox, axis: usize| of.start[axis] + of.shape[axis];
    VoxelBox::between(
        [0, 1, 2].map(|axis| one.start[axis].min(other.start[axis])),
        [0, 1, 2].map(|axis| end(one, axis).max(end(other, axis))),
    )
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
