//! Writing models for other programs, and as one file.

use std::path::PathBuf;

use plimsoll::{Context, ExportFormat, ExportRequest, ModelFileRequest};
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
    format: Format,
    fold: Option<String>,
    external_data: bool,
    checkpoint: Option<CheckpointKind>,
    overwrite: bool,
    ram: Option<Bytes>,
}

/// A format of models.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Safetensors,
    Nnunet,
    Onnx,
    /// All folds in one file of our own.
    Plimsoll,
}

/// Writes a model for other programs, or as one file.
pub(super) fn export(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: ExportArguments = parsed(arguments)?;
    let files = Files::default().read("the model", [&arguments.model]);
    let output = arguments.output.as_path();
    let (files, format) = match arguments.format {
        Format::Nnunet => (files.write_into("output", Some(output)), Some(ExportFormat::Nnunet)),
        Format::Safetensors => {
            (files.write_as_allowed("output", output, contents::OTHER), Some(ExportFormat::Safetensors))
        }
        Format::Onnx => (files.write_as_allowed("output", output, contents::GRAPH), Some(ExportFormat::Onnx)),
        Format::Plimsoll => (files.write_as_allowed("output", output, contents::OTHER), None),
    };
    files.expect_apart_from_data([arguments.model.as_path()], arguments.ram)?;
    let context = files.check(context)?;
    match format {
        Some(format) => write(arguments, format, &context),
        None => write_one_file(arguments, &context),
    }
}

fn write(arguments: ExportArguments, format: ExportFormat, context: &Context) -> Result<String, Failure> {
    let fold = arguments.fold.as_deref().map(str::parse::<FoldName>).transpose().map_err(JobFailure::wrap)?;
    let request = ExportRequest {
        model: arguments.model,
        output: arguments.output,
        format,
        fold,
        external_data: arguments.external_data,
        checkpoint: arguments.checkpoint,
        overwrite: arguments.overwrite,
        ram: arguments.ram,
    };
    written(&plimsoll::export(&request, context).map_err(JobFailure::wrap)?)
}

fn write_one_file(arguments: ExportArguments, context: &Context) -> Result<String, Failure> {
    if arguments.fold.is_some() {
        return Err(JobFailure::argument(
            "fold has no effect with format=\"plimsoll\", which writes all folds; name the folder of one as the model",
        ));
    }
    if arguments.external_data {
        return Err(JobFailure::argument(
            "external_data has no effect with format=\"plimsoll\", which is one file of any size",
        ));
    }
    let request = ModelFileRequest {
        run: arguments.model,
        file: arguments.output,
        checkpoint: arguments.checkpoint.unwrap_or_default(),
        overwrite: arguments.overwrite,
        ram: arguments.ram,
    };
    written(&plimsoll::write_model_file(&request, context).map_err(JobFailure::wrap)?)
}
