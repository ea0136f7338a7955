//! Importing models, showing what they are, and verifying models in one file.

use std::path::PathBuf;

use plimsoll::{Context, ImportRequest, ShowRequest, VerifyRequest};
use plimsoll_memory::Bytes;
use serde::Deserialize;

use super::files::Files;
use super::{JobFailure, parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportArguments {
    archive: PathBuf,
    output: PathBuf,
    ram: Option<Bytes>,
}

/// Imports models of nnU-Net, and describes each.
pub(super) fn import(arguments: &str, context: &Context) -> Result<String, Failure> {
    let ImportArguments { archive, output, ram } = parsed(arguments)?;
    let context =
        Files::default().read("the model", [&archive]).write_into("output", Some(&output)).check(context)?;
    let request = ImportRequest { from: archive, to: output, ram };
    written(&plimsoll::import_models(&request, &context).map_err(JobFailure::wrap)?)
}

/// A model, or a folder with several.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelPath {
    path: PathBuf,
    ram: Option<Bytes>,
}

/// Describes the models of a folder, or one model.
pub(super) fn show(arguments: &str, context: &Context) -> Result<String, Failure> {
    let ModelPath { path, ram } = parsed(arguments)?;
    written(&plimsoll::show_models(&ShowRequest { path, ram }, context).map_err(JobFailure::wrap)?)
}

/// Checks that every tensor of a model in one file is as it was written.
pub(super) fn verify(arguments: &str, context: &Context) -> Result<String, Failure> {
    let ModelPath { path, ram } = parsed(arguments)?;
    let request = VerifyRequest { file: path, ram };
    written(&plimsoll::verify_model_file(&request, context).map_err(JobFailure::wrap)?)
}
