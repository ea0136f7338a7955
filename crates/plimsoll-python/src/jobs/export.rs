//! Writing models for other programs.

use std::path::PathBuf;

use plimsoll::{Context, ExportFormat, ExportRequest};
use plimsoll_memory::Bytes;
use plimsoll_report::contents;
use plimsoll_run::{CheckpointKind, FoldName};
use serde::Deserialize;

use super::files::Files;
use super::{JobFailure, parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportArguments {
    model: PathBuf,
    output: PathBuf,
    format: ExportFormat,
    fold: Option<String>,
    external_data: bool,
    checkpoint: Option<CheckpointKind>,
    overwrite: bool,
    ram: Option<Bytes>,
}

/// Writes a model for other programs.
pub(super) fn export(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: ExportArguments = parsed(arguments)?;
    let files = Files::default().read("the model", [&arguments.model]);
    let output = arguments.output.as_path();
    let files = match arguments.format {
        ExportFormat::Nnunet => files.write_into("output", Some(output)),
        ExportFormat::Safetensors => files.write_as_allowed("output", output, contents::OTHER),
        ExportFormat::Onnx => files.write_as_allowed("output", output, contents::GRAPH),
    };
    files.expect_apart_from_data([arguments.model.as_path()], arguments.ram)?;
    let context = files.check(context)?;
    let fold = arguments.fold.as_deref().map(str::parse::<FoldName>).transpose().map_err(JobFailure::wrap)?;
    let request = ExportRequest {
        model: arguments.model,
        output: arguments.output,
        format: arguments.format,
        fold,
        external_data: arguments.external_data,
        checkpoint: arguments.checkpoint,
        overwrite: arguments.overwrite,
        ram: arguments.ram,
    };
    written(&plimsoll::export(&request, &context).map_err(JobFailure::wrap)?)
}
