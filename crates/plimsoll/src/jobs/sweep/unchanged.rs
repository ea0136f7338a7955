//! A check that a data set has not changed since a sweep opened it: trials may begin hours later and must all have the same data.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_memory::{Budget, Bytes, Digest, MapError, Reservation};
use plimsoll_run::{FoldFolder, Specification, SweepFolder, Trials};
use plimsoll_train::RunData;

use crate::error::{Error, Outcome};

/// The length and the modification time of a file, as far as they are known.
type Stamp = (Option<u64>, Option<SystemTime>);

/// The state of the files of a data set; of volumes their inspection knows it.
pub struct DataState {
    /// The images, in the order of the cases.
    images: Vec<Stamp>,
    _memory: Reservation,
}

impl DataState {
    /// Reads the current state.
    pub fn read(data: &RunData, budget: &Budget) -> Outcome<DataState> {
        let count = match data {
            RunData::Volumes { .. } => 0,
            RunData::Images { dataset, .. } => dataset.cases.len(),
        };
        let bytes = Bytes::from_len(count.saturating_mul(size_of::<Stamp>()));
        let memory = budget.reserve("stamps of files", bytes).map_err(MapError::from)?;
        let images = match data {
            RunData::Volumes { .. } => Vec::new(),
            RunData::Images { dataset, .. } => dataset.cases.iter().map(|case| stamp(&case.path)).collect(),
        };
        Ok(DataState { images, _memory: memory })
    }

    /// Checks that no file has another length or modification time.
    pub fn expect_unchanged(&self, data: &RunData) -> Outcome {
        let changed: Option<PathBuf> = match data {
            RunData::Volumes { dataset, inspection } => inspection.changed_file(&dataset.folder),
            RunData::Images { dataset, .. } => dataset
                .cases
                .iter()
                .zip(&self.images)
                .find(|(case, known)| stamp(&case.path) != **known)
                .map(|(case, _)| case.path.clone()),
        };
        match changed {
            None => Ok(()),
            Some(path) => Err(Error::new(
                format!("{} has changed since the sweep opened the data set", path.display()),
                "restore it and give the same command with ‹resume›; or start another sweep with ‹out›",
            )),
        }
    }
}

/// Checks that images and labels are those that the first trial of a sweep began with: trials of different data cannot be compared.
///
/// # Errors
/// Returns an error if some are others, with their names.
pub fn expect_data_of_begun(folder: &SweepFolder, trials: &Trials, data: &RunData) -> Outcome {
    let begun = trials.each().map(|trial| folder.trial(&trial.arm, trial.seed, trial.fold));
    let Some(first) = begun.into_iter().find(FoldFolder::is_begun) else { return Ok(()) };
    let (known, now) = (Specification::read(&first)?.data, data.contents());
    let is_other =
        |(case, content): &(&String, &Digest)| now.get(case.as_str()).is_some_and(|now| now != *content);
    let changed: Vec<&str> = known.iter().filter(is_other).map(|(case, _)| case.as_str()).collect();
    let shown = changed.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    let more = match changed.len().checked_sub(SHOWN) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    match changed.is_empty() {
        true => Ok(()),
        false => Err(Error::new(
            format!("{} was started with other data; changed since: {shown}{more}", folder.path().display()),
            "restore the data, or start another sweep with ‹out›",
        )),
    }
}

/// Cases that an error names.
const SHOWN: usize = 10;

fn stamp(path: &Path) -> Stamp {
    let metadata = plimsoll_disk::metadata(path).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    (metadata.map(|metadata| metadata.len()), modified)
}
