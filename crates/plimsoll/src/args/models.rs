//! Arguments of `models` and `export`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use super::{Ram, WhichCheckpoint};

/// What to do with models.
#[derive(Debug, Subcommand)]
pub enum Models {
    /// Unpack what nnUNetv2_export_model_to_zip wrote, or copy models of a folder.
    Import(ImportModels),
    /// Say what a model is: its network, channels, labels, folds.
    Show(ShowModels),
}

/// Models to import.
#[derive(Debug, ClapArgs)]
pub struct ImportModels {
    /// A .zip file of nnU-Net, or a folder with models in it.
    pub from: PathBuf,
    /// The folder that they are put into [default: that of the variable nnUNet_results, or the current one].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub ram: Ram,
}

/// Models to show.
#[derive(Debug, ClapArgs)]
pub struct ShowModels {
    /// The folder of a model, or one with several in it.
    pub folder: PathBuf,
    #[command(flatten)]
    pub ram: Ram,
}

/// Weights to write.
#[derive(Debug, ClapArgs)]
pub struct Export {
    /// The folder of a run with one fold, or of one fold.
    pub model: PathBuf,
    /// The .safetensors file that is written, with every name that the network's authors give its tensors.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The checkpoint.
    #[arg(long, value_enum, default_value_t)]
    pub checkpoint: WhichCheckpoint,
    /// Replace the file if it is there.
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub ram: Ram,
}
