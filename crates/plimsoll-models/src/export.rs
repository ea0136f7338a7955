//! A model's weights as a file of their own, as the authors of the network load it.

use std::collections::BTreeSet;
use std::io::{self, BufWriter};
use std::path::Path;

use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Mapped};
use plimsoll_nn::Architecture;
use plimsoll_nn::weights::{SafetensorsFile, WeightError, safetensors};
use serde::Serialize;

use crate::ModelError;

/// The result of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Tensors of the checkpoint: parameters, running statistics, and what its authors keep with them.
    pub tensors: usize,
    /// Tensors that are written once more under other names, as the authors' state dict lists them.
    pub duplicates: usize,
    /// Parameters of which the average over the steps was written, as predictions take it.
    pub averaged: usize,
}

/// The naming scheme of networks whose tensors its authors hold otherwise.
const OWN_NAMES: &str = "plimsoll";

/// A tensor of the file that is written.
struct Tensor {
    /// Its name in the checkpoint.
    source: String,
    /// Its name in the file.
    name: String,
    shape: Shape,
}

/// A tensor of a model, and where a checkpoint has the values that predictions take.
pub(crate) struct Stored {
    /// Its name.
    pub(crate) name: String,
    /// The tensor of the checkpoint with its values: itself, or its average over the steps where the run kept one.
    pub(crate) source: String,
    /// Its shape in the checkpoint.
    pub(crate) shape: Shape,
}

/// The tensors of the model in a checkpoint: all but moments and averages.
pub(crate) fn stored_tensors(from: &SafetensorsFile) -> impl Iterator<Item = Stored> + use<'_> {
    // Moments and averages stand behind a slash, which no name of PyTorch's has.
    from.tensors().filter(|(name, _)| !name.contains('/')).map(|(name, shape)| {
        let average = format!("{name}/ema");
        let source = if from.contains(&average) { average } else { name.to_string() };
        Stored { name: name.to_string(), source, shape }
    })
}

/// The error of writing a file from a checkpoint. If the checkpoint cannot be read, the error names it instead of the file.
pub(crate) fn write_error(to: &Path, error: io::Error) -> ModelError {
    match error.downcast::<WeightError>() {
        Ok(of_checkpoint) => of_checkpoint.into(),
        Err(of_file) => ModelError::io(to, of_file),
    }
}

/// Writes the weights of a checkpoint of `net` to a safetensors file, in f32: every name that `load_state_dict(…, strict=True)` of
/// the network's authors asks for and no other. Where the run kept averages of parameters, those are written. A file in the
/// place of `to` is replaced once the new one is whole.
///
/// # Errors
/// Returns an error if the checkpoints of the network hold tensors otherwise than its authors do, the checkpoint is damaged, the budget
/// has no room for its largest tensor, or the disk refuses.
pub fn export_weights(
    checkpoint: &Path,
    net: &dyn Architecture,
    to: &Path,
    budget: &Budget,
) -> Result<Exported, ModelError> {
    let files = net.naming_schemes();
    if files.first().is_some_and(|own| own.name == OWN_NAMES) {
        return Err(ModelError::OwnNames { network: net.describe() });
    }
    let mut from = SafetensorsFile::open(checkpoint)?;
    from.verify_others(&BTreeSet::new())?;
    let own: Vec<Stored> = stored_tensors(&from).collect();
    let mut exported = Exported { tensors: own.len(), duplicates: 0, averaged: 0 };
    let mut tensors = Vec::new();
    for Stored { name, source, shape } in own {
        exported.averaged += usize::from(source != name);
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
    write().map_err(|error| write_error(to, error))?;
    Ok(exported)
}
