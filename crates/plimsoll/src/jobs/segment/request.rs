//! The request of a segmentation.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_infer::PredictOptions;
use plimsoll_memory::Bytes;
use plimsoll_models::total_segmentator::{Mode, ModelSize};
use plimsoll_plan::Backend;

use super::encoded::DicomForm;
use super::extras::ExtraChoice;
use crate::part::Part;

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
