//! TotalSegmentator's tasks with the weights that its users have: images become label maps with names.

mod change;
mod checked;
mod encoded;
mod extras;
mod input;
mod parts;
mod plan;
mod refine;
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
use plimsoll_models::total_segmentator::{Crop, Mode, ModelSize, Task, TaskModels};
use plimsoll_plan::Backend;
use plimsoll_postprocess::is_sheared;
use plimsoll_report::preview::{Files, beside, preview_of};
use plimsoll_volume::{LabelTable, VolumeFile};
use serde::Serialize;

pub use self::encoded::DicomForm;
use self::encoded::is_encoded;
pub use self::extras::ExtraChoice;
use self::extras::{Extras, written};
use self::input::{Input, Kind};
use self::parts::PartsFolder;
pub use self::plan::plan_segmentation;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::prediction_report::SHEARED;

/// What the names of label maps end in, and those of images in folders.
const ENDING: &str = ".nii.gz";

/// The masks of the whole body, and of its skin.
const DERIVED: [&str; 2] = ["body", "skin"];

/// The share of a window from one to the next, of the tasks of the whole body and of all others.
const STEPS: [f64; 2] = [0.8, 0.5];

/// Images to be segmented.
pub struct SegmentRequest {
    /// The name of the task.
    pub task: String,
    /// How finely.
    pub mode: Mode,
    /// An image, a folder of images, or one series of DICOM: a folder, a ZIP archive, or a file of many slices.
    pub input: PathBuf,
    /// The folder of an image's masks; with `one_file`, the label map of an image. Of a folder of images, a folder of these.
    pub output: PathBuf,
    /// Whether labels go into one file with names, instead of a file for each.
    pub one_file: bool,
    /// What labels become in a file of DICOM.
    pub dicom: DicomForm,
    /// What is made beside labels.
    pub extras: ExtraChoice,
    /// The labels that are wanted; all if none is named.
    pub subset: Vec<String>,
    /// Whether images are cut to the body first.
    pub body_seg: bool,
    /// Whether what images are cut to is looked for at 3 mm, not 6.
    pub robust_crop: bool,
    /// Whether logits are brought to the stored grid before labels are decided, as nnU-Net does it, instead of labels.
    pub by_logits: bool,
    /// Which of a task's networks.
    pub size: ModelSize,
    /// The volume in mm³ up to which components of labels are removed.
    pub remove_small_blobs: Option<f64>,
    /// Whether masks have others beside them that are made of them.
    pub derived: bool,
    /// The folder of weights.
    pub weights: PathBuf,
    /// Whether files that are there are replaced.
    pub overwrite: bool,
    /// The line that was asked for.
    pub ram: Option<Bytes>,
    /// How windows are predicted, but for how far they are apart, which follows from the task.
    pub options: PredictOptions,
    /// What runs programs.
    pub backend: Arc<dyn Backend>,
}

/// An image that was segmented.
#[derive(Serialize)]
pub struct Segmented {
    /// The image.
    pub image: PathBuf,
    /// Its label map, or the folder of its masks.
    pub output: PathBuf,
    /// Seconds that it took.
    pub seconds: f64,
    /// What the model that held most was planned to hold.
    pub planned_bytes: Bytes,
}

/// An image that could not be segmented.
#[derive(Serialize)]
pub struct Failed {
    /// The image.
    pub image: PathBuf,
    /// The error in one line.
    pub error: String,
    /// The remedy as a text.
    pub hint: String,
}

/// What came of all images.
#[derive(Serialize)]
pub struct SegmentationReport {
    /// The task of TotalSegmentator.
    pub task: String,
    /// The licence of the weights.
    pub license: String,
    /// What a user should know of the input.
    pub warnings: Vec<String>,
    /// The images.
    pub images: Vec<Segmented>,
    /// Whose files were there already.
    pub kept: Vec<PathBuf>,
    /// Those that failed, with reasons.
    pub failed: Vec<Failed>,
    /// The most resident memory of the process.
    pub peak_rss_bytes: Bytes,
    /// The program and its libraries: planned as mapped, resident as far as they were touched.
    pub code: MappedFiles,
}

/// Segments every image of the input.
pub fn segment(request: &SegmentRequest, context: &Context) -> Outcome<SegmentationReport> {
    let (job, kind) = Job::checked(request, context)?;
    let series = kind.series(&job.budget)?;
    let mut warnings = series.as_ref().map_or_else(Vec::new, Series::warnings);
    if series.as_ref().is_some_and(|series| is_sheared(series.geometry())) {
        warnings.push(SHEARED.into());
    }
    for warning in &warnings {
        context.warn(format_args!("{}: {warning}", request.input.display()));
    }
    let mut report = SegmentationReport {
        task: request.task.clone(),
        license: job.task.license.clone(),
        warnings,
        images: Vec::new(),
        kept: Vec::new(),
        failed: Vec::new(),
        peak_rss_bytes: Bytes::ZERO,
        code: mapped_files()?,
    };
    if let Some(series) = &series {
        job.expect_no_slice(series)?;
    }
    // The pixels of a series are not read where nothing is to be made of them.
    if series.is_some() && job.has_all(&request.output) {
        Input::sweep(&request.input, job.beside(&request.output))?;
        report.kept.push(request.output.clone());
    } else {
        job.segment_each(&kind, series.as_ref(), &mut report)?;
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
    /// The body, where images are cut to it.
    body: Option<Crop>,
    budget: Budget,
    context: &'a Context,
}

impl Job<'_> {
    /// Whether labels are there and are kept, and all that is made beside them is, too.
    fn has_all(&self, output: &Path) -> bool {
        let labels = self.labels_written(output).filter(|_| !self.request.overwrite);
        labels.is_some_and(|labels| self.extras(output).missing(labels).is_empty())
    }

    /// Makes what is missing of each image.
    fn segment_each(&self, kind: &Kind, series: Option<&Series>, report: &mut SegmentationReport) -> Outcome {
        let Job { request, context, .. } = self;
        if let Some(series) = series {
            self.expect_referable(series)?;
        }
        let beside = self.beside(&request.output);
        let input = Input::open(&request.input, kind, series, beside, &self.budget, context.stop.flag())?;
        for RefusedImage { case, error } in input.refused {
            let failure = Error::from(error);
            let (error, hint) = (failure.line(), failure.remedy().clone().into());
            report.failed.push(Failed { image: request.input.join(case), error, hint });
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
        let outputs = self.outputs(cases, kind)?;
        for (case, output) in cases.iter().zip(outputs) {
            let Some(image) = case.images.first().map(|image| image.path.clone()) else { continue };
            // What was named, and not what a series was brought into.
            let named = if series.is_some() { request.input.clone() } else { image.clone() };
            self.sweep(&output, case)?;
            let extras = self.extras(&output);
            let labels = self.labels_written(&output).filter(|_| !request.overwrite);
            let missing = labels.map(|labels| extras.missing(labels));
            let start = std::time::Instant::now();
            let made = match missing {
                Some(missing) if missing.is_empty() => Ok(None),
                // A label map that is there has all that its statistics and its preview are made of.
                Some(missing) if request.one_file && !is_encoded(&output) => {
                    self.make(&missing, &image, &output).map(|()| None)
                }
                _ => self.segment(case, series, &output, &extras).map(Some),
            };
            match made {
                Ok(None) => report.kept.push(output),
                Ok(Some(planned_bytes)) => {
                    let seconds = start.elapsed().as_secs_f64();
                    report.images.push(Segmented { image: named, output, seconds, planned_bytes });
                }
                Err(failure) if kind.is_one() || context.stop.is_asked() => return Err(failure),
                Err(failure) => {
                    report.failed.push(Failed {
                        image: named,
                        error: failure.line(),
                        hint: failure.remedy().clone().into(),
                    });
                }
            }
        }
        Ok(())
    }

    /// That all models that will be needed are there, before anything is computed.
    fn expect_weights(&self) -> Outcome {
        for (name, mode) in self.tasks()? {
            let models = Task::named(&name)?.models(&name, mode)?;
            for part in &models.parts {
                models.folder(part, self.size_of(&name), &self.weights)?;
            }
        }
        Ok(())
    }

    /// Which networks of a task are run: what is asked for is so of the task itself, and not of those that find where to look.
    fn size_of(&self, task: &str) -> ModelSize {
        if task == self.request.task { self.request.size } else { ModelSize::Big }
    }

    /// All tasks that are run, in their order, those that find where to look before those that look there.
    fn tasks(&self) -> Outcome<Vec<(String, Mode)>> {
        let mut all = Vec::new();
        let mut next = self.rough();
        while let Some((name, mode)) = next {
            let crop = &Task::named(&name)?.models(&name, mode)?.crop;
            next = crop.as_ref().map(|crop| crop.of(&name));
            all.push((name, mode));
        }
        all.reverse();
        all.push((self.request.task.clone(), self.request.mode));
        all.extend(self.task.refinement.as_ref().map(|refinement| (refinement.task.clone(), Mode::Default)));
        Ok(all)
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
        let derived = DERIVED.into_iter().filter(|_| self.has_skin()).map(String::from);
        let names = self.names().labels.into_iter().map(|(_, name)| name).chain(derived);
        names.map(move |name| folder.join(format!("{name}{ENDING}")))
    }

    /// Whether masks have one of the body and one of its skin beside them.
    fn has_skin(&self) -> bool {
        self.task.has_skin && self.request.derived && !self.request.one_file
    }

    /// The task that finds the box which images are cut to.
    fn rough(&self) -> Option<(String, Mode)> {
        self.crop().map(|crop| crop.of(&self.request.task))
    }

    /// What images are cut to: as the task has it, to the labels that are wanted, or to the body.
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
        let SegmentRequest { task, body_seg, robust_crop, remove_small_blobs, by_logits, .. } = self.request;
        let none = |flag: &str, why: String| {
            Err(Error::new(format!("{flag} has no effect with {task}: {why}"), "leave it out"))
        };
        let is_cut = self.models.crop.is_some() || !self.request.subset.is_empty();
        match self.crop() {
            _ if *body_seg && is_cut => none("‹body_seg›", "the image is cut to what it looks for".into()),
            _ if *body_seg && task.ends_with("_mr") => {
                none("‹body_seg›", "the model that finds the body is of CT images".into())
            }
            None if *robust_crop => none("‹robust_crop›", "the image is not cut".into()),
            Some(crop) if *robust_crop && !crop.may_be_robust() => {
                none("‹robust_crop›", format!("{} finds where to look", crop.of(task).0))
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
        let is_file = is_encoded(output) || [".nii", ".nii.gz"].iter().any(|ending| name.ends_with(ending));
        let wrong = |why: &str, hint: &str| Err(Error::new(format!("{} {why}", output.display()), hint));
        match (is_one && one_file, is_file) {
            (true, false) => wrong(
                "is no name of a label map",
                "let it end in .nii.gz or .nii, in .seg.nrrd for 3D Slicer, or in .dcm for DICOM",
            ),
            (false, true) if is_one => {
                wrong("is the name of a file, but masks go into a folder", "say ‹one_file› for one file")
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

    /// Removes what killed processes have left where an output goes to, whether or not there is still something to do.
    fn sweep(&self, output: &Path, case: &Case) -> Outcome {
        let beside = self.beside(output);
        if !beside.is_dir() {
            return Ok(());
        }
        sweep(beside).map_err(|error| Error::of_path(beside, &error))?;
        PartsFolder::sweep(beside, &case.id)
    }

    /// Segments an image. Returns what the model that held most was planned to hold.
    fn segment(
        &self,
        case: &Case,
        series: Option<&Series>,
        output: &Path,
        extras: &Extras,
    ) -> Outcome<Bytes> {
        let Some(image) = case.images.first().map(|image| image.path.as_path()) else {
            return Err(Error::new(format!("{} has no image", case.id), "name an image"));
        };
        let beside = self.beside(output);
        plimsoll_disk::create_dir_all(beside).map_err(|error| Error::of_path(beside, &error))?;
        let parts = PartsFolder::make(beside, &case.id)?;
        let mut most = Bytes::ZERO;
        let names = self.names();
        let mut found = Vec::new();
        let looked = self.look(case, &parts, &mut most)?;
        if let Some(labels) = looked {
            found = match &self.task.refinement {
                None => labels,
                Some(refinement) => self.refine(refinement, labels, case, &parts, &mut most)?,
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

    /// Makes what is asked for beside a label map.
    fn make(&self, extras: &Extras, image: &Path, labels: &Path) -> Outcome {
        let files = Files { image, labels, names: &self.names() };
        extras.make(&files, self.request.extras, &self.budget, self.context.stop.flag())
    }
}
