//! The content of a page: everything in the folder of a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, Digest, Reservation};
use plimsoll_metrics::Summary;
use plimsoll_run::{
    CheckpointKind, EpochCost, FoldFolder, FoldState, RunFolder, Specification, Status, digest_of,
    each_epoch, read_json,
};
use serde::de::DeserializeOwned;

use super::history::History;
use super::record::Record;
use crate::error::{Outcome, ReportError};
use crate::progress_picture::EpochPoint;

/// The longest files that are read.
const LONGEST: u64 = 256 << 20;

/// The most bytes of memory for each byte of a file: its text and the values parsed from it.
const IN_MEMORY: u64 = 8;

/// A fold of a run.
pub struct Fold {
    pub folder: FoldFolder,
    pub specification: Specification,
    pub identity: Digest,
    pub state: FoldState,
    pub epochs: Vec<EpochPoint>,
    pub history: History,
    /// The record of its run, or `None` before it has ended in order.
    pub record: Option<Record>,
    /// The scores of its validation cases; none before they were predicted whole.
    pub summary: Option<Summary>,
    /// The checkpoint to predict with, and its contents; none before the last epoch.
    pub weights: Option<(PathBuf, Digest)>,
    _memory: Reservation,
}

impl Fold {
    /// Reads a fold.
    pub fn read(folder: FoldFolder, budget: &Budget) -> Outcome<Fold> {
        let summary = folder.validation().join("summary.json");
        let files =
            [folder.specification(), folder.metrics(), folder.events(), folder.record(), summary.clone()];
        let bytes = files.iter().map(|path| length(path)).sum::<Outcome<u64>>()?;
        let memory = budget.reserve("the page", Bytes(bytes.saturating_mul(IN_MEMORY)))?;
        let specification = Specification::read(&folder)?;
        let history = History::read(&folder)?;
        // Of an epoch that was done again, the last.
        let costs: BTreeMap<u64, &EpochCost> = history.epochs.iter().map(|cost| (cost.epoch, cost)).collect();
        let mut epochs: Vec<EpochPoint> = Vec::new();
        each_epoch(&folder, |record| {
            epochs.push(EpochPoint::new(&record, costs.get(&record.epoch).copied()))
        })?;
        let weights = folder.checkpoint(CheckpointKind::Final);
        Ok(Fold {
            identity: specification.identity()?,
            state: Status::read(&folder)?.state,
            epochs,
            history,
            record: if_there(&folder.record())?,
            summary: if_there(&summary)?,
            weights: match weights.is_file() {
                true => Some((weights.clone(), digest_of(&weights)?)),
                false => None,
            },
            specification,
            folder,
            _memory: memory,
        })
    }

    /// Returns the name of the fold.
    pub fn name(&self) -> String {
        format!("fold {}", self.folder.name())
    }

    /// The names of the classes that are scored, by their numbers.
    pub fn classes(&self) -> Vec<String> {
        match &self.specification.config.task {
            plimsoll_run::Task::Segmentation(task) => task.dataset.labels.scored_names(),
            plimsoll_run::Task::Classification(task) => task.classes().map(String::from).collect(),
        }
    }
}

/// The folds of a run, or the one that is named.
pub fn folds(path: &Path) -> Outcome<Vec<FoldFolder>> {
    let found = match FoldFolder::at(path).filter(FoldFolder::is_begun) {
        Some(fold) => vec![fold],
        None => RunFolder::new(path).folds()?,
    };
    if found.is_empty() {
        return Err(ReportError::NoRun { folder: path.into() });
    }
    Ok(found)
}

/// Reads a JSON file, or returns `None` if it does not exist.
fn if_there<T: DeserializeOwned>(path: &Path) -> Outcome<Option<T>> {
    Ok(if path.is_file() { Some(read_json(path, LONGEST)?) } else { None })
}

/// The bytes of a file; 0 where it is not there.
fn length(path: &Path) -> Outcome<u64> {
    match path.is_file() {
        true => Ok(plimsoll_disk::metadata(path).map_err(|error| ReportError::at_path(path, error))?.len()),
        false => Ok(0),
    }
}
