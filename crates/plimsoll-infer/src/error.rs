//! Why a case cannot be predicted.

use std::path::{Path, PathBuf};

use plimsoll_data::{InspectError, NoForeground, PatchError, Problem};
use plimsoll_memory::{Bytes, MapError, OverBudget};
use plimsoll_nn::ConfigError;
use plimsoll_plan::{EngineError, PlanError};
use plimsoll_train::TrainError;
use plimsoll_volume::VolumeError;

/// Why a case cannot be predicted.
#[derive(Debug, thiserror::Error)]
pub enum InferError {
    /// The run has no configuration that can be read.
    #[error(transparent)]
    Run(#[from] TrainError),
    /// A folder holds no model.
    #[error("{} holds no model: there is no {file} in it or in folders fold_0, fold_1, …", folder.display())]
    NoModel {
        /// The folder.
        folder: PathBuf,
        /// What was looked for.
        file: &'static str,
    },
    /// The configuration is impossible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The program cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No engine can run the plan.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A case's images cannot be inspected.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// A case's images are not sound.
    #[error("{problem}")]
    Unsound {
        /// The first problem.
        problem: Box<Problem>,
    },
    /// A case has no image that can be read.
    #[error("{case} has no image that can be read")]
    Unreadable {
        /// The case.
        case: String,
    },
    /// A channel cannot be normalised.
    #[error("{case}: {source}")]
    Normalisation {
        /// The case.
        case: String,
        /// Why.
        source: NoForeground,
    },
    /// A window cannot be pulled.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Memory is refused.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// Memory that was planned for is not there.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The line is too low for a case.
    #[error("{case} needs {needed}, but the line is {line}: {parts}")]
    Infeasible {
        /// The case.
        case: String,
        /// The least line that would do.
        needed: Bytes,
        /// The line.
        line: Bytes,
        /// What needs it.
        parts: String,
    },
    /// A prediction would overwrite something.
    #[error("{} is there already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It was interrupted.
    #[error("interrupted while predicting {case}; nothing was written for it")]
    Interrupted {
        /// The case.
        case: String,
    },
    /// A folder cannot be made.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl InferError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> InferError {
        InferError::Io { path: path.into(), source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            InferError::Run(error) => error.hint(),
            InferError::NoModel { .. } => {
                Some("name the folder that `plimsoll train --out` wrote, or one of its folds".into())
            }
            InferError::Config(error) => error.hint(),
            InferError::Inspect(error) => error.hint(),
            InferError::Unsound { problem } => problem.hint.clone(),
            InferError::Normalisation { source, .. } => source.hint(),
            InferError::Patch(error) => error.hint(),
            InferError::Volume(error) => error.hint(),
            InferError::Infeasible { needed, .. } => {
                Some(format!("raise the line to --ram {}MiB", needed.0.div_ceil(1 << 20)))
            }
            InferError::Exists { .. } => Some("choose another folder with -o, or add --overwrite".into()),
            InferError::Memory(_) | InferError::OverBudget(_) => Some("raise --ram".into()),
            InferError::Plan(_)
            | InferError::Engine(_)
            | InferError::Unreadable { .. }
            | InferError::Interrupted { .. }
            | InferError::Io { .. } => None,
        }
    }
}
