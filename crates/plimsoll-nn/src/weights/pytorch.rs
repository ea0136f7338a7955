//! PyTorch state dicts.

use std::path::{Path, PathBuf};

use plimsoll_graph::Shape;
use pytorch_reader::PytorchReader;

use super::{WeightError, element_bytes, widen};

/// An open `.pt` or `.pth` file. Nothing in it is executed: tensors are found by walking its pickle.
pub struct PytorchFile {
    path: PathBuf,
    reader: PytorchReader,
}

/// Keys under which training scripts nest the state dict.
const NESTED: [&str; 4] = ["state_dict", "network_weights", "model_state_dict", "model"];

impl PytorchFile {
    /// Opens a file; a state dict nested under a customary key (`state_dict`, nnU-Net's `network_weights`) is found.
    ///
    /// # Errors
    /// If it cannot be read, or holds no tensors.
    pub fn open(path: &Path) -> Result<PytorchFile, WeightError> {
        let whole = PytorchReader::new(path).map_err(|error| WeightError::format(path, error.to_string()));
        let nested = || {
            NESTED.iter().find_map(|key| {
                PytorchReader::with_top_level_key(path, key)
                    .ok()
                    .filter(|reader| !reader.tensors().is_empty())
            })
        };
        match (nested(), whole) {
            (Some(reader), _) => Ok(PytorchFile { path: path.into(), reader }),
            (None, Ok(reader)) if !reader.tensors().is_empty() => {
                Ok(PytorchFile { path: path.into(), reader })
            }
            (None, Ok(_)) => Err(WeightError::format(path, "there are no tensors in it")),
            (None, Err(error)) => Err(error),
        }
    }

    /// Whether a tensor of this name is there, with or without `module.`.
    pub fn contains(&self, name: &str) -> bool {
        self.reader.get(name).is_some() || self.reader.get(&format!("module.{name}")).is_some()
    }

    /// Reads a tensor as f32. A name is found with and without the `module.` that data-parallel training puts before it.
    ///
    /// # Errors
    /// If it is not there, has another shape, is not of real numbers, or cannot be read.
    ///
    /// # Panics
    /// If there is not room for just as many values as the shape has.
    pub fn read(&mut self, name: &str, shape: &Shape, values: &mut [f32]) -> Result<(), WeightError> {
        assert_eq!(values.len(), shape.count(), "room for another tensor");
        let path = self.path.clone();
        let parallel = format!("module.{name}");
        let Some(tensor) = self.reader.get(name).or_else(|| self.reader.get(&parallel)) else {
            return Err(WeightError::Missing { path, name: name.into(), shape: shape.clone() });
        };
        let found = Shape(tensor.shape().to_vec());
        if found != *shape {
            return Err(WeightError::Shape { path, name: name.into(), found, expected: shape.clone() });
        }
        let bytes = tensor.read().map_err(|error| WeightError::format(&path, error.to_string()))?;
        let dtype = format!("{:?}", tensor.dtype()).to_uppercase();
        if element_bytes(&dtype).map(|size| size * values.len()) != Some(bytes.len()) {
            let why = format!("`{name}` is {dtype} in {} bytes, which is no {shape} of numbers", bytes.len());
            return Err(WeightError::format(&path, why));
        }
        widen(&dtype, &bytes, values);
        Ok(())
    }
}
