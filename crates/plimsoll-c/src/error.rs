//! Why a call failed, as a number and as a text.

use std::error::Error;
use std::iter::successors;

use plimsoll_data::PrepareError;
use plimsoll_infer::{ArrayError, InferError, InteractiveError};
use plimsoll_memory::{Bytes, MapError, OverBudget};
use plimsoll_metrics::MetricError;
use plimsoll_models::ModelError;
use plimsoll_plan::EngineError;
use plimsoll_remedy::render;
use plimsoll_run::{RunError, one_line};
use plimsoll_volume::{GeometryError, MemoryVolumeError};

use crate::wording::Fields;

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlimsollStatus {
    /// It did what it says.
    Ok = 0,
    /// An argument cannot be: a null pointer, a length that does not fit, a number that means nothing.
    Argument = 1,
    /// The model cannot be opened.
    Model = 2,
    /// The memory limit is too low.
    Memory = 3,
    /// The image cannot be predicted with this model.
    Image = 4,
    /// It was stopped.
    Stopped = 5,
    /// A fault of the library itself. The handle can only be freed.
    Internal = 6,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An argument cannot be.
    #[error("{what}")]
    Argument { what: String },
    #[error("invalid image geometry: {0}")]
    Grid(#[from] GeometryError),
    #[error("{0}")]
    Model(#[from] ModelError),
    #[error("{0}")]
    Unsupported(String),
    #[error("a memory limit of {asked} is above the {limit} that this process may use")]
    AboveLimit { asked: Bytes, limit: Bytes },
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{text}")]
    // The text has the causes in it already, with names of channels in the places of paths.
    Infer { text: String, cause: Box<InferError> },
    #[error("{0}")]
    Interactive(InteractiveError),
    #[error("{0}")]
    Memory(#[from] OverBudget),
    #[error("{0}")]
    Copy(#[from] MemoryVolumeError),
    #[error("{0}")]
    Metric(#[from] MetricError),
    #[error("label {label} was not scored")]
    NoScores { label: u8 },
    #[error("the model could not be opened")]
    NotOpen,
    #[error("an earlier call on this handle failed with an internal error: {0}")]
    Broken(String),
}

impl Failure {
    /// An argument that cannot be.
    pub(crate) fn argument(what: impl Into<String>) -> Failure {
        Failure::Argument { what: what.into() }
    }

    /// The number of it.
    pub(crate) fn status(&self) -> PlimsollStatus {
        match self {
            // Before all others: a limit can be too low for anything that a call does.
            _ if self.is_of_memory() => PlimsollStatus::Memory,
            Failure::Argument { .. } | Failure::Grid(_) | Failure::NotOpen => PlimsollStatus::Argument,
            Failure::Model(_) | Failure::Unsupported(_) => PlimsollStatus::Model,
            Failure::Interactive(error) => match error {
                InteractiveError::Stopped => PlimsollStatus::Stopped,
                InteractiveError::ImageNotFinite { .. }
                | InteractiveError::EmptyImage
                | InteractiveError::ConstantImage
                | InteractiveError::NotFinite { .. } => PlimsollStatus::Image,
                _ => PlimsollStatus::Argument,
            },
            Failure::AboveLimit { .. } | Failure::Memory(_) => PlimsollStatus::Memory,
            Failure::Engine(_) | Failure::Broken(_) => PlimsollStatus::Internal,
            // Maps are checked before they are compared.
            Failure::Metric(_) | Failure::NoScores { .. } => PlimsollStatus::Internal,
            Failure::Copy(MemoryVolumeError::OverBudget(_)) => PlimsollStatus::Memory,
            Failure::Copy(MemoryVolumeError::Length { .. }) => PlimsollStatus::Argument,
            Failure::Copy(MemoryVolumeError::Io(_)) => PlimsollStatus::Internal,
            Failure::Infer { cause, .. } => match **cause {
                InferError::Interrupted { .. } => PlimsollStatus::Stopped,
                InferError::Run(_)
                | InferError::Config(_)
                | InferError::OtherNetwork { .. }
                | InferError::Plan(_)
                | InferError::Engine(_) => PlimsollStatus::Model,
                _ => PlimsollStatus::Image,
            },
        }
    }

    /// Returns `true` if the memory limit is too low, or the system refuses memory.
    fn is_of_memory(&self) -> bool {
        let error: &(dyn Error + 'static) = match self {
            Failure::Infer { cause, .. } => &**cause,
            other => other,
        };
        successors(Some(error), |&error| error.source()).any(|cause| {
            cause.is::<OverBudget>()
                || cause.is::<MapError>()
                || match cause.downcast_ref() {
                    Some(InferError::Infeasible { .. } | InferError::Overhead(_)) => true,
                    Some(InferError::Prepare { source, .. }) => matches!(**source, PrepareError::Zoom { .. }),
                    _ => false,
                }
        })
    }

    /// The error in one line, and its remedy in another one, if there is one.
    pub(crate) fn text(&self) -> String {
        let hint = match self {
            Failure::Memory(refused) | Failure::Copy(MemoryVolumeError::OverBudget(refused)) => {
                // Other reservations and its own size come before arena and logits.
                let least = refused.limit - refused.free + refused.needed;
                Some(format!("raise ram_bytes above {}", least.0))
            }
            Failure::Infer { cause, .. } => match **cause {
                InferError::Infeasible { needed, .. } => {
                    Some(format!("raise ram_bytes to {}", needed.0.div_ceil(1 << 20).saturating_mul(1 << 20)))
                }
                InferError::Overhead(OverBudget { needed, .. }) => {
                    Some(format!("raise ram_bytes above {}", needed.0))
                }
                _ if self.is_of_memory() => Some("raise ram_bytes".into()),
                _ => cause.remedy(),
            },
            _ if self.is_of_memory() => Some("raise ram_bytes".into()),
            Failure::Model(error) => {
                let of_path =
                    || matches!(error, ModelError::Run(RunError::Io { .. })).then(|| "check the path".into());
                error.remedy().or_else(of_path)
            }
            Failure::Grid(error) => error.remedy(),
            Failure::Interactive(error) => error.remedy(),
            Failure::AboveLimit { limit, .. } => {
                Some(format!("set ram_bytes to {} at most, or to 0", limit.0))
            }
            _ => None,
        };
        let text = one_line(self);
        render(&hint.map_or(text.clone(), |hint| format!("{text}\nhint: {hint}")), &Fields)
    }
}

impl From<InteractiveError> for Failure {
    fn from(error: InteractiveError) -> Failure {
        match error {
            InteractiveError::Infer(cause) => {
                Failure::Infer { text: one_line(&cause), cause: Box::new(cause) }
            }
            own => Failure::Interactive(own),
        }
    }
}

impl From<ArrayError> for Failure {
    fn from(error: ArrayError) -> Failure {
        match error {
            ArrayError::Copy(error) => Failure::Copy(error),
            ArrayError::Memory(refused) => Failure::Memory(refused),
            ArrayError::Infer { text, cause } => Failure::Infer { text, cause },
            ArrayError::Channels { .. } | ArrayError::NarrowLabels { .. } | ArrayError::TooLarge { .. } => {
                Failure::argument(error.to_string())
            }
        }
    }
}
