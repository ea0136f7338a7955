//! The weights of a model of TensorFlow.js.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Component, Path};

use plimsoll_memory::{Budget, Bytes, Reservation};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::TensorFlowError;
use crate::ModelError;

/// A `model.json`.
#[derive(Deserialize)]
pub(super) struct Stored {
    #[serde(rename = "modelTopology")]
    pub(super) topology: Value,
    #[serde(rename = "weightsManifest")]
    pub(super) manifest: Vec<Group>,
}

/// Tensors that share files.
#[derive(Deserialize)]
pub(super) struct Group {
    paths: Vec<String>,
    weights: Vec<Entry>,
}

/// A tensor. One that is quantised has a key more, and is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    dtype: String,
}

/// All tensors.
pub(super) struct Tensors {
    by_name: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    /// The digest of all files, one behind the other.
    pub(super) sha256: String,
    _held: Reservation,
}

impl Entry {
    /// Numbers of the tensor, if they can be counted.
    fn count(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |count, extent| count.checked_mul(*extent))
    }
}

/// Returns `true` if a path names a file in its folder.
fn is_name(path: &str) -> bool {
    let mut components = Path::new(path).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

impl Tensors {
    /// Reads the tensors of all groups from files in a folder. Memory follows from the lengths of the files.
    pub(super) fn read(groups: &[Group], folder: &Path, budget: &Budget) -> Result<Tensors, ModelError> {
        let refuse = |why: String| TensorFlowError::Refused { path: folder.join("model.json"), why };
        let mut found = 0u64;
        for path in groups.iter().flat_map(|group| &group.paths) {
            if !is_name(path) {
                return Err(refuse(format!("the weights are in `{path}`, which is no file beside it")).into());
            }
            let file = folder.join(path);
            let length =
                plimsoll_disk::metadata(&file).map_err(|source| ModelError::io(&file, source))?.len();
            found = found.saturating_add(length);
        }
        // As bytes of a group, as numbers, and as those numbers in the order of a network.
        let over = |source| TensorFlowError::OverBudget { path: folder.into(), source };
        let needed = Bytes(found.saturating_mul(3));
        let held = budget.reserve("weights of TensorFlow.js", needed).map_err(over)?;
        let (mut by_name, mut hash) = (BTreeMap::new(), Sha256::new());
        for group in groups {
            let mut bytes = Vec::new();
            for path in &group.paths {
                let file = folder.join(path);
                let read =
                    plimsoll_disk::read(&file, found).map_err(|source| ModelError::io(&file, source))?;
                hash.update(&read);
                bytes.extend(read);
            }
            group.tensors(folder, &bytes, &mut by_name)?;
        }
        let mut sha256 = String::new();
        for byte in hash.finalize() {
            write!(sha256, "{byte:02x}").map_err(|problem| refuse(problem.to_string()))?;
        }
        Ok(Tensors { by_name, sha256, _held: held })
    }

    /// The number of tensors.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The numbers of a tensor of a shape.
    pub(super) fn get(&self, name: &str, expected: &[usize]) -> Result<&[f32], String> {
        match self.by_name.get(name) {
            Some((shape, values)) if shape == expected => Ok(values),
            Some((shape, _)) => {
                Err(format!("`{name}` has the shape {shape:?}, but its layer needs {expected:?}"))
            }
            None => Err(format!("there is no tensor `{name}`")),
        }
    }
}

impl Group {
    /// Divides the bytes of its files among its tensors.
    fn tensors(
        &self,
        folder: &Path,
        mut bytes: &[u8],
        to: &mut BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    ) -> Result<(), ModelError> {
        let refuse = |why: String| TensorFlowError::Refused { path: folder.join("model.json"), why };
        let all = self.weights.iter().try_fold(0u64, |all, entry| {
            let bytes = (entry.count()? as u64).checked_mul(size_of::<f32>() as u64)?;
            all.checked_add(bytes)
        });
        let expected =
            all.ok_or_else(|| refuse("its tensors have more numbers than can be counted".into()))?;
        if expected != bytes.len() as u64 {
            let length = TensorFlowError::Length { path: folder.into(), expected, found: bytes.len() as u64 };
            return Err(length.into());
        }
        for entry in &self.weights {
            let Entry { name, shape, dtype } = entry;
            if dtype != "float32" {
                return Err(refuse(format!("`{name}` is of {dtype}, but only float32 is supported")).into());
            }
            let count = entry.count().ok_or_else(|| refuse(format!("`{name}` is too large")))?;
            let (own, rest) = bytes.split_at(count * size_of::<f32>());
            bytes = rest;
            let values: Vec<f32> = own.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(refuse(format!("`{name}` has the number {value}")).into());
            }
            if to.insert(name.clone(), (shape.clone(), values)).is_some() {
                return Err(refuse(format!("there are two tensors `{name}`")).into());
            }
        }
        Ok(())
    }
}
