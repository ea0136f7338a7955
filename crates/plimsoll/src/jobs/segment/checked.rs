//! Checks before any image is read, for segmentations and their plans.

use std::path::PathBuf;

use plimsoll_data::Case;
use plimsoll_memory::Budget;
use plimsoll_models::total_segmentator::{Crop, SegmentatorTask};

use super::encoded::is_encoded;
use super::input::InputKind;
use super::{ENDING, Job, SegmentRequest};
use crate::context::Context;
use crate::error::{Error, Outcome};

impl<'a> Job<'a> {
    /// The job of a request, and what its input is.
    ///
    /// Refuses labels that the task does not have, options that have no effect on it, names that no label map can be written under, labels that cannot be looked for, and
    /// weights that are not there.
    pub(super) fn checked(
        request: &'a SegmentRequest,
        context: &'a Context,
    ) -> Outcome<(Job<'a>, InputKind)> {
        let task = SegmentatorTask::named(&request.task)?;
        let models = task.models(&request.task, request.mode)?;
        if let Some(unknown) = request.subset.iter().find(|class| task.value(class).is_none()) {
            let message = format!("`{unknown}` is not a label of {}", request.task);
            return Err(Error::new(message, "‹job segment +list› names the labels of each task"));
        }
        let weights = request.weights.clone();
        let budget = Budget::new(context.limits(request.ram).limit);
        let body = if request.body_seg { Some(Crop::body()?) } else { None };
        let job = Job { request, task, models, weights, body, budget, context };
        let kind = InputKind::detect(&request.input)?;
        if let Some(part) = request.part.filter(|_| kind.is_one()) {
            let message = format!("‹part={part}› has no effect: {} is one image", request.input.display());
            return Err(Error::new(message, "leave ‹part› out, or name a folder of images"));
        }
        job.expect_effect()?;
        job.expect_series(&kind)?;
        job.expect_writable(kind.is_one())?;
        job.expect_findable()?;
        job.expect_weights()?;
        Ok((job, kind))
    }

    /// The output of each image: its label map, or the folder of its masks. Refuses to write over any of the images.
    pub(super) fn outputs(&self, cases: &[Case], kind: &InputKind) -> Outcome<Vec<PathBuf>> {
        let SegmentRequest { output, one_file, .. } = self.request;
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
        let (output, one_file) = (&self.request.output, self.request.one_file);
        let name = output.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let is_file = is_encoded(output) || [".nii", ".nii.gz"].iter().any(|ending| name.ends_with(ending));
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
