//! Writing a model for other programs.

use std::path::PathBuf;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::nnunet::{ExportedFolder, NnUnetChoice, export_nnunet};
use plimsoll_models::onnx::{ExportedGraph, OnnxModel, WeightsGo, export_onnx};
use plimsoll_models::{Exported, Model, OpenOptions, OpenedModel, export_weights};
use plimsoll_nn::weights::WeightSource;
use plimsoll_run::{CheckpointKind, FoldName};
use serde::{Deserialize, Serialize};

use super::memory_limit::MemoryLimit;
use crate::context::Context;
use crate::error::{Error, Outcome};

/// The format that a model is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportFormat {
    /// The weights of one fold of a run, under the names that the network's authors give its tensors.
    #[default]
    Safetensors,
    /// A folder that nnU-Net 2 predicts with, with all folds of a run.
    Nnunet,
    /// The forward pass of one fold of any model over a window.
    Onnx,
}

/// A model to write for other programs.
#[derive(Clone, Debug, Default)]
pub struct ExportRequest {
    /// The folder of a run or of one of its folds; as ONNX also a model of any other kind that labels voxels.
    pub model: PathBuf,
    /// The file that is written, or the folder for nnU-Net.
    pub output: PathBuf,
    /// The format.
    pub format: ExportFormat,
    /// The fold, where the model has several and the format one.
    pub fold: Option<FoldName>,
    /// Writes weights into a file beside the graph; ONNX only.
    pub external_data: bool,
    /// The checkpoint of a run; none for the final one.
    pub checkpoint: Option<CheckpointKind>,
    /// Replaces an existing file.
    pub overwrite: bool,
    /// The memory limit; none for what the machine leaves.
    pub ram: Option<Bytes>,
}

/// A model that was written, by its format.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ExportedModel {
    /// A file of weights.
    Weights(Exported),
    /// A folder of nnU-Net.
    Folder(ExportedFolder),
    /// An ONNX graph.
    Graph(ExportedGraph),
}

/// Writes a model for other programs.
///
/// # Errors
/// Returns an error if the model cannot be opened, the format cannot represent it, the output exists and is not to be replaced, the limit
/// has no room for the largest tensor, or the disk refuses. Then no output is left.
pub fn export(request: &ExportRequest, context: &Context) -> Outcome<ExportedModel> {
    if request.external_data && request.format != ExportFormat::Onnx {
        let message = "‹external_data› has no effect without ‹format=onnx›";
        return Err(Error::new(message, "leave it out: other formats have no limit on the size of weights"));
    }
    let budget = MemoryLimit::set(request.ram, 1, context)?.budget;
    match request.format {
        ExportFormat::Safetensors => write_weights(request, &budget).map(ExportedModel::Weights),
        ExportFormat::Nnunet => write_nnunet(request, &budget).map(ExportedModel::Folder),
        ExportFormat::Onnx => write_onnx(request, &budget).map(ExportedModel::Graph),
    }
}

fn write_weights(request: &ExportRequest, budget: &Budget) -> Outcome<Exported> {
    let model = open_run(request, budget)?;
    let checkpoint = &one_fold(request, &model.weights)?.path;
    expect_file(request, "safetensors", "`safetensors.torch.load_file` reads such files in Python")?;
    let net = model.config.training.net.as_architecture();
    Ok(export_weights(checkpoint, net, &request.output, budget)?)
}

fn write_nnunet(request: &ExportRequest, budget: &Budget) -> Outcome<ExportedFolder> {
    if request.overwrite {
        let message = "‹overwrite› has no effect with ‹format=nnunet›";
        return Err(Error::new(message, "name a folder that does not exist, or remove the existing one"));
    }
    Ok(export_nnunet(&open_run(request, budget)?, &request.output, budget)?)
}

fn write_onnx(request: &ExportRequest, budget: &Budget) -> Outcome<ExportedGraph> {
    expect_file(request, "onnx", "ONNX runtimes recognise files by this ending")?;
    let weights = if request.external_data { WeightsGo::Beside } else { WeightsGo::Inside };
    let write = |model: &OnnxModel<'_>| export_onnx(model, &request.output, weights, budget);
    let exported = match open(request, budget)? {
        other @ (OpenedModel::NnUnet { .. }
        | OpenedModel::Monai { .. }
        | OpenedModel::HdBet { .. }
        | OpenedModel::Deepbet { .. }) => {
            let model = other.into_segmentation()?;
            write(&OnnxModel::from_model(&model, one_fold(request, &model.weights)?)?)?
        }
        own => {
            let run = own.into_run()?;
            write(&OnnxModel::from_run(&run.config, one_fold(request, &run.weights)?)?)?
        }
    };
    Ok(exported)
}

/// Opens the model with all its folds, or the chosen one.
fn open(request: &ExportRequest, budget: &Budget) -> Outcome<OpenedModel> {
    let checkpoint = request.checkpoint.unwrap_or_default();
    let options = OpenOptions { checkpoint, fold: request.fold, nnunet: NnUnetChoice::default() };
    let opened = OpenedModel::open(&request.model, &options, budget)?;
    let has_checkpoints = matches!(opened, OpenedModel::Run { .. } | OpenedModel::Pairs { .. });
    if request.checkpoint.is_some() && !has_checkpoints {
        let message = format!(
            "‹checkpoint› has no effect with {}: it is not the folder of a run",
            request.model.display()
        );
        return Err(Error::new(message, "leave it out"));
    }
    Ok(opened)
}

/// Opens a run on disk, which alone has checkpoints that other programs' formats are made of.
fn open_run(request: &ExportRequest, budget: &Budget) -> Outcome<Model> {
    match open(request, budget)? {
        OpenedModel::Run { model, .. } => Ok(*model),
        pairs @ OpenedModel::Pairs { .. } => Ok(pairs.into_run()?),
        other => {
            let message = format!("{} is not the folder of a run", other.path().display());
            Err(Error::new(message, "export it with ‹format=onnx›, which supports every kind of model"))
        }
    }
}

/// The weights of the only fold.
fn one_fold<'a>(request: &ExportRequest, weights: &'a [WeightSource]) -> Outcome<&'a WeightSource> {
    let model = request.model.display();
    match weights {
        [only] => Ok(only),
        [] => Err(Error::new(format!("{model} has no fold"), "‹job models show› lists its folds")),
        several => {
            let message = format!("{model} has {} folds, but a file has one", several.len());
            Err(Error::new(message, "choose one with ‹fold›, like ‹fold=0›"))
        }
    }
}

/// Checks that the output is a file of an ending, which may be written.
fn expect_file(request: &ExportRequest, ending: &str, hint: &str) -> Outcome {
    let output = &request.output;
    if output.extension().is_none_or(|found| found != ending) {
        return Err(Error::new(format!("{} does not end in .{ending}", output.display()), hint));
    }
    if output.exists() && !request.overwrite {
        let message = format!("{} already exists", output.display());
        return Err(Error::new(message, "choose another file, or ‹overwrite›"));
    }
    Ok(())
}
