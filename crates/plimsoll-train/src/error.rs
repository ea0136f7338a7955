//! Why a run cannot be planned, or ends early.

use std::io;

use plimsoll_data::pictures::SettingError;
use plimsoll_data::{LoaderError, SamplerError, SplitsError};
use plimsoll_graph::DType;
use plimsoll_memory::{MapError, OverBudget};
use plimsoll_nn::ConfigError;
use plimsoll_plan::{EngineError, PlanError};
use plimsoll_ranks::RanksError;
use plimsoll_run::RunError;

/// Why a run cannot be planned, or ends early.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The configuration is impossible.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The programs cannot be planned.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// No engine can run the plan.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// Patches cannot be chosen.
    #[error("{0}")]
    Sampler(#[from] SamplerError),
    /// Batches cannot be made.
    #[error("{0}")]
    Loader(#[from] LoaderError),
    /// Images cannot be brought to one size as it is set.
    #[error("{0}")]
    Images(#[from] SettingError),
    /// The run's folder cannot be used, or its files cannot.
    #[error("{0}")]
    Run(#[from] RunError),
    /// Memory that was planned for is not there.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// Memory cannot be mapped.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// Numbers of a step went wrong.
    #[error("step {step}: the loss is {loss} and the gradient norm {norm}; patches: {patches}")]
    BadNumbers {
        /// From 1.
        step: u64,
        /// The loss.
        loss: f32,
        /// The norm of all gradients.
        norm: f32,
        /// Cases, and where in them.
        patches: String,
        /// The number format of stored features.
        precision: DType,
    },
    /// The facts about a data set cannot be written as they are kept.
    #[error("the inspection of the data set cannot be written: {0}")]
    Unkept(#[source] io::Error),
    /// Ranks cannot communicate.
    #[error("{0}")]
    Ranks(#[from] RanksError),
    /// Ranks are about to train something else than the first one.
    #[error("rank {rank} has another {what} than rank 0")]
    OtherRank {
        /// The rank.
        rank: usize,
        /// The difference.
        what: &'static str,
    },
    /// Folds cannot be written.
    #[error("{0}")]
    Splits(#[from] SplitsError),
}

impl TrainError {
    /// Returns the remedy, if there is one.
    pub fn remedy(&self) -> Option<String> {
        match self {
            TrainError::Run(error) => error.remedy(),
            TrainError::Unkept(_) => None,
            TrainError::Config(error) => error.remedy(),
            TrainError::Sampler(error) => error.remedy(),
            TrainError::Loader(error) => error.remedy(),
            TrainError::Images(error) => error.remedy(),
            TrainError::BadNumbers { precision: DType::F16, loss, .. } if !loss.is_finite() => Some(
                "the weights are from before this step; a feature is probably beyond 65504, the largest number of f16: ‹precision=bf16› \
                 and f32 have a larger range"
                    .into(),
            ),
            TrainError::BadNumbers { .. } => Some(
                "the weights are from before this step; inspect these cases, or lower ‹learning_rate›; `bad_numbers` in plimsoll.toml \
                 skips such steps or rolls them back"
                    .into(),
            ),
            TrainError::Splits(error) => error.remedy(),
            TrainError::Ranks(error) => Some(error.remedy()),
            TrainError::OtherRank { .. } => Some(
                "all ranks need the same command, the same program, and one folder for data set and run that all nodes see".into(),
            ),
            TrainError::Engine(error) => error.remedy(),
            TrainError::Plan(error) => error.remedy(),
            TrainError::OverBudget(error) => Some(error.remedy()),
            TrainError::Memory(error) => Some(error.remedy()),
        }
    }

    /// Returns `true` if all ranks have the same error at the same step.
    pub fn is_of_all_ranks(&self) -> bool {
        matches!(self, TrainError::BadNumbers { .. })
    }

    /// Returns `true` if the computed state is still sound and can be saved: after an unreadable image or bad numbers, but not after a
    /// failure of the engine or of a file of the run.
    pub(crate) fn leaves_state_sound(&self) -> bool {
        matches!(self, TrainError::Loader(_) | TrainError::BadNumbers { .. })
    }
}
