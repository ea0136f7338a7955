//! TotalSegmentator's tasks with the weights that its users have: images become label maps with names.

mod chain;
mod change;
mod checked;
mod encoded;
mod extras;
mod input;
mod outputs;
mod parts;
mod plan;
mod refine;
mod report;
mod request;
mod results;
mod share;
mod shared;
mod stages;

use std::path::{Path, PathBuf};

use plimsoll_data::{Case, RefusedImage};
use plimsoll_dicom::Series;
use plimsoll_infer::{Written, merge_labels, split_labels};
use plimsoll_memory::{Budget, Bytes, mapped_files, resident};
use plimsoll_models::total_segmentator::{Crop, SegmentatorTask, TaskModels};
use plimsoll_postprocess::is_sheared;
use plimsoll_volume::VolumeFile;

pub use self::checked::check_task;
pub use self::encoded::DicomForm;
use self::encoded::is_encoded;
pub use self::extras::ExtraChoice;
use self::extras::Extras;
use self::input::{Input, InputKind};
use self::parts::PartsFolder;
pub use self::plan::plan_segmentation;
pub use self::request::SegmentRequest;
pub use self::results::{Failed, SegmentationReport, Segmented, UsedTask};
use self::share::share;
use self::shared::Shared;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::jobs::predict::image_warnings::SHEARED;

/// The ending of label maps, and of images in folders.
const ENDING: &str = ".nii.gz";

/// The masks of the whole body, and of its skin.
const DERIVED: [&str; 2] = ["body", "skin"];

/// The share of a window from one to the next, of the tasks of the whole body and of all others.
const STEPS: [f64; 2] = [0.8, 0.5];

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
