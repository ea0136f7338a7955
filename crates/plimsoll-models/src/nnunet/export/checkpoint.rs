//! `checkpoint_final.pth`: the archive that `torch.load` reads, with what nnU-Net looks for in order to predict.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Mapped};
use plimsoll_nn::Architecture;
use plimsoll_nn::weights::SafetensorsFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::pickle::Pickle;
use crate::ModelError;
use crate::export::{Stored, stored_tensors, write_error};

/// The folder in the archive that all members are in.
const ROOT: &str = "checkpoint_final";

/// The entries of a checkpoint beside its weights.
pub(super) struct Said<'a> {
    pub(super) trainer: &'a str,
    pub(super) configuration: &'a str,
    /// Axes along which windows may be mirrored.
    pub(super) mirror: &'a [usize],
}

/// Values that tensors have.
enum Values {
    /// Those of a tensor of the checkpoint.
    Of(String),
    /// Zeros: of a head that the run did not train, and that nothing reads in order to predict.
    Zero,
}

/// Values, and all tensors that have them.
struct Storage {
    values: Values,
    shape: Shape,
    names: Vec<String>,
}

/// Writes the weights of a run's checkpoint.
///
/// # Errors
/// Returns an error if the checkpoint is damaged, the budget has no room for its largest tensor, or the disk refuses.
pub(super) fn write(
    checkpoint: &Path,
    net: &dyn Architecture,
    said: &Said<'_>,
    to: &Path,
    budget: &Budget,
) -> Result<(), ModelError> {
    let mut from = SafetensorsFile::open(checkpoint)?;
    from.verify_others(&BTreeSet::new())?;
    let storages = storages(&from, net);
    let largest = storages.iter().map(|storage| storage.shape.count()).max();
    // A file without tensors is refused when it is opened as weights of a network; here it has nothing to hold.
    let mut buffer = Mapped::<f32>::zeroed(budget, "weights to export", largest.unwrap_or(1))?;
    let mut write = || {
        let file = BufWriter::with_capacity(BUFFER, AtomicFile::create(to)?);
        let mut archive = ZipWriter::new(file);
        let member = |archive: &mut ZipWriter<_>, name: &str, bytes: usize| {
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .large_file(bytes as u64 >= u64::from(u32::MAX));
            archive.start_file(format!("{ROOT}/{name}"), options).map_err(io::Error::from)
        };
        let pickle = pickle(&storages, said);
        member(&mut archive, "data.pkl", pickle.len())?;
        archive.write_all(&pickle)?;
        member(&mut archive, "byteorder", 6)?;
        archive.write_all(b"little")?;
        for (number, storage) in storages.iter().enumerate() {
            let count = storage.shape.count();
            let values = buffer.get_mut(..count).ok_or_else(|| io::Error::other("a tensor has grown"))?;
            match &storage.values {
                Values::Of(source) => {
                    from.read(source, &storage.shape, values).map_err(io::Error::other)?;
                }
                Values::Zero => values.fill(0.0),
            }
            member(&mut archive, &format!("data/{number}"), count * size_of::<f32>())?;
            write_values(&mut archive, values)?;
        }
        member(&mut archive, "version", 2)?;
        archive.write_all(b"3\n")?;
        let file = archive.finish().map_err(io::Error::from)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
    };
    write().map_err(|error: io::Error| write_error(to, error))
}

/// In little-endian order, whatever the machine's.
fn write_values(archive: &mut ZipWriter<impl Write + Seek>, values: &[f32]) -> io::Result<()> {
    let mut bytes = [0; 8192];
    for part in values.chunks(bytes.len() / size_of::<f32>()) {
        for (to, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(part) {
            *to = value.to_le_bytes();
        }
        archive.write_all(bytes.get(..size_of_val(part)).unwrap_or(&bytes))?;
    }
    Ok(())
}

/// The tensors of the authors' state dict, each values once; and zeros for heads of maps that the run did not supervise, which its
/// authors' network has all the same.
fn storages(from: &SafetensorsFile, net: &dyn Architecture) -> Vec<Storage> {
    let mut storages: Vec<Storage> = stored_tensors(from)
        .map(|Stored { name, source, shape }| {
            let others = net.other_names(&name);
            let names = [name].into_iter().chain(others).collect();
            Storage { values: Values::Of(source), shape, names }
        })
        .collect();
    for (head, features) in net.heads().into_iter().zip(net.features()) {
        let weight = format!("{head}.weight");
        if from.contains(&weight) {
            continue;
        }
        let shape = net.stored_shape(&weight, &Shape(vec![net.classes(), features, 1, 1, 1]));
        storages.push(Storage { values: Values::Zero, shape, names: vec![weight] });
        let shape = Shape(vec![net.classes()]);
        storages.push(Storage { values: Values::Zero, shape, names: vec![format!("{head}.bias")] });
    }
    storages
}

fn pickle(storages: &[Storage], said: &Said<'_>) -> Vec<u8> {
    let mut pickle = Pickle::new();
    pickle.dictionary(|pickle| {
        pickle.text("network_weights");
        pickle.ordered_dictionary(|pickle| {
            for (number, storage) in storages.iter().enumerate() {
                for name in &storage.names {
                    pickle.text(name);
                    pickle.tensor(number, &storage.shape);
                }
            }
        });
        pickle.text("trainer_name");
        pickle.text(said.trainer);
        pickle.text("init_args");
        pickle.dictionary(|pickle| {
            pickle.text("configuration");
            pickle.text(said.configuration);
        });
        pickle.text("inference_allowed_mirroring_axes");
        pickle.tuple(said.mirror);
    });
    pickle.finish()
}
