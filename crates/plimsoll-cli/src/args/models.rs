//! Arguments of `models` and `export`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use plimsoll_run::FoldName;

use super::nnunet::fold;
use super::{Ram, WhichCheckpoint};

/// A command on models.
#[derive(Debug, Subcommand)]
pub enum Models {
    /// Unpack an archive of nnUNetv2_export_model_to_zip, copy models of a folder, or convert a MeshNet of brainchop, HD-BET or deepbet.
    Import(ImportModels),
    /// Print a model's network, channels, labels and folds.
    Show(ShowModels),
    /// Write all folds of a run into one .plimsoll file, which predicts as the run does.
    Export(ExportModel),
    /// Read a whole .plimsoll file, and check every tensor against its checksum.
    Verify(VerifyModel),
}

/// A run to write into one file.
#[derive(Debug, ClapArgs)]
pub struct ExportModel {
    /// The folder of a run, all folds of which are written, or of one fold.
    pub run: PathBuf,
    /// The .plimsoll file.
    pub file: PathBuf,
    /// The checkpoint.
    #[arg(long, value_enum, default_value_t)]
    pub checkpoint: WhichCheckpoint,
    /// Replace an existing file.
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub ram: Ram,
}

/// A file to verify.
#[derive(Debug, ClapArgs)]
pub struct VerifyModel {
    /// The .plimsoll file.
    pub file: PathBuf,
    #[command(flatten)]
    pub ram: Ram,
}

/// Models to import.
#[derive(Debug, ClapArgs)]
pub struct ImportModels {
    /// A .zip file of nnU-Net, a folder with models in it, a MeshNet of TensorFlow.js (its model.json or its folder), or the folder of HD-BET's folds, of deepbet's networks or of the package of one.
    pub from: PathBuf,
    /// The target folder [default: the variable nnUNet_results, or else the current folder].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub ram: Ram,
}

/// Models to show.
#[derive(Debug, ClapArgs)]
pub struct ShowModels {
    /// A model: a folder or a file; or a folder with several of nnU-Net in it.
    pub folder: PathBuf,
    #[command(flatten)]
    pub ram: Ram,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The weights of one fold, with every name that the network's authors give its tensors, as `safetensors.torch.load_file` reads them.
    #[default]
    Safetensors,
    /// A folder that nnU-Net 2 predicts with, with all folds: of `plain` and `resenc`.
    Nnunet,
    /// The forward pass of one fold over a window, as ONNX runtimes run it.
    Onnx,
}

/// A model to write.
#[derive(Debug, ClapArgs)]
pub struct Export {
    /// The folder of a run, or of one of its folds. For ONNX also other models that `predict` labels voxels with: a .plimsoll file, a model of
    /// nnU-Net, weights or a bundle of MONAI.
    pub model: PathBuf,
    /// The .safetensors or .onnx file that is written, or the folder for nnU-Net.
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
    /// The format of the export.
    #[arg(long, value_enum, default_value_t)]
    pub format: ExportFormat,
    /// The fold, where there are several and the format has one: 0, 1, 2, … or all.
    #[arg(short, long, value_name = "FOLD", value_parser = fold)]
    pub fold: Option<FoldName>,
    /// With ONNX: put the weights into a file beside it, NAME.onnx.DIGEST.data. Required for 2 GiB or more.
    #[arg(long)]
    pub external_data: bool,
    /// The checkpoint of a run [default: final].
    #[arg(long, value_enum)]
    pub checkpoint: Option<WhichCheckpoint>,
    /// Replace an existing file.
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub ram: Ram,
}
