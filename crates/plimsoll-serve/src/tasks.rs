//! Tasks of TotalSegmentator as models of a service.

use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use plimsoll::{DicomForm, ExtraChoice, SegmentRequest, check_task};
use plimsoll_dicom::SegmentationType;
use plimsoll_infer::PredictOptions;
use plimsoll_memory::Bytes;
use plimsoll_models::total_segmentator::{Mode, ModelSize};

use crate::error::ServeError;
use crate::job::Job;
use crate::models::{Label, ModelCard, check_name};
use crate::problem::Problem;

/// A task of TotalSegmentator with its name in addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTask {
    /// The name.
    pub name: String,
    /// The task, such as `total`.
    pub task: String,
    /// Its resolution.
    pub mode: Mode,
    /// The folder of TotalSegmentator's weights.
    pub weights: PathBuf,
}

impl NamedTask {
    /// Describes the task, and refuses one without weights.
    pub(crate) fn card(&self) -> Result<ModelCard, ServeError> {
        check_name(&self.name)?;
        let task = check_task(&self.task, self.mode, &self.weights)?;
        let label = |class: &String| {
            task.value(class).map(|value| Label { value: value.into(), name: class.clone() })
        };
        Ok(ModelCard {
            name: self.name.clone(),
            channels: vec!["image".into()],
            labels: task.classes.iter().filter_map(label).collect(),
            window: None,
            folds: None,
            license: Some(task.license.clone()),
        })
    }

    /// The segmentation of an image, whose labels are written in the format of the image.
    pub(crate) fn request(&self, job: &Job, image: &Path, ram: Bytes) -> Result<SegmentRequest, Problem> {
        let input = only_channel(image)?;
        let is_plain = input.extension().is_some_and(|ending| ending == "nii");
        Ok(SegmentRequest {
            tasks: vec![self.task.clone()],
            mode: self.mode,
            input,
            output: job.workspace.file(if is_plain { "labels.nii" } else { "labels.nii.gz" }),
            one_file: true,
            // Labels become DICOM where they are sent.
            dicom: DicomForm::Segmentation(SegmentationType::Binary),
            extras: ExtraChoice::default(),
            subset: Vec::new(),
            body_seg: false,
            robust_crop: false,
            by_logits: false,
            size: ModelSize::Big,
            remove_small_blobs: None,
            derived: false,
            weights: self.weights.clone(),
            overwrite: false,
            part: None,
            ram: Some(ram),
            options: PredictOptions { mirror: false, ..job.service.window_options() },
            backend: job.service.backend(),
        })
    }
}

/// The file of an image of one channel.
fn only_channel(image: &Path) -> Result<PathBuf, Problem> {
    if !image.is_dir() {
        return Ok(image.into());
    }
    let files = plimsoll_disk::read_dir(image).map_err(|error| crate::archive::full(&error))?;
    let count = files.len();
    <[PathBuf; 1]>::try_from(files).map(|[file]| file).map_err(|_| {
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("the image has {count} channels, but tasks of TotalSegmentator take one"),
            "send the image of one channel alone",
        )
    })
}
