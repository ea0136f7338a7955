//! Why a run cannot be planned, or ends early.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_data::{LoaderError, SamplerError};
use plimsoll_memory::{Bytes, MapError, OverBudget};
use plimsoll_nn::ConfigError;
use plimsoll_nn::weights::WeightError;
use plimsoll_plan::{EngineError, PlanError};

use crate::WayOut;

/// Why a run cannot be planned, or ends early.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The configuration is impossible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The programs cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No engine can run the plan.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Patches cannot be chosen.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// Batches cannot be made.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// A weight file cannot be used.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// Memory that was planned for is not there.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// Memory cannot be mapped.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The line is too low for the run.
    #[error(
        "the run needs {needed} even with all recomputation and the smallest micro-batch, but the line is {line}: {parts}"
    )]
    Infeasible {
        /// The least line that would do.
        needed: Bytes,
        /// The line.
        line: Bytes,
        /// What needs it.
        parts: String,
        /// What would make it fit.
        ways_out: Vec<WayOut>,
    },
    /// A count is zero.
    #[error("`{setting}` is 0, but must be at least 1")]
    Zero {
        /// Which.
        setting: &'static str,
    },
    /// A folder holds a run already.
    #[error("{} holds a run already", folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder holds a run of another configuration.
    #[error("{} holds a run with another configuration: {difference}", folder.display())]
    OtherConfig {
        /// The folder.
        folder: PathBuf,
        /// The first setting that differs, with both values.
        difference: String,
    },
    /// A checkpoint is not one of this run.
    #[error("{} is no checkpoint of this run: {why}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file of a run is damaged.
    #[error("{} is not what it should be: {why}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The loss is no longer a number.
    #[error("the loss of step {step} is {loss}")]
    Diverged {
        /// The step, from 1.
        step: u64,
        /// The loss.
        loss: f32,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl TrainError {
    pub(crate) fn io(path: &Path, source: io::Error) -> TrainError {
        TrainError::Io { path: path.into(), source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            TrainError::Config(error) => error.hint(),
            TrainError::Sampler(error) => error.hint(),
            TrainError::Loader(error) => error.hint(),
            TrainError::Weights(error) => error.hint(),
            TrainError::Infeasible { ways_out, .. } => {
                let ways =
                    ways_out.iter().map(|way| format!("{} (needs {})", way.flags, way.minimum_ram_bytes));
                Some(format!("it would fit with {}", ways.collect::<Vec<_>>().join(", or ")))
                    .filter(|_| !ways_out.is_empty())
            }
            TrainError::Occupied { .. } => {
                Some("add --resume to go on with it, or choose another folder with --out".into())
            }
            TrainError::OtherConfig { .. } => {
                Some("use the settings that the run was started with, or another folder with --out".into())
            }
            TrainError::Diverged { .. } => {
                Some("lower --learning-rate; the last checkpoint is from before this step".into())
            }
            TrainError::Checkpoint { .. } | TrainError::Json { .. } => {
                Some("remove the file to begin anew, or restore it from a copy".into())
            }
            TrainError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("choose a folder that can be written with --out".into())
            }
            TrainError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free space on the disk, then --resume".into())
            }
            TrainError::OverBudget(_) | TrainError::Memory(_) => Some("raise --ram".into()),
            _ => None,
        }
    }
}
