//! TotalSegmentator's tasks with the weights that its users have: images become label maps with names.

mod change;
mod checked;
mod encoded;
mod extras;
mod input;
mod parts;
mod plan;
mod refine;
mod report;
mod share;
mod shared;
mod stages;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use plimsoll_data::{Case, RefusedImage};
use plimsoll_dicom::Series;
use plimsoll_disk::atomic::sweep;
use plimsoll_infer::{InferError, PredictOptions, Written, merge_labels, split_labels};
use plimsoll_memory::{Budget, Bytes, MappedFiles, mapped_files, resident};
use plimsoll_models::total_segmentator::{Crop, Mode, ModelSize, SegmentatorTask, TaskModels};
use plimsoll_plan::Backend;
use plimsoll_postprocess::is_sheared;
use plimsoll_volume::{LabelTable, VolumeFile};
use serde::Serialize;

pub use self::encoded::DicomForm;
use self::encoded::is_encoded;
pub use self::extras::ExtraChoice;
use self::extras::{Extras, written};
use self::input::{Input, InputKind};
use self::parts::PartsFolder;
pub use self::plan::plan_segmentation;
use self::share::share;
use self::shared::Shared;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::predict::image_warnings::SHEARED;
use crate::part::{Part, PartRecord};

/// The ending of label maps, and of images in folders.
const ENDING: &str = ".nii.gz";

/// The masks of the whole body, and of its skin.
const DERIVED: [&str; 2] = ["body", "skin"];

/// The share of a window from one to the next, of the tasks of the whole body and of all others.
const STEPS: [f64; 2] = [0.8, 0.5];

/// Images to be segmented.
pub struct SegmentRequest {
    /// The names of the tasks, which are run one after the other on each image.
    pub tasks: Vec<String>,
    /// The resolution of the tasks.
    pub mode: Mode,
    /// An image, a folder of images, or one series of DICOM: a folder, a ZIP archive, or a file of many slices.
    pub input: PathBuf,
    /// The folder of an image's masks; with `one_file`, the label map of an image. Of a folder of images, a folder of these. Of several tasks, a
    /// folder in which each has the place of its name.
    pub output: PathBuf,
    /// Writes labels into one file with names instead of a file for each.
    pub one_file: bool,
    /// The form of labels in a DICOM file.
    pub dicom: DicomForm,
    /// The files beside labels.
    pub extras: ExtraChoice,
    /// The labels that are wanted; all if none is named.
    pub subset: Vec<String>,
    /// Cuts images to the body first.
    pub body_seg: bool,
    /// Finds the region of interest at 3 mm instead of 6 mm.
    pub robust_crop: bool,
    /// Resamples logits to the stored grid before labels are decided, as nnU-Net does, instead of resampling labels.
    pub by_logits: bool,
    /// The size of the task's networks.
    pub size: ModelSize,
    /// The volume in mm³ up to which components of labels are removed.
    pub remove_small_blobs: Option<f64>,
    /// Adds masks that are derived from others.
    pub derived: bool,
    /// The folder of weights.
    pub weights: PathBuf,
    /// Replaces existing files.
    pub overwrite: bool,
    /// The part of a folder's images that is segmented; `None` for all. Several processes segment the parts into the same folder.
    pub part: Option<Part>,
    /// The memory limit; `None` for the limit of the machine.
    pub ram: Option<Bytes>,
    /// The options of windows. Their step follows from the task.
    pub options: PredictOptions,
    /// The backend that runs programs.
    pub backend: Arc<dyn Backend>,
}

/// An image that was segmented.
#[derive(Serialize)]
pub struct Segmented {
    /// The task.
    pub task: String,
    /// The image.
    pub image: PathBuf,
    /// Its label map, or the folder of its masks.
    pub output: PathBuf,
    /// Seconds that it took.
    pub seconds: f64,
    /// The planned memory of the model that needs most.
    pub planned_bytes: Bytes,
}

/// An image that could not be segmented.
#[derive(Serialize)]
pub struct Failed {
    /// The task; `None` if no task can read the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The image.
    pub image: PathBuf,
    /// The error in one line.
    pub error: String,
    /// The remedy as a text.
    pub hint: String,
}

/// A task of TotalSegmentator whose weights were used.
#[derive(Serialize)]
pub struct UsedTask {
    /// The task.
    pub task: String,
    /// The licence of its weights.
    pub license: String,
}

/// The report of a segmentation.
#[derive(Serialize)]
pub struct SegmentationReport {
    /// The tasks.
    pub tasks: Vec<UsedTask>,
    /// Warnings about the input.
    pub warnings: Vec<String>,
    /// The images.
    pub images: Vec<Segmented>,
    /// Whose files were there already.
    pub kept: Vec<PathBuf>,
    /// Those that failed, with reasons.
    pub failed: Vec<Failed>,
    /// The part of the images that was segmented; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartRecord>,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
    /// The program and its libraries: planned as mapped, resident as far as they were touched.
    pub code: MappedFiles,
}

/// Segments every image of the input.
pub fn segment(request: &SegmentRequest, context: &Context) -> Outcome<SegmentationReport> {
    let tasks = Tasks::checked(request, context)?;
    let series = tasks.kind.series(&tasks.budget)?;
    let mut warnings = series.as_ref().map_or_else(Vec::new, Series::warnings);
    if series.as_ref().is_some_and(|series| is_sheared(series.geometry())) {
        warnings.push(SHEARED.into());
    }
    for warning in &warnings {
        context.warn(format_args!("{}: {warning}", request.input.display()));
    }
    let used = |job: &Job<'_>| UsedTask { task: job.name.into(), license: job.task.license.clone() };
    let mut report = SegmentationReport {
        tasks: tasks.jobs.iter().map(used).collect(),
        warnings,
        images: Vec::new(),
        kept: Vec::new(),
        failed: Vec::new(),
        part: None,
        peak_rss_bytes: Bytes::ZERO,
        code: mapped_files()?,
    };
    if let Some(series) = &series {
        tasks.jobs.iter().try_for_each(|job| job.expect_no_slice(series))?;
    }
    // The pixels of a series are not read where nothing is to be made of them.
    if series.is_some() && tasks.jobs.iter().all(|job| job.has_all(&job.output)) {
        Input::sweep(&request.input, tasks.beside())?;
        report.kept.extend(tasks.jobs.iter().map(|job| job.output.clone()));
    } else {
        tasks.segment_each(series.as_ref(), &mut report)?;
    }
    report.peak_rss_bytes = resident()?.peak;
    Ok(report)
}

/// The tasks of a request, which share its images.
struct Tasks<'a> {
    request: &'a SegmentRequest,
    jobs: Vec<Job<'a>>,
    kind: InputKind,
    budget: Budget,
    context: &'a Context,
}

impl Tasks<'_> {
    /// The folder that all outputs are in.
    fn beside(&self) -> &Path {
        match self.jobs.as_slice() {
            [job] => job.beside(&job.output),
            _ => &self.request.output,
        }
    }

    /// Makes what is missing of each image.
    fn segment_each(&self, series: Option<&Series>, report: &mut SegmentationReport) -> Outcome {
        let Tasks { request, jobs, kind, context, .. } = self;
        if let Some(series) = series {
            jobs.iter().try_for_each(|job| job.expect_referable(series))?;
        }
        let mut input =
            Input::open(&request.input, kind, series, self.beside(), &self.budget, context.stop.flag())?;
        // Checked for all, so that every part refuses what one of them would.
        jobs.iter().try_for_each(|job| job.outputs(&input.cases, kind).map(|_| ()))?;
        if let Some(part) = request.part {
            let share = share(part, &input, context);
            input.cases.retain(|case| share.has(&case.id));
            input.refused.retain(|image| share.has(&image.case));
            report.part = Some(share.record());
        }
        for RefusedImage { case, error } in input.refused {
            let failure = Error::from(error);
            let (error, hint) = (failure.line(), failure.remedy().clone().into());
            report.failed.push(Failed { task: None, image: request.input.join(case), error, hint });
        }
        let cases = &input.cases;
        // The series itself was looked at before it was brought into an image.
        for image in cases.iter().filter(|_| series.is_none()).flat_map(Case::image_files) {
            let is_tilted = VolumeFile::open(image).is_ok_and(|file| is_sheared(file.geometry()));
            let warning = format!("{}: {SHEARED}", image.display());
            if is_tilted {
                context.warn(&warning);
            }
            report.warnings.extend(is_tilted.then_some(warning));
        }
        let outputs: Vec<Vec<PathBuf>> =
            jobs.iter().map(|job| job.outputs(cases, kind)).collect::<Outcome<_>>()?;
        for (at, case) in cases.iter().enumerate() {
            let place = self.beside();
            if place.is_dir() {
                Shared::sweep(place, &case.id)?;
            }
            let mut shared = None;
            for (job, outputs) in jobs.iter().zip(&outputs) {
                let place = Place { kind, series, output: &outputs[at], beside: place };
                job.segment_case(case, &place, &mut shared, report)?;
            }
        }
        Ok(())
    }
}

/// The place of an image and its labels.
struct Place<'a> {
    kind: &'a InputKind,
    series: Option<&'a Series>,
    /// The label map, or the folder of masks.
    output: &'a Path,
    /// The folder that the outputs of all tasks are in.
    beside: &'a Path,
}

/// A task with all that its stages share.
struct Job<'a> {
    request: &'a SegmentRequest,
    name: &'a str,
    output: PathBuf,
    task: &'static SegmentatorTask,
    models: &'static TaskModels,
    weights: PathBuf,
    /// The body, where images are cut to it.
    body: Option<Crop>,
    budget: Budget,
    context: &'a Context,
}

impl Job<'_> {
    /// Returns `true` if the labels and all files beside them exist and are kept.
    fn has_all(&self, output: &Path) -> bool {
        let labels = self.labels_written(output).filter(|_| !self.request.overwrite);
        labels.is_some_and(|labels| self.extras(output).missing(labels).is_empty())
    }

    /// Makes what is missing of an image, and reports it.
    fn segment_case(
        &self,
        case: &Case,
        place: &Place<'_>,
        shared: &mut Option<Shared>,
        report: &mut SegmentationReport,
    ) -> Outcome {
        let Job { request, context, .. } = self;
        let Place { kind, series, output, .. } = *place;
        let Some(image) = case.images.first().map(|image| image.path.clone()) else { return Ok(()) };
        // The path that the user named, not the image that a series was converted to.
        let named = if series.is_some() { request.input.clone() } else { image.clone() };
        self.sweep(output, case)?;
        let extras = self.extras(output);
        let labels = self.labels_written(output).filter(|_| !request.overwrite);
        let missing = labels.map(|labels| extras.missing(labels));
        let start = std::time::Instant::now();
        let made = match missing {
            Some(missing) if missing.is_empty() => Ok(None),
            // Statistics and previews can be made from an existing label map.
            Some(missing) if request.one_file && !is_encoded(output) => {
                self.make(&missing, &image, output).map(|()| None)
            }
            _ => self.segment(case, place, &extras, shared).map(Some),
        };
        let task = self.name.to_string();
        match made {
            Ok(None) => report.kept.push(output.into()),
            Ok(Some(planned_bytes)) => {
                let seconds = start.elapsed().as_secs_f64();
                report.images.push(Segmented {
                    task,
                    image: named,
                    output: output.into(),
                    seconds,
                    planned_bytes,
                });
            }
            Err(failure) if kind.is_one() || context.stop.is_asked() => return Err(failure),
            Err(failure) => {
                report.failed.push(Failed {
                    task: Some(task),
                    image: named,
                    error: failure.line(),
                    hint: failure.remedy().clone().into(),
                });
            }
        }
        Ok(())
    }

    /// Checks that the weights of all needed models exist before anything is computed.
    fn expect_weights(&self) -> Outcome {
        for (name, mode) in self.tasks()? {
            let models = SegmentatorTask::named(&name)?.models(&name, mode)?;
            for part in &models.parts {
                models.folder(part, self.size_of(&name), &self.weights)?;
            }
        }
        Ok(())
    }

    /// The size of a task's networks. The requested size applies to the task itself, not to tasks that find the region of interest.
    fn size_of(&self, task: &str) -> ModelSize {
        if task == self.name { self.request.size } else { ModelSize::Big }
    }

    /// All tasks that are run, in their order, those that find where to look before those that look there.
    fn tasks(&self) -> Outcome<Vec<(String, Mode)>> {
        let mut all = self.rough_tasks()?;
        all.push((self.name.into(), self.request.mode));
        all.extend(self.task.refinement.as_ref().map(|refinement| (refinement.task.clone(), Mode::Default)));
        Ok(all)
    }

    /// The tasks that find where to look, in their order.
    fn rough_tasks(&self) -> Outcome<Vec<(String, Mode)>> {
        let mut all = Vec::new();
        let mut next = self.rough();
        while let Some((name, mode)) = next {
            let crop = &SegmentatorTask::named(&name)?.models(&name, mode)?.crop;
            next = crop.as_ref().map(|crop| crop.task_and_mode(&name));
            all.push((name, mode));
        }
        all.reverse();
        Ok(all)
    }

    /// Checks that the task which finds the region of interest has all labels of it.
    fn expect_findable(&self) -> Outcome {
        let (Some(crop), Some((name, _))) = (self.crop(), self.rough()) else { return Ok(()) };
        let rough = SegmentatorTask::named(&name)?;
        match crop.to.iter().find(|class| rough.value(class).is_none()) {
            None => Ok(()),
            Some(class) => {
                let message = format!(
                    "`{class}` cannot be selected: {name}, which finds the region of interest, does not have it"
                );
                Err(Error::new(message, "leave ‹roi_subset› out, or the label out of it"))
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
            // A path without a file is no image.
            if let Some(image) = files.iter().filter_map(|file| real(file)).find(|file| images.contains(file))
            {
                return Err(InferError::ReplacesImage { case: case.id.clone(), image }.into());
            }
        }
        Ok(())
    }

    /// The files of masks in a folder.
    fn masks(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        let derived = DERIVED.into_iter().filter(|_| self.has_skin()).map(String::from);
        let names = self.names().labels.into_iter().map(|(_, name)| name).chain(derived);
        names.map(move |name| folder.join(format!("{name}{ENDING}")))
    }

    /// Returns `true` if masks of the whole body and its skin are derived.
    fn has_skin(&self) -> bool {
        self.task.has_skin && self.request.derived && !self.request.one_file
    }

    /// The task that finds the box which images are cut to.
    fn rough(&self) -> Option<(String, Mode)> {
        self.crop().map(|crop| crop.task_and_mode(self.name))
    }

    /// The region that images are cut to: of the task, around the requested labels, or the body.
    fn crop(&self) -> Option<Crop> {
        let crop = match &self.models.crop {
            Some(crop) => Some(crop.clone()),
            None if self.request.subset.is_empty() => self.body.clone(),
            None => Some(Crop::around(self.request.subset.clone())),
        };
        crop.map(|crop| Crop { robust: crop.robust || self.request.robust_crop, ..crop })
    }

    /// Refuses what would have no effect.
    fn expect_effect(&self) -> Outcome {
        let SegmentRequest { body_seg, robust_crop, remove_small_blobs, by_logits, .. } = self.request;
        let task = self.name;
        let none = |flag: &str, why: String| {
            Err(Error::new(format!("{flag} has no effect with {task}: {why}"), "leave it out"))
        };
        let is_cut = self.models.crop.is_some() || !self.request.subset.is_empty();
        match self.crop() {
            _ if *body_seg && is_cut => none("‹body_seg›", "the image is cropped to its structures".into()),
            _ if *body_seg && task.ends_with("_mr") => {
                none("‹body_seg›", "the model that finds the body is for CT images".into())
            }
            None if *robust_crop => none("‹robust_crop›", "the image is not cropped".into()),
            Some(crop) if *robust_crop && !crop.may_be_robust() => {
                none("‹robust_crop›", format!("{} finds the region of interest", crop.task_and_mode(task).0))
            }
            _ if *by_logits && self.models.spacing().is_none() => {
                none("‹higher_order_resampling›", "its networks' own steps resample logits anyway".into())
            }
            _ if remove_small_blobs.is_some_and(|mm3| !(mm3.is_finite() && mm3 > 0.0)) => Err(Error::new(
                "‹remove_small_blobs› takes a volume in mm³ above 0",
                "leave the number out for 200 mm³",
            )),
            _ => Ok(()),
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

    /// The time at which the labels of an image were last written; `None` if a file is missing.
    fn labels_written(&self, output: &Path) -> Option<SystemTime> {
        match self.request.one_file {
            true => written(output),
            false => {
                let all = self.masks(output).map(|mask| written(&mask));
                all.collect::<Option<Vec<SystemTime>>>()?.into_iter().max()
            }
        }
    }

    /// The folder that an output goes to.
    fn beside<'b>(&self, output: &'b Path) -> &'b Path {
        match self.request.one_file {
            true => output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
            false => output,
        }
    }

    /// Removes what killed processes have left where an output goes to, whether or not there is still something to do.
    fn sweep(&self, output: &Path, case: &Case) -> Outcome {
        let beside = self.beside(output);
        if !beside.is_dir() {
            return Ok(());
        }
        sweep(beside).map_err(|error| Error::at_path(beside, &error))?;
        PartsFolder::sweep(beside, &case.id)
    }

    /// Segments an image. Returns what the model that held most was planned to hold.
    fn segment(
        &self,
        case: &Case,
        place: &Place<'_>,
        extras: &Extras,
        shared: &mut Option<Shared>,
    ) -> Outcome<Bytes> {
        let Place { series, output, .. } = *place;
        let Some(image) = case.images.first().map(|image| image.path.as_path()) else {
            return Err(Error::new(format!("{} has no image", case.id), "name an image"));
        };
        let mut most = self.expect_room_for_report(&case.id, image)?.unwrap_or(Bytes::ZERO);
        let beside = self.beside(output);
        plimsoll_disk::create_dir_all(beside).map_err(|error| Error::at_path(beside, &error))?;
        let parts = PartsFolder::make(beside, &case.id)?;
        let names = self.names();
        let mut found = Vec::new();
        let shared = match shared {
            Some(shared) => shared,
            none => none.insert(Shared::new(place.beside, &case.id)?),
        };
        let looked = self.look(case, &parts, shared, &mut most)?;
        if let Some(labels) = looked {
            found = match &self.task.refinement {
                None => labels,
                Some(refinement) => {
                    self.refine(refinement, labels, case, &parts, &mut shared.images(), &mut most)?
                }
            };
        }
        let is_whole = self.request.one_file && !is_encoded(output);
        let whole = if is_whole { output.to_path_buf() } else { parts.file("whole") };
        merge_labels(
            &found,
            &Written { path: &whole, image, names: &names },
            &self.budget,
            self.context.stop.flag(),
        )?;
        match (self.request.one_file, is_whole) {
            (true, true) => {}
            (true, false) => self.encode(series, &whole, output)?,
            (false, _) => {
                split_labels(&whole, output, &names, &self.budget, self.context.stop.flag())?;
                self.derive(image, &whole, output, &parts)?;
            }
        }
        self.make(extras, image, &whole)?;
        parts.remove();
        Ok(most)
    }
}
