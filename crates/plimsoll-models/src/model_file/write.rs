//! Writing a model's file, a tensor at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter};
use std::path::Path;

use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Digest, Mapped};
use plimsoll_nn::weights::{SafetensorsFile, safetensors};
use plimsoll_run::{CheckpointKind, FoldFolder, InitialWeights, RunError, Specification, checkpoint_header};
use serde::Serialize;

use super::{FoldRecord, ModelFile, ModelRecord, RECORD, prefix};
use crate::ModelError;
use crate::export::{Stored, stored_tensors, write_error};
use crate::model::trained_folds;

/// The result of writing a model file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenModel {
    /// Folds.
    pub folds: usize,
    /// Tensors of all folds.
    pub tensors: usize,
    /// Parameters of which the average over the steps was written, as predictions take it.
    pub averaged: usize,
    /// The digest of all that the file says.
    pub digest: String,
}

/// A tensor that is written.
struct Tensor {
    /// The index of its checkpoint.
    fold: usize,
    /// Its name there.
    source: String,
    shape: Shape,
}

/// Writes the folds of a run that have a checkpoint, or one fold, to a file that is a model. One tensor is in memory at a time. A file in
/// the place of `to` is replaced once the new one is whole.
///
/// # Errors
/// Returns an error if no fold has the checkpoint, folds are of different networks, a checkpoint is damaged, the budget has no room for
/// the largest tensor, or the disk refuses.
pub fn export_model(
    folder: &Path,
    kind: CheckpointKind,
    to: &Path,
    budget: &Budget,
) -> Result<WrittenModel, ModelError> {
    let folds = trained_folds(folder, kind)?;
    let (mut files, mut records) = (Vec::new(), Vec::new());
    let (mut names, mut tensors, mut averaged) = (Vec::new(), Vec::new(), 0);
    for (number, (fold, specification)) in folds.iter().enumerate() {
        let mut file = SafetensorsFile::open(&fold.checkpoint(kind))?;
        file.verify_others(&BTreeSet::new())?;
        records.push(record(fold, specification, kind, &file)?);
        for Stored { name, source, shape } in stored_tensors(&file) {
            averaged += usize::from(source != name);
            names.push((format!("{}{name}", prefix(fold.name())), shape.clone()));
            tensors.push(Tensor { fold: number, source, shape });
        }
        files.push(file);
    }
    let none = || ModelError::NoModel { folder: folder.into(), file: kind.file() };
    let (_, specification) = folds.first().ok_or_else(none)?;
    let record = ModelRecord::new(specification.settings.clone(), specification.config.clone(), records);
    let unwritable = |problem: serde_json::Error| RunError::Unwritable {
        what: "the model".into(),
        why: problem.to_string(),
    };
    let metadata =
        BTreeMap::from([(RECORD.to_string(), serde_json::to_string(&record).map_err(unwritable)?)]);
    let largest = names.iter().map(|(_, shape)| shape.count()).max().unwrap_or(0);
    let mut buffer = Mapped::<f32>::zeroed(budget, "weights to export", largest)?;
    let mut write = || {
        let mut file = BufWriter::with_capacity(BUFFER, AtomicFile::create(to)?);
        safetensors::write(&mut file, &names, &metadata, &mut buffer, |i, values| {
            let Tensor { fold, source, shape } = &tensors[i];
            files[*fold].read(source, shape, values).map_err(io::Error::other)
        })?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
    };
    write().map_err(|error| write_error(to, error))?;
    let digest = ModelFile::open(to)?.digest;
    Ok(WrittenModel { folds: folds.len(), tensors: names.len(), averaged, digest })
}

/// The origin of the weights of a fold.
fn record(
    folder: &FoldFolder,
    specification: &Specification,
    kind: CheckpointKind,
    file: &SafetensorsFile,
) -> Result<FoldRecord, ModelError> {
    let path = folder.checkpoint(kind);
    let (of, progress) = checkpoint_header(&path, file)?;
    if !specification.owns(of)? {
        let why = format!("it belongs to a run with the specification {of}");
        return Err(RunError::Checkpoint { path, why }.into());
    }
    let unwritable = |problem: serde_json::Error| RunError::Unwritable {
        what: "the cases".into(),
        why: problem.to_string(),
    };
    let data = serde_json::to_vec(&specification.data).map_err(unwritable)?;
    Ok(FoldRecord {
        fold: folder.name(),
        checkpoint: kind,
        steps: progress.steps,
        specification: of,
        cases: (specification.cases.train.len(), specification.cases.val.len()),
        data: Digest::compute(&data),
        initial: match &specification.initial {
            InitialWeights::Seed => None,
            InitialWeights::File { content, .. } => Some(*content),
        },
        backend: specification.backend.clone(),
    })
}
