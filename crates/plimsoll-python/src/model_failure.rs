//! Failures of models and of predictions.

use plimsoll_data::DatasetError;
use plimsoll_infer::{ArrayError, InferError};
use plimsoll_models::ModelError;
use plimsoll_remedy::render;
use plimsoll_run::one_line;
use plimsoll_volume::MemoryVolumeError;

use crate::error::over_limit;
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
    over_limit(&error)
        .map_or_else(|| Failure::Failed { message: render(&text, &Keywords), remedy }, Failure::OverLimit)
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
        let remedy = error.remedy().map(|text| render(&text, &Keywords));
        over_limit(&error).map_or_else(
            || Failure::Failed { message: render(&one_line(&error), &Keywords), remedy },
            Failure::OverLimit,
        )
    }
}

impl From<plimsoll::Error> for Failure {
    fn from(error: plimsoll::Error) -> Failure {
        over_limit(error.cause()).map_or_else(
            || Failure::Failed {
                message: render(&error.line(), &Keywords),
                remedy: Some(error.remedy().render(&Keywords)),
            },
            Failure::OverLimit,
        )
    }
}
