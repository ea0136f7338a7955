//! The weights of a fold as HD-BET stores them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_graph::Shape;
use plimsoll_memory::Budget;
use plimsoll_nn::weights::PytorchFile;
use plimsoll_nn::{Architecture, HdBet};

use super::PACKAGE;
use crate::new_files::NewFiles;
use crate::tensor_copies::TensorSource;
use crate::{ModelError, PackageError};

/// The tensor that shows the network's size.
const STEM: &str = "init_conv.weight";
/// The classes of HD-BET: background and brain.
const CLASSES: usize = 2;
/// Heads of coarser stages, which only training uses.
const COARSER_HEADS: [&str; 2] = ["loc2_seg.weight", "loc3_seg.weight"];
/// Running statistics of normalisations, which HD-BET does not use.
const RUNNING: [&str; 3] = [".running_mean", ".running_var", ".num_batches_tracked"];

/// An open file of a fold.
pub(super) struct Fold {
    source: TensorSource,
    net: HdBet,
}

impl Fold {
    /// Opens a file and compares its tensors with those of the network, by names and shapes.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is no state dict, or is one of another network.
    pub(super) fn open(path: &Path, budget: &Budget) -> Result<Fold, ModelError> {
        let refuse = |why: String| PackageError::Topology { path: path.into(), why, package: &PACKAGE };
        let file = PytorchFile::open(path, budget)?;
        let stem = file.shape(STEM).ok_or_else(|| refuse(format!("there is no tensor `{STEM}`")))?;
        let &[init_filters, inputs, 3, 3, 3] = &stem.0[..] else {
            return Err(refuse(format!("`{STEM}` has the shape {stem}, which is no kernel of 3×3×3")).into());
        };
        if inputs != 1 {
            return Err(refuse(format!("its network has {inputs} channels, but HD-BET has one")).into());
        }
        let net = HdBet::new(inputs, CLASSES, init_filters);
        net.check().map_err(|fault| refuse(fault.to_string()))?;
        let source =
            TensorSource::of_network(path, file, &net, "HD-BET's network", |why| refuse(why).into())?;
        if let Some(name) = unknown(&source.file, &source.tensors, &net) {
            return Err(refuse(format!("HD-BET's network has no tensor `{name}`")).into());
        }
        Ok(Fold { source, net })
    }

    /// The network.
    pub(super) fn network(&self) -> &HdBet {
        &self.net
    }

    /// Writes the tensors that prediction needs to a new file, and checks the others.
    ///
    /// # Errors
    /// Returns an error if they cannot be read, have a value that is not finite, there is no room for the largest, or the disk refuses.
    pub(super) fn write(self, name: &str, files: &mut NewFiles, budget: &Budget) -> Result<(), ModelError> {
        let no_room = |path: PathBuf, source| PackageError::OverBudget { path, source }.into();
        self.source.write(name, files, budget, no_room)
    }
}

/// The first tensor of a file that the network does not have.
fn unknown(file: &PytorchFile, tensors: &[(String, Shape)], net: &HdBet) -> Option<String> {
    let idle: BTreeSet<String> = net.idle_biases().into_iter().map(|(name, _)| name).collect();
    let known: BTreeSet<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    let is_running = |name: &str| {
        let norm = RUNNING.iter().find_map(|ending| name.strip_suffix(ending));
        norm.is_some_and(|norm| known.contains(format!("{norm}.weight").as_str()))
    };
    file.names()
        .find(|name| {
            let is_known = known.contains(name) || idle.contains(*name) || COARSER_HEADS.contains(name);
            !is_known && !is_running(name)
        })
        .map(String::from)
}
