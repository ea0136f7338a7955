//! Copies of tensors from a file of PyTorch into one of ours.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_graph::{DType, Role, Shape};
use plimsoll_memory::{Budget, Bytes, OverBudget};
use plimsoll_nn::weights::{PytorchFile, WeightError, safetensors};
use plimsoll_nn::{Architecture, predict};

use crate::ModelError;
use crate::new_files::NewFiles;

/// A file of PyTorch, and the tensors that prediction needs of it.
pub(crate) struct TensorSource {
    pub(crate) path: PathBuf,
    pub(crate) file: PytorchFile,
    /// Names and shapes.
    pub(crate) tensors: Vec<(String, Shape)>,
}

impl TensorSource {
    /// Finds all tensors of a network in a file. `network` names it in a difference, such as "HD-BET's network".
    ///
    /// # Errors
    /// Returns what `refuse` makes of a tensor that is not in the file or has another shape, or an error if the network makes no program.
    pub(crate) fn of_network(
        path: &Path,
        file: PytorchFile,
        net: &dyn Architecture,
        network: &str,
        refuse: impl Fn(String) -> ModelError,
    ) -> Result<TensorSource, ModelError> {
        let program = predict(net, net.extents().next_larger([1; 3]), 1, DType::F32)?;
        let needed = program.with_role(Role::Parameter).map(|id| program.tensor(id));
        let tensors: Vec<(String, Shape)> =
            needed.map(|info| (info.name.clone(), info.shape.clone())).collect();
        let idle = net.idle_biases().into_iter().map(|(name, length)| (name, Shape(vec![length])));
        for (name, shape) in tensors.iter().cloned().chain(idle) {
            match file.shape(&name) {
                Some(found) if found == shape => {}
                Some(found) => {
                    return Err(refuse(format!("`{name}` has the shape {found}, but {network} has {shape}")));
                }
                None => return Err(refuse(format!("there is no tensor `{name}`"))),
            }
        }
        Ok(TensorSource { path: path.into(), file, tensors })
    }

    /// Writes the tensors to a new file, and checks the others.
    ///
    /// # Errors
    /// Returns an error if they cannot be read, have a value that is not finite, the disk refuses, or what `no_room` makes of a budget without room
    /// for the largest.
    pub(crate) fn write(
        mut self,
        name: &str,
        files: &mut NewFiles,
        budget: &Budget,
        no_room: impl FnOnce(PathBuf, OverBudget) -> ModelError,
    ) -> Result<(), ModelError> {
        let largest = self.tensors.iter().map(|(_, shape)| shape.count()).max().unwrap_or(0);
        let held = budget.reserve("a tensor", Bytes::from_len(largest * size_of::<f32>()));
        let _held = held.map_err(|source| no_room(self.path.clone(), source))?;
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
