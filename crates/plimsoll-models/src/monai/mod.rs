//! Models of MONAI: weights with a small file that says what they are of, and bundles.
//!
//! ```text
//! model.toml, model.pt                                    a description of our own beside weights
//! BUNDLE/configs/inference.json or .yaml, metadata.json   a bundle of MONAI's model zoo
//! BUNDLE/models/model.pt
//! ```
//!
//! Both become a [`Description`], which becomes a [`SegmentationModel`]. Names and meanings follow MONAI 1.6 (Cardoso et al. 2022,
//! arXiv:2211.02701). Features that are not implemented like MONAI's are refused by name.

mod activations;
mod attention_unet;
mod bundle;
mod config;
mod description;
mod error;
#[cfg(test)]
mod geometry_tests;
mod layer;
mod mednext;
mod meshnet;
mod network;
mod transforms;
mod unetr;
mod values;
mod yaml;

use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;

pub use description::Description;
pub use error::MonaiError;

use crate::{Answers, ModelError, SegmentationModel};
use plimsoll_run::printable;

/// A model of MONAI.
#[derive(Clone, Debug)]
pub struct MonaiModel {
    /// The model.
    pub model: SegmentationModel,
    /// Its description.
    pub description: Description,
}

impl MonaiModel {
    /// Opens a `model.toml`.
    ///
    /// # Errors
    /// Returns an error if it or its weights cannot be read, say what is not done here, or do not fit each other; or there is no room to
    /// read them.
    pub fn open_config(path: &Path, budget: &Budget) -> Result<MonaiModel, ModelError> {
        config::read(path, budget)?.open(path, budget)
    }

    /// Opens the folder of a bundle.
    ///
    /// # Errors
    /// Returns the errors of [`open_config`](Self::open_config).
    pub fn open_bundle(folder: &Path, budget: &Budget) -> Result<MonaiModel, ModelError> {
        bundle::read(folder, budget)?.open(&bundle::config_of(folder), budget)
    }

    /// Returns `true` if a folder is a bundle.
    pub fn is_bundle(folder: &Path) -> bool {
        bundle::config_of(folder).is_file() || folder.join(bundle::METADATA).is_file()
    }

    /// Returns `true` if a file of `length` bytes is to be read as a `model.toml`: by its name, or because it begins as text and is short
    /// enough. Faults are reported when it is read, with their lines.
    pub fn is_config(path: &Path, beginning: &[u8], length: u64) -> bool {
        let is_text = match std::str::from_utf8(beginning) {
            Ok(text) => !text.contains('\0'),
            // A character may continue after the beginning.
            Err(error) => error.error_len().is_none() && (beginning.len() as u64) < length,
        };
        path.extension().is_some_and(|ending| ending == "toml")
            || (is_text && (1..=config::LONGEST).contains(&length))
    }

    /// The file of its weights.
    pub fn weights(&self) -> &PathBuf {
        &self.description.weights
    }

    /// A description in lines.
    pub fn lines(&self) -> Vec<String> {
        let SegmentationModel { net, patch, outputs, answers, channels, .. } = &self.model;
        let [x, y, z] = patch;
        let names: Vec<&str> = channels.iter().map(|channel| channel.name.as_str()).collect();
        let answers = match answers {
            Answers::Classes(_) => outputs.join(", "),
            Answers::Regions(values) => format!("{}, written as {values:?}", outputs.join(", ")),
        };
        let spacing = match self.description.spacing {
            Some(spacing) => format!("at {spacing:?} mm"),
            None => "at the spacing of the image".into(),
        };
        let lines = [
            format!("network   {}", net.describe()),
            format!("windows   {x} × {y} × {z} (right, anterior, superior), {spacing}"),
            format!("channels  {}", names.join(", ")),
            format!("labels    {answers}"),
            format!("weights   {}", self.weights().display()),
        ];
        // These names are from files of unknown origin.
        lines.iter().map(|line| printable(line).replace(['\n', '\t'], " ")).collect()
    }
}
