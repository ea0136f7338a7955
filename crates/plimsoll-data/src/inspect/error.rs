//! Why a data set could not be inspected. Faults of its cases are not errors, but [`Problem`](crate::Problem)s.

use std::io;
use std::path::PathBuf;

use plimsoll_memory::{MapError, OverBudget};
use plimsoll_volume::VolumeError;

use crate::PrepareError;

/// Why an inspection could not be run, saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The budget has no room for what one case needs.
    #[error("case {case}: {problem}")]
    Case {
        /// The case.
        case: String,
        /// The holder, the bytes needed and the bytes free.
        #[source]
        problem: MapError,
    },
    /// The budget has no room.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// The operating system could not start a thread.
    #[error("cannot start a thread to read images")]
    Thread(#[source] io::Error),
    /// A thread ended unexpectedly.
    #[error("a thread that read images ended unexpectedly")]
    ThreadLost,
    /// A label map cannot be read as one.
    #[error("{} is not a label map", .path.display())]
    Labels {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<VolumeError>,
    },
    /// The mask of a case cannot be found.
    #[error("case {case}: {source}")]
    Mask {
        /// The case.
        case: String,
        /// Why.
        source: Box<PrepareError>,
    },
    /// It was told to stop.
    #[error("interrupted while reading images")]
    Stopped,
    /// The operating system reported an error.
    #[error("cannot {action} {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action, as a verb.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

impl From<OverBudget> for InspectError {
    fn from(problem: OverBudget) -> InspectError {
        InspectError::Memory(problem.into())
    }
}

impl InspectError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            InspectError::Case { problem, .. } | InspectError::Memory(problem) => {
                Some(format!("{}, or use fewer threads", problem.remedy()))
            }
            InspectError::Labels { source, .. } => source.remedy(),
            InspectError::Thread(_) => Some("use fewer threads".into()),
            InspectError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free space on the disk, or write somewhere else".into())
            }
            _ => None,
        }
    }

    /// Adds the case to the error.
    pub(crate) fn in_case(self, case: &str) -> InspectError {
        match self {
            InspectError::Memory(problem) => InspectError::Case { case: case.into(), problem },
            other => other,
        }
    }
}
