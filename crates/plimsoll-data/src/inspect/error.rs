//! Why a data set could not be inspected. What is wrong with its cases is no error, but a [`Problem`](crate::Problem).

use std::io;
use std::path::PathBuf;

use plimsoll_memory::{MapError, OverBudget};

/// Why an inspection could not be carried out, kept or read back.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no room for what one case needs.
    #[error("case {case}: {problem}")]
    Case {
        /// The case.
        case: String,
        /// Who needs how much, and how much is free.
        problem: MapError,
    },
    /// There is no room.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The system started no thread.
    #[error("cannot start a thread to read images")]
    Thread(#[source] io::Error),
    /// A thread ended where none should.
    #[error("a thread that read images ended unexpectedly")]
    ThreadLost,
    /// The system refused.
    #[error("cannot {action} {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl From<OverBudget> for InspectError {
    fn from(problem: OverBudget) -> InspectError {
        InspectError::Memory(problem.into())
    }
}

impl InspectError {
    /// A way out.
    pub fn hint(&self) -> Option<String> {
        match self {
            InspectError::Case { .. } | InspectError::Memory(_) => {
                Some("raise the memory line, or inspect with fewer threads".into())
            }
            InspectError::Thread(_) => Some("use fewer threads".into()),
            InspectError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free space on the disk, or write somewhere else".into())
            }
            _ => None,
        }
    }

    /// The same, said of a case.
    pub(crate) fn in_case(self, case: &str) -> InspectError {
        match self {
            InspectError::Memory(problem) => InspectError::Case { case: case.into(), problem },
            other => other,
        }
    }
}
