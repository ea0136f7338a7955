//! Data sets for classification: which images there are, and their labels. Only names, headers of tables and labels are read.

mod error;
mod folder;
mod folds;
mod inspect;
mod kept;
mod labels;
mod table;
mod unlabelled;

use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};
use serde::{Deserialize, Serialize};

pub use error::DatasetError;
pub use folds::{Fold, FoldError, folds};
pub use inspect::{ImageProblem, InspectOptions, Inspection, ProblemKind, inspect};
pub use kept::state_of;
pub use table::{GroupSource, LabelSource, TableSettings, separator};

/// The memory of a case beside the bytes of its names: the case itself, its list of labels, allocations.
const CASE_BYTES: u64 = size_of::<ImageCase>() as u64 + 128;

/// The part of a data set that a case is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// To train on.
    Train,
    /// To choose by while training.
    Val,
    /// To be scored on in the end.
    Test,
}

impl Split {
    /// `train`, `val` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Val => "val",
            Split::Test => "test",
        }
    }

    fn named(name: &str) -> Option<Split> {
        [Split::Train, Split::Val, Split::Test].into_iter().find(|split| split.name() == name)
    }
}

/// An image and its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageCase {
    /// Its name, which no other case has.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Classes, by their place in [`ImageDataset::classes`], ascending: one, or any number if several may apply.
    pub labels: Vec<u32>,
    /// The patient: cases of a group stay in the same fold.
    pub group: Option<String>,
    /// The part of the data set, if that is given.
    pub split: Option<Split>,
}

/// The cases of a data set.
#[derive(Debug)]
pub struct ImageDataset {
    /// The names of the classes.
    pub classes: Vec<String>,
    /// `true` if a case may have any number of labels.
    pub multi_label: bool,
    /// The cases.
    pub cases: Vec<ImageCase>,
    /// Irregularities, as messages to the user.
    pub warnings: Vec<String>,
    memory: Vec<Reservation>,
}

impl ImageDataset {
    /// The places of all cases of a split; of all cases for `None`.
    pub fn in_split(&self, split: Option<Split>) -> Vec<usize> {
        let cases = self.cases.iter().enumerate();
        cases.filter(|(_, case)| split.is_none() || case.split == split).map(|(at, _)| at).collect()
    }

    /// The positions of the entries of `cases` that have one of the classes: the cases of one classifier of two classes.
    pub fn with_classes(&self, cases: &[usize], classes: &[u32]) -> Vec<usize> {
        let has = |at: &usize| {
            self.cases.get(*at).is_some_and(|case| case.labels.iter().any(|label| classes.contains(label)))
        };
        cases.iter().copied().filter(has).collect()
    }

    /// The number of cases of each class among `cases`.
    pub fn class_counts(&self, cases: &[usize]) -> Vec<usize> {
        let mut counts = vec![0; self.classes.len()];
        for label in cases.iter().filter_map(|at| self.cases.get(*at)).flat_map(|case| &case.labels) {
            if let Some(count) = counts.get_mut(*label as usize) {
                *count += 1;
            }
        }
        counts
    }

    /// Bytes that the list reserves.
    pub fn reserved(&self) -> Bytes {
        self.memory.iter().map(Reservation::bytes).sum()
    }
}

/// Lists a folder in the order of names, after the memory of its paths was reserved.
fn list(folder: &Path, budget: &Budget) -> Result<(Vec<PathBuf>, Reservation), DatasetError> {
    let failed = |source| DatasetError::io(folder, source);
    let mut bytes = 0u64;
    for path in plimsoll_disk::entries(folder).map_err(failed)? {
        bytes = bytes.saturating_add(plimsoll_disk::path_bytes(&path.map_err(failed)?));
    }
    // A growing list has a capacity of up to twice its length.
    let held = budget.reserve("names of files", Bytes(bytes.saturating_mul(2)));
    let held = held.map_err(DatasetError::memory(folder))?;
    #[expect(clippy::disallowed_methods, reason = "the bytes were reserved")]
    let paths = plimsoll_disk::read_dir_within(folder, bytes).map_err(failed)?;
    Ok((paths, held))
}

/// Reserves a list of `cases` cases, whose names, paths, groups and labels have `text` bytes together.
fn reserve(budget: &Budget, cases: usize, text: u64) -> Result<Reservation, OverBudget> {
    budget.reserve("list of images", Bytes((cases as u64).saturating_mul(CASE_BYTES).saturating_add(text)))
}
