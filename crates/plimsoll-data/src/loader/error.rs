//! Errors of loading batches.

use std::io;

use crate::pictures::SettingError;
use plimsoll_image::ImageError;
use plimsoll_memory::{MapError, OverBudget};
use plimsoll_morphology::MorphologyError;
use plimsoll_volume::VolumeError;

use crate::fingerprint::NoStatistics;
use crate::patch::PatchError;

/// Why a batch could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// A setting that must be at least 1 is 0.
    #[error("`{setting}` of the loader is 0, but must be at least 1")]
    Zero {
        /// The setting.
        setting: &'static str,
    },
    /// The budget has no room.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// The operating system could not start a thread.
    #[error("cannot start a thread to load batches")]
    Thread(#[source] io::Error),
    /// A case of the inspection is not in the data set.
    #[error("the data set has no case {case}, though it was inspected")]
    UnknownCase {
        /// The case.
        case: String,
    },
    /// A channel cannot be normalised.
    #[error("case {case}: {problem}")]
    Normalisation {
        /// The case.
        case: String,
        /// Why.
        #[source]
        problem: NoStatistics,
    },
    /// A patch cannot be loaded.
    #[error("step {step}, patch {sample}: case {case}: {problem}")]
    Patch {
        /// The step of its batch.
        step: u64,
        /// Its number in the batch, from 0.
        sample: u64,
        /// The case.
        case: String,
        /// The file and the reason.
        #[source]
        problem: Box<PatchError>,
    },
    /// A case cannot be read into the cache.
    #[error("case {case}: {problem}")]
    Warm {
        /// The case.
        case: String,
        /// The file and the reason.
        #[source]
        problem: Box<VolumeError>,
    },
    /// An image cannot be loaded.
    #[error("step {step}: case {case}: {problem}")]
    Image {
        /// The step of its batch.
        step: u64,
        /// The case.
        case: String,
        /// The file and the reason.
        #[source]
        problem: Box<ImageError>,
    },
    /// Images cannot be brought to one size as it is set.
    #[error("{0}")]
    Pipeline(#[from] SettingError),
    /// A target map cannot be computed.
    #[error("label map: {0}")]
    Target(#[from] MorphologyError),
    /// A thread panicked.
    #[error("the thread that filled the batch of step {step} ended unexpectedly")]
    Panicked {
        /// The step.
        step: u64,
    },
    /// An earlier step failed, or the loader is being dropped.
    #[error("there is no batch for step {step}: the loader has stopped")]
    Stopped {
        /// The step.
        step: u64,
    },
    /// The caller holds every batch.
    #[error("all {slots} batches of the loader are in use, so the next one has no place")]
    AllLent {
        /// The number of slots.
        slots: usize,
    },
}

impl From<OverBudget> for LoaderError {
    fn from(problem: OverBudget) -> LoaderError {
        LoaderError::Memory(problem.into())
    }
}

impl LoaderError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            LoaderError::Memory(_) => {
                Some("raise the memory limit, or load with fewer threads or slots, or smaller patches".into())
            }
            LoaderError::Thread(_) => Some("load with fewer threads".into()),
            LoaderError::UnknownCase { .. } => Some("inspect the data set again".into()),
            LoaderError::Normalisation { problem, .. } => problem.remedy(),
            LoaderError::Patch { problem, .. } => problem.remedy(),
            LoaderError::Warm { problem, .. } => problem.remedy(),
            LoaderError::Image { problem, .. } => problem.remedy(),
            LoaderError::Pipeline(problem) => problem.remedy(),
            LoaderError::AllLent { .. } => Some("drop a batch first, or use more slots".into()),
            LoaderError::Zero { .. }
            | LoaderError::Target(_)
            | LoaderError::Panicked { .. }
            | LoaderError::Stopped { .. } => None,
        }
    }
}
