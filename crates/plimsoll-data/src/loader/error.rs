//! What can go wrong while batches are made.

use std::io;

use plimsoll_memory::{MapError, OverBudget};
use plimsoll_morphology::MorphologyError;

use crate::fingerprint::NoForeground;
use crate::patch::PatchError;

/// Why there is no batch.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// A setting that must be at least 1 is 0.
    #[error("`{setting}` of the loader is 0, but must be at least 1")]
    Zero {
        /// Which.
        setting: &'static str,
    },
    /// There is no room.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The system started no thread.
    #[error("cannot start a thread to load batches")]
    Thread(#[source] io::Error),
    /// A case that was inspected is not in the data set.
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
        problem: NoForeground,
    },
    /// A patch cannot be made.
    #[error("step {step}: case {case}: {problem}")]
    Patch {
        /// The step of its batch.
        step: u64,
        /// The case.
        case: String,
        /// Which file, and why.
        problem: Box<PatchError>,
    },
    /// A map of labels cannot be made.
    #[error("a map of labels: {0}")]
    Target(#[from] MorphologyError),
    /// A thread panicked.
    #[error("the thread that made the batch of step {step} ended unexpectedly")]
    Panicked {
        /// The step.
        step: u64,
    },
    /// There was an error before, or the loader is being dropped.
    #[error("there is no batch for step {step}: the loader has stopped")]
    Stopped {
        /// The step.
        step: u64,
    },
    /// The caller holds every batch.
    #[error("all {slots} batches of the loader are lent, so that the next cannot be made")]
    AllLent {
        /// How many there are.
        slots: usize,
    },
}

impl From<OverBudget> for LoaderError {
    fn from(problem: OverBudget) -> LoaderError {
        LoaderError::Memory(problem.into())
    }
}

impl LoaderError {
    /// A way out.
    pub fn hint(&self) -> Option<String> {
        match self {
            LoaderError::Memory(_) => {
                Some("raise the memory line, or load with fewer threads or slots, or smaller patches".into())
            }
            LoaderError::Thread(_) => Some("load with fewer threads".into()),
            LoaderError::UnknownCase { .. } => Some("inspect the data set again".into()),
            LoaderError::Normalisation { problem, .. } => problem.hint(),
            LoaderError::Patch { problem, .. } => problem.hint(),
            LoaderError::AllLent { .. } => Some("drop a batch first, or use more slots".into()),
            LoaderError::Zero { .. }
            | LoaderError::Target(_)
            | LoaderError::Panicked { .. }
            | LoaderError::Stopped { .. } => None,
        }
    }
}
