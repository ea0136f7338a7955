//! Errors of pages and pictures.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::Substitute;
use plimsoll_memory::{MapError, OverBudget};
use plimsoll_metrics::MetricError;
use plimsoll_metrics::classification::TableError;
use plimsoll_run::{RunError, one_line};
use plimsoll_volume::VolumeError;
use thiserror::Error;

/// The result of making a page or a picture.
pub type Outcome<T = ()> = Result<T, ReportError>;

/// A data set that a caller could not open, in its own words.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{error}")]
pub struct Unavailable {
    /// The cause, in a line.
    pub error: String,
    /// A remedy to suggest to the user.
    pub hint: String,
}

/// An error of a page or a picture.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A file or a folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A folder holds neither a run nor a sweep.
    #[error("{} holds no run and no sweep", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// The data set of a run cannot be opened.
    #[error("{0}")]
    Dataset(#[from] Unavailable),
    /// A fold does not record the place of its data set.
    #[error("{} does not name its data set", fold.display())]
    DatasetUnknown {
        /// The folder of the fold.
        fold: PathBuf,
    },
    /// A data set lacks a case of the run.
    #[error("{} has no case {case}", dataset.display())]
    CaseMissing {
        /// The folder of the data set.
        dataset: PathBuf,
        /// The name of the case.
        case: String,
    },
    /// A case of a data set has no image.
    #[error("the case {case} has no image")]
    ImageMissing {
        /// The name of the case.
        case: String,
    },
    /// Two files of one case differ in their voxels.
    #[error("{} has {shape:?} voxels, but {} has {other_shape:?}", file.display(), other.display())]
    Shapes {
        /// One file.
        file: PathBuf,
        /// Its voxels along (depth, height, width).
        shape: [usize; 3],
        /// The other file.
        other: PathBuf,
        /// Its voxels along (depth, height, width).
        other_shape: [usize; 3],
        /// The roles of the two files.
        of: Pair,
    },
    /// A slice of a volume cannot be sampled.
    #[error("{}: a slice cannot be drawn: {reason}", file.display())]
    Slice {
        /// The file of the volume.
        file: PathBuf,
        /// The error of the sampler.
        reason: String,
    },
    /// A volume cannot be resampled to fewer voxels.
    #[error("a volume cannot be made smaller: {reason}")]
    Shrink {
        /// The error of the sampler.
        reason: String,
    },
    /// A comparison has more rows than a picture.
    #[error("{rows} comparisons do not fit a picture, which has room for {most}")]
    TooManyRows {
        /// The rows of the comparison.
        rows: usize,
        /// The most rows of a picture.
        most: usize,
    },
    /// Pixels cannot be encoded.
    #[error("{0}")]
    Pixels(#[source] io::Error),
    /// A file beside the page cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// JSON cannot be read or written.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The memory limit does not suffice.
    #[error("{0}")]
    Memory(#[from] OverBudget),
    /// Memory cannot be mapped.
    #[error("{0}")]
    Map(#[from] MapError),
    /// Scores cannot be computed.
    #[error("{0}")]
    Metric(#[from] MetricError),
    /// A run cannot be read.
    #[error("{0}")]
    Run(#[from] RunError),
    /// A table of predictions cannot be read.
    #[error("{0}")]
    Table(#[from] TableError),
    /// A volume cannot be read or written.
    #[error("{0}")]
    Volume(#[from] VolumeError),
}

/// The roles of two files that must have the same voxels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// A label map and its image.
    LabelsAndImage,
    /// A prediction and its reference.
    PredictionAndReference,
}

impl ReportError {
    /// An error of the operating system about a file or a folder.
    pub(crate) fn at_path(path: &Path, source: io::Error) -> ReportError {
        ReportError::File { path: path.into(), source }
    }

    /// The error with its causes, in one line.
    pub fn line(&self) -> String {
        one_line(self)
    }

    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> String {
        const CHECK: &str = "check the path, the disk and the permissions";
        let of_io = |error: &io::Error| Substitute::find(error).map_or(CHECK, Substitute::remedy).to_string();
        let or_check = |hint: Option<String>| hint.unwrap_or_else(|| CHECK.into());
        match self {
            ReportError::File { source, .. } => of_io(source),
            ReportError::Io(source) => of_io(source),
            ReportError::NoRun { .. } => "name the folder of a run or of a sweep, or a fold of it".into(),
            ReportError::Dataset(found) => found.hint.clone(),
            ReportError::DatasetUnknown { .. } => "name the data set".into(),
            ReportError::CaseMissing { .. } => "name the data set that was trained with".into(),
            ReportError::ImageMissing { .. } => "inspect the data set".into(),
            ReportError::Shapes { of: Pair::LabelsAndImage, .. } => "draw labels over their own image".into(),
            ReportError::Shapes { of: Pair::PredictionAndReference, .. } => {
                "compare a prediction with the reference of the same image".into()
            }
            ReportError::Slice { .. } => "inspect the case, or leave out its preview".into(),
            ReportError::Shrink { .. } => "leave the volumes out of the page".into(),
            ReportError::TooManyRows { .. } => {
                "choose fewer scores, classes or candidates, or leave out the picture".into()
            }
            ReportError::Pixels(_) => "this is a bug: report it".into(),
            ReportError::Json(_) => "this is a bug: report it with the files of the run".into(),
            ReportError::Memory(_) | ReportError::Map(_) => "raise the memory limit".into(),
            ReportError::Metric(error) => or_check(error.remedy()),
            ReportError::Run(error) => or_check(error.remedy()),
            ReportError::Table(error) => or_check(error.remedy()),
            ReportError::Volume(error) => or_check(error.remedy()),
        }
    }
}
