//! Failures of models and of predictions.

use plimsoll::Cause;
use plimsoll_data::{DatasetError, InspectError};
use plimsoll_infer::{ArrayError, InferError};
use plimsoll_memory::{MapError, OverBudget};
use plimsoll_models::ModelError;
use plimsoll_remedy::render;
use plimsoll_run::one_line;
use plimsoll_volume::MemoryVolumeError;

use crate::{Failure, Keywords};

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Failure {
        plimsoll::Error::from(error).into()
    }
}

impl From<InferError> for Failure {
    fn from(error: InferError) -> Failure {
        prediction_failure(one_line(&error), error)
    }
}

/// The failure of a prediction, with a text for it.
fn prediction_failure(text: String, error: InferError) -> Failure {
    let remedy = error.remedy().map(|text| render(&text, &Keywords));
    match error {
        InferError::Infeasible { case, needed, limit, .. } => {
            Failure::OverLimit(OverBudget { holder: case, needed, free: limit, limit, top: Vec::new() })
        }
        InferError::OverBudget(over)
        | InferError::Overhead(over)
        | InferError::Memory(MapError::OverBudget(over))
        | InferError::Inspect(
            InspectError::Memory(MapError::OverBudget(over))
            | InspectError::Case { problem: MapError::OverBudget(over), .. },
        ) => Failure::OverLimit(over),
        _ => Failure::Failed { message: render(&text, &Keywords), remedy },
    }
}

impl From<ArrayError> for Failure {
    fn from(error: ArrayError) -> Failure {
        match error {
            ArrayError::Channels { .. }
            | ArrayError::TooLarge { .. }
            | ArrayError::Copy(MemoryVolumeError::Length { .. }) => {
                Failure::argument("image", format!("cannot be predicted: {error}"))
            }
            ArrayError::Memory(over) | ArrayError::Copy(MemoryVolumeError::OverBudget(over)) => {
                Failure::OverLimit(over)
            }
            ArrayError::Infer { text, cause } => prediction_failure(text, *cause),
            ArrayError::NarrowLabels { .. } | ArrayError::Copy(MemoryVolumeError::Io(_)) => {
                Failure::Failed { message: error.to_string(), remedy: None }
            }
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        match error {
            ModelError::Memory(MapError::OverBudget(over)) => Failure::OverLimit(over),
            other => {
                let remedy = other.remedy().map(|text| render(&text, &Keywords));
                Failure::Failed { message: render(&one_line(&other), &Keywords), remedy }
            }
        }
    }
}

impl From<plimsoll::Error> for Failure {
    fn from(error: plimsoll::Error) -> Failure {
        let over = match error.cause() {
            Cause::Memory(over) | Cause::Map(MapError::OverBudget(over)) => Some(over.clone()),
            Cause::Infer(
                InferError::OverBudget(over)
                | InferError::Overhead(over)
                | InferError::Memory(MapError::OverBudget(over)),
            ) => Some(over.clone()),
            Cause::Infer(InferError::Infeasible { case, needed, limit, .. }) => Some(OverBudget {
                holder: case.clone(),
                needed: *needed,
                free: *limit,
                limit: *limit,
                top: Vec::new(),
            }),
            _ => None,
        };
        over.map_or_else(
            || Failure::Failed {
                message: render(&error.line(), &Keywords),
                remedy: Some(error.remedy().render(&Keywords)),
            },
            Failure::OverLimit,
        )
    }
}
