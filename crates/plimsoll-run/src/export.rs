//! A model's weights as a file of their own, as the authors of the network load it.

use std::io::{self, BufWriter};
use std::path::Path;

use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Mapped};
use plimsoll_nn::Architecture;
use plimsoll_nn::weights::{SafetensorsFile, safetensors};
use serde::Serialize;

use crate::RunError;

/// What an export wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Tensors of the checkpoint: parameters, running statistics, and what its authors keep with them.
    pub tensors: usize,
    /// Tensors that are written once more under other names, as the authors' state dict lists them.
    pub duplicates: usize,
    /// Parameters of which the average over the steps was written, as predictions take it.
    pub averaged: usize,
}

/// A tensor of the file that is written.
struct Tensor {
    /// Its name in the checkpoint.
    source: String,
    /// Its name in the file.
    name: String,
    shape: Shape,
}

/// Writes the weights of a checkpoint of `net` to a safetensors file, in f32: every name that `load_state_dict(…, strict=True)` of
/// the network's authors asks for and no other. Where the run kept averages of parameters, those are written. A file in the
/// place of `to` is replaced once the new one is whole.
///
/// # Errors
/// If the checkpoint is damaged, the budget has no room for its largest tensor, or the disk refuses.
pub fn export_weights(
    checkpoint: &Path,
    net: &dyn Architecture,
    to: &Path,
    budget: &Budget,
) -> Result<Exported, RunError> {
    let mut from = SafetensorsFile::open(checkpoint)?;
    // Moments and averages stand behind a slash, which no name of PyTorch's has.
    let own: Vec<(String, Shape)> = from
        .tensors()
        .filter(|(name, _)| !name.contains('/'))
        .map(|(name, shape)| (name.to_string(), shape))
        .collect();
    let mut exported = Exported { tensors: own.len(), duplicates: 0, averaged: 0 };
    let mut tensors = Vec::new();
    for (name, shape) in own {
        let average = format!("{name}/ema");
        let source = match from.contains(&average) {
            true => {
                exported.averaged += 1;
                average
            }
            false => name.clone(),
        };
        let others = net.other_names(&name);
        exported.duplicates += others.len();
        let names = [name].into_iter().chain(others);
        tensors.extend(names.map(|name| Tensor { source: source.clone(), name, shape: shape.clone() }));
    }
    let largest = tensors.iter().map(|tensor| tensor.shape.count()).max().unwrap_or(0);
    let mut buffer = Mapped::<f32>::zeroed(budget, "weights to export", largest)?;
    let listed: Vec<(String, Shape)> =
        tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect();
    let mut write = || {
        let mut file = BufWriter::with_capacity(BUFFER, AtomicFile::create(to)?);
        safetensors::write(&mut file, &listed, &Default::default(), &mut buffer, |i, values| {
            let Tensor { source, shape, .. } = &tensors[i];
            from.read(source, shape, values).map_err(io::Error::other)
        })?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
    };
    write().map_err(|error| RunError::io(to, error))?;
    Ok(exported)
}
