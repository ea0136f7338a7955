//! The weights of a fold as HD-BET stores them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_graph::{DType, Role, Shape};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::{PytorchFile, WeightError, safetensors};
use plimsoll_nn::{Architecture, HdBet, predict};

use super::HdBetError;
use crate::ModelError;
use crate::new_files::NewFiles;

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
    path: PathBuf,
    file: PytorchFile,
    net: HdBet,
    /// The tensors that prediction needs, with their shapes.
    tensors: Vec<(String, Shape)>,
}

impl Fold {
    /// Opens a file and compares its tensors with those of the network, by names and shapes.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is no state dict, or is one of another network.
    pub(super) fn open(path: &Path, budget: &Budget) -> Result<Fold, ModelError> {
        let refuse = |why: String| HdBetError::Topology { path: path.into(), why };
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
        let program = predict(&net, net.extents().next_larger([1; 3]), 1, DType::F32)?;
        let needed = program.with_role(Role::Parameter).map(|id| program.tensor(id));
        let tensors: Vec<(String, Shape)> =
            needed.map(|info| (info.name.clone(), info.shape.clone())).collect();
        let idle = net.idle_biases().into_iter().map(|(name, length)| (name, Shape(vec![length])));
        for (name, shape) in tensors.iter().cloned().chain(idle) {
            match file.shape(&name) {
                Some(found) if found == shape => {}
                Some(found) => {
                    let why = format!("`{name}` has the shape {found}, but HD-BET's network has {shape}");
                    return Err(refuse(why).into());
                }
                None => return Err(refuse(format!("there is no tensor `{name}`")).into()),
            }
        }
        if let Some(name) = unknown(&file, &tensors, &net) {
            return Err(refuse(format!("HD-BET's network has no tensor `{name}`")).into());
        }
        Ok(Fold { path: path.into(), file, net, tensors })
    }

    /// The network.
    pub(super) fn network(&self) -> &HdBet {
        &self.net
    }

    /// Writes the tensors that prediction needs to a new file, and checks the others.
    ///
    /// # Errors
    /// Returns an error if they cannot be read, have a value that is not finite, there is no room for the largest, or the disk refuses.
    pub(super) fn write(
        mut self,
        name: &str,
        files: &mut NewFiles,
        budget: &Budget,
    ) -> Result<(), ModelError> {
        let largest = self.tensors.iter().map(|(_, shape)| shape.count()).max().unwrap_or(0);
        let held = budget.reserve("a tensor", Bytes::from_len(largest * size_of::<f32>()));
        let _held = held.map_err(|source| HdBetError::OverBudget { path: self.path.clone(), source })?;
        let to = files.path(name);
        files.write_by(name, |output| {
            // The error of reading says more than that writing ended.
            let mut refused: Option<ModelError> = None;
            let written = safetensors::write(
                output,
                &self.tensors,
                &[].into(),
                &mut vec![0.0; largest],
                |tensor, values| {
                    let (name, shape) = &self.tensors[tensor];
                    read_finite(&mut self.file, &self.path, name, shape, values).map_err(|error| {
                        refused = Some(error);
                        std::io::Error::other("the weights cannot be read")
                    })
                },
            );
            match refused {
                Some(error) => Err(error),
                None => written.map_err(|source| ModelError::io(&to, source)),
            }
        })?;
        // A file that is cut off may lack only what is left out here.
        let read: BTreeSet<&str> = self.tensors.iter().map(|(name, _)| name.as_str()).collect();
        Ok(self.file.verify_others(&read)?)
    }
}

/// Reads a tensor whose values are finite.
fn read_finite(
    file: &mut PytorchFile,
    path: &Path,
    name: &str,
    shape: &Shape,
    values: &mut [f32],
) -> Result<(), ModelError> {
    file.read(name, shape, values)?;
    let count = values.iter().filter(|value| !value.is_finite()).count();
    match count {
        0 => Ok(()),
        _ => {
            let (path, name, of) = (path.to_path_buf(), name.to_string(), values.len());
            Err(WeightError::NotFinite { path, name, count, of }.into())
        }
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
