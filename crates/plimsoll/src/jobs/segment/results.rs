//! The report of a segmentation.

use std::path::PathBuf;

use plimsoll_memory::{Bytes, MappedFiles};
use serde::Serialize;

use crate::part::PartRecord;

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
