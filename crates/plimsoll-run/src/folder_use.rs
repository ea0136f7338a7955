//! The use of a folder of results. A folder has one use: the files of two kinds of run in one folder could not be told apart later, and
//! `predict` would use a part of them.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{FoldFolder, RunError, RunFolder, Specification, SweepFolder};

/// The use of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderUse {
    /// Folds of a run that labels voxels.
    Segmentation,
    /// Folds of a run that gives each image a class.
    Classification,
    /// One-vs-one: a run for each pair of classes.
    Pairs,
    /// A sweep.
    Sweep,
    /// The training of one fold.
    Fold,
    /// Predictions.
    Predictions,
}

impl fmt::Display for FolderUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FolderUse::Segmentation => "folds of a run that labels voxels",
            FolderUse::Classification => "folds of a run that classifies images",
            FolderUse::Pairs => "classifiers of pairs of classes (one-vs-one)",
            FolderUse::Sweep => "a sweep",
            FolderUse::Fold => "one fold of a run",
            FolderUse::Predictions => "predictions",
        })
    }
}

impl FolderUse {
    /// All uses of a folder that its files show; empty if it does not exist or has only other files.
    ///
    /// # Errors
    /// Returns an error if the folder, or the specification of a run in it, cannot be read.
    pub fn all_of(folder: &Path) -> Result<Vec<FolderUse>, RunError> {
        let mut found = Vec::new();
        if let Some(fold) = RunFolder::new(folder).folds()?.first() {
            let is_classifier = Specification::read(fold)?.config.task.classification().is_ok();
            found.push(if is_classifier { FolderUse::Classification } else { FolderUse::Segmentation });
        }
        let is_begun = |pair: &(u32, u32)| {
            let run = RunFolder::new(folder.join(format!("pair_{}_{}", pair.0, pair.1)));
            run.folds().map(|folds| !folds.is_empty())
        };
        if pairs_in(folder)?.iter().map(is_begun).collect::<Result<Vec<_>, _>>()?.contains(&true) {
            found.push(FolderUse::Pairs);
        }
        if SweepFolder::new(folder).is_begun() {
            found.push(FolderUse::Sweep);
        }
        let has = |name: &str| folder.join(name).is_file();
        match has(SPECIFICATION) {
            true => found.push(FolderUse::Fold),
            // A fold has a record of this name as well.
            false if has(RECORD) || has(FINISHED_CASES) || folder.join(PARTS).is_dir() => {
                found.push(FolderUse::Predictions);
            }
            false => {}
        }
        Ok(found)
    }

    /// Refuses a folder that has another use, or that is a part of one: the run of a pair, a trial, or what lies in a fold.
    ///
    /// # Errors
    /// [`RunError::OtherUse`], or if a folder cannot be read.
    pub fn expect_in(self, folder: &Path) -> Result<(), RunError> {
        let refuse = |folder: &Path, found: FolderUse| {
            Err(RunError::OtherUse { folder: folder.into(), found, wanted: self })
        };
        if let Some(found) = FolderUse::all_of(folder)?.into_iter().find(|found| *found != self) {
            return refuse(folder, found);
        }
        if self == FolderUse::Predictions {
            // A folder of labels below a run is its own.
            return Ok(());
        }
        for (depth, above) in folder.ancestors().skip(1).take(PARTS_BELOW).enumerate() {
            if above.as_os_str().is_empty() {
                break;
            }
            if depth == 0 && FoldFolder::at(above).is_some_and(|fold| fold.is_begun()) {
                return refuse(above, FolderUse::Fold);
            }
            let is_pair = depth == 0
                && folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pair_"));
            if is_pair && FolderUse::all_of(above)?.contains(&FolderUse::Pairs) {
                return refuse(above, FolderUse::Pairs);
            }
            if SweepFolder::new(above).is_begun() {
                return refuse(above, FolderUse::Sweep);
            }
        }
        Ok(())
    }
}

/// Folders of a sweep above the run of a trial, `SWEEP/ARM/seed_0`.
const PARTS_BELOW: usize = 2;

/// The file that every fold has.
const SPECIFICATION: &str = "specification.json";

/// The files of predictions: the record of a call, and the cases of one that has not ended.
const RECORD: &str = "run.json";
const FINISHED_CASES: &str = "run.cases.jsonl";

/// The folder of the records of parts of a prediction.
const PARTS: &str = "run.parts";

/// The pairs of labels whose classifiers are in a folder, in order; empty if it is no folder.
///
/// # Errors
/// Returns an error if it cannot be read.
pub fn pairs_in(folder: &Path) -> Result<Vec<(u32, u32)>, RunError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = plimsoll_disk::read_dir(folder).map_err(|source| RunError::io(folder, source))?;
    let pair = |path: &PathBuf| {
        let (a, b) = path.file_name()?.to_str()?.strip_prefix("pair_")?.split_once('_')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    let mut pairs: Vec<(u32, u32)> = entries.iter().filter_map(pair).collect();
    pairs.sort_unstable();
    Ok(pairs)
}
