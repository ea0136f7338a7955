//! Checks before any image is read, for segmentations and their plans.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plimsoll_data::Case;
use plimsoll_infer::InferError;
use plimsoll_memory::Budget;
use plimsoll_models::total_segmentator::{Crop, Mode, ModelSize, SegmentatorTask};

use super::encoded::is_encoded;
use super::input::InputKind;
use super::{ENDING, Job, SegmentRequest, Tasks};
use crate::context::Context;
use crate::error::{Error, Outcome};

/// Returns a task, once all of its weights are there: also those of the tasks that find where it looks, or that it is refined by.
///
/// # Errors
/// Returns an error if there is no such task or resolution, or weights are missing in the folder.
pub fn check_task(name: &str, mode: Mode, weights: &Path) -> Outcome<&'static SegmentatorTask> {
    let task = SegmentatorTask::named(name)?;
    let refined = task.refinement.as_ref().map(|refinement| (refinement.task.clone(), Mode::Default));
    for mut next in [Some((name.to_string(), mode)), refined] {
        while let Some((name, mode)) = next {
            let models = SegmentatorTask::named(&name)?.models(&name, mode)?;
            for part in &models.parts {
                models.folder(part, ModelSize::Big, weights)?;
            }
            next = models.crop.as_ref().map(|crop| crop.task_and_mode(&name));
        }
    }
    Ok(task)
}

impl<'a> Tasks<'a> {
    /// The job of each task of a request, and the kind of its input.
    ///
    /// Refuses labels that a task does not have, options that have no effect on it, names that no label map can be written under, labels that
    /// cannot be looked for, and missing weights.
    pub(super) fn checked(request: &'a SegmentRequest, context: &'a Context) -> Outcome<Tasks<'a>> {
        expect_tasks(request)?;
        let kind = InputKind::detect(&request.input)?;
        if let Some(part) = request.part.filter(|_| kind.is_one()) {
            let message = format!("‹part={part}› has no effect: {} is one image", request.input.display());
            return Err(Error::new(message, "leave ‹part› out, or name a folder of images"));
        }
        let budget = Budget::new(context.limits(request.ram).limit);
        let jobs = request.tasks.iter().map(|name| {
            let job = Job::of_task(name, request, &kind, budget.clone(), context)?;
            job.expect_effect()?;
            job.expect_series(&kind)?;
            job.expect_writable(kind.is_one())?;
            job.expect_findable()?;
            job.expect_weights()?;
            Ok(job)
        });
        let jobs = jobs.collect::<Outcome<Vec<_>>>()?;
        Ok(Tasks { request, jobs, kind, budget, context })
    }
}

impl<'a> Job<'a> {
    /// The job of one task. Of several, each has a place of its name in the output: a file for one image, and a folder otherwise.
    fn of_task(
        name: &'a str,
        request: &'a SegmentRequest,
        kind: &InputKind,
        budget: Budget,
        context: &'a Context,
    ) -> Outcome<Job<'a>> {
        let task = SegmentatorTask::named(name)?;
        let models = task.models(name, request.mode)?;
        if let Some(unknown) = request.subset.iter().find(|class| task.value(class).is_none()) {
            let message = format!("`{unknown}` is not a label of {name}");
            return Err(Error::new(message, "‹job segment +list› names the labels of each task"));
        }
        let output = match (request.tasks.len(), kind.is_one() && request.one_file) {
            (1, _) => request.output.clone(),
            (_, true) => request.output.join(format!("{name}{ENDING}")),
            (_, false) => request.output.join(name),
        };
        let weights = request.weights.clone();
        let body = if request.body_seg { Some(Crop::body()?) } else { None };
        Ok(Job { request, name, output, task, models, weights, body, budget, context })
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

    /// The output of each image: its label map, or the folder of its masks. Refuses to write over any of the images.
    pub(super) fn outputs(&self, cases: &[Case], kind: &InputKind) -> Outcome<Vec<PathBuf>> {
        let (SegmentRequest { one_file, .. }, output) = (self.request, &self.output);
        let of_case = |case: &Case| match (kind.is_one(), one_file) {
            (true, _) => output.clone(),
            (false, true) => output.join(format!("{}{ENDING}", case.id)),
            (false, false) => output.join(&case.id),
        };
        let outputs: Vec<PathBuf> = cases.iter().map(of_case).collect();
        self.expect_apart(cases, &outputs)?;
        Ok(outputs)
    }

    /// Refuses names that no label map can be written under, before anything is computed.
    fn expect_writable(&self, is_one: bool) -> Outcome {
        let (output, one_file) = (&self.output, self.request.one_file);
        let is_file = names_file(output);
        let wrong = |why: &str, hint: &str| Err(Error::new(format!("{} {why}", output.display()), hint));
        match (is_one && one_file, is_file) {
            (true, false) => wrong(
                "is not the name of a label map",
                "let it end in .nii.gz or .nii, in .seg.nrrd for 3D Slicer, or in .dcm for DICOM",
            ),
            (false, true) if is_one => {
                wrong("is the name of a file, but masks go into a folder", "use ‹one_file› for one file")
            }
            (false, true) => wrong("is the name of a file, but there may be several images", "name a folder"),
            _ => Ok(()),
        }
    }
}

/// Returns `true` for the name of a label map.
fn names_file(output: &Path) -> bool {
    let name = output.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
    let is_nifti = name.is_some_and(|name| [".nii", ".nii.gz"].iter().any(|ending| name.ends_with(ending)));
    is_nifti || is_encoded(output)
}

/// Refuses a request without tasks, a task that is named twice, and what several tasks cannot share.
fn expect_tasks(request: &SegmentRequest) -> Outcome {
    let SegmentRequest { tasks, output, subset, .. } = request;
    if tasks.is_empty() {
        return Err(Error::new("no task is named", "name one, like total"));
    }
    let twice = tasks.iter().enumerate().find(|(at, name)| tasks[..*at].contains(name));
    if let Some((_, name)) = twice {
        return Err(Error::new(format!("the task {name} is named twice"), "name each task once"));
    }
    if tasks.len() == 1 {
        return Ok(());
    }
    if !subset.is_empty() {
        let message = "‹roi_subset› selects labels of one task, but several are named";
        return Err(Error::new(message, "leave ‹roi_subset› out, or name one task"));
    }
    if names_file(output) {
        let message =
            format!("{} is the name of a file, but several tasks write into a folder", output.display());
        return Err(Error::new(message, "name a folder, or one task"));
    }
    Ok(())
}
