//! Errors of data sets and loaders as Python sees them.

use plimsoll::{Cause, Error};
use plimsoll_data::{DatasetError, InspectError, LoaderError, SamplerError};
use plimsoll_memory::OverBudget;
use plimsoll_nn::ConfigError;
use plimsoll_remedy::render;
use plimsoll_run::{RunError, one_line};

use crate::error::over_limit;
use crate::{Failure, Keywords};

/// The failure of opening a data set.
pub(super) fn opening_failure(error: &Error) -> Failure {
    let over = over_limit(error.cause()).map(|over| match error.cause() {
        Cause::Inspect(InspectError::Case { case, .. }) => {
            OverBudget { holder: format!("case {case}: {}", over.holder), ..over }
        }
        _ => over,
    });
    if let Some(over) = over {
        return Failure::OverLimit(over);
    }
    let remedy = match error.cause() {
        Cause::Dataset(DatasetError::Values { proposal, .. }) => {
            format!("name them with labels={{{}}}", python_entries(proposal))
        }
        _ => error.remedy().render(&Keywords),
    };
    let remedy = Some(remedy).filter(|text| !text.is_empty());
    Failure::Failed { message: render(&error.line(), &Keywords), remedy }
}

/// The entries of a dictionary of Python, from the entries of a table of TOML.
fn python_entries(toml: &str) -> String {
    let entry = |text: &str| match text.split_once(" = ") {
        Some((name, value)) => format!("\"{}\": {value}", name.trim_matches('"')),
        None => text.to_string(),
    };
    toml.split(", ").map(entry).collect::<Vec<_>>().join(", ")
}

/// The failure of sampling patches.
pub(super) fn sampler_failure(error: &SamplerError) -> Failure {
    let argument = match error {
        SamplerError::Patch { .. } => Some("patch_size"),
        SamplerError::Spacing { .. } => Some("spacing"),
        SamplerError::Oversampling { .. } => Some("oversample_foreground"),
        SamplerError::Augmentation(_) => Some("augmentation"),
        SamplerError::UnknownCase { .. } | SamplerError::Empty { .. } => None,
    };
    match argument {
        Some(argument) => Failure::argument(argument, format!("is not possible: {error}")),
        None => Failure::Failed {
            message: error.to_string(),
            remedy: error.remedy().map(|text| render(&text, &Keywords)),
        },
    }
}

/// The failure of preparing images as they are set.
pub(super) fn image_failure(error: &RunError) -> Failure {
    let argument = match error {
        // The sides of the size that images are resized to.
        RunError::Config(ConfigError::Value { setting: "side", .. }) => "patch_size",
        _ => "images",
    };
    Failure::argument(argument, format!("is not possible: {}", render(&one_line(error), &Keywords)))
}

/// The failure of loading a batch.
pub(super) fn loader_failure(error: &LoaderError) -> Failure {
    if let Some(over) = over_limit(error) {
        return Failure::OverLimit(over);
    }
    let remedy = match error {
        LoaderError::AllLent { slots } => {
            return Failure::Failed {
                message: format!("all {slots} batches are still in use, so that the next cannot be made"),
                remedy: Some(format!(
                    "delete batches before the next is taken, keep copies of tensors with .clone(), or pass prefetch={slots} or more"
                )),
            };
        }
        other => other.remedy(),
    };
    let remedy = remedy.map(|text| render(&text, &Keywords));
    Failure::Failed { message: render(&one_line(error), &Keywords), remedy }
}
