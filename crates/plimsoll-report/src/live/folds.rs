//! The folds that are in a folder: of a run, of one-vs-one, of a sweep, or one fold itself.

use std::path::Path;

use plimsoll_run::{FoldFolder, RunFolder, SweepFolder, pairs_in};

use crate::error::{Outcome, ReportError};

/// Folds in a folder.
pub struct Folds {
    /// Those that were begun, in their order.
    pub begun: Vec<FoldFolder>,
    /// The number of folds that are planned, if it is known, as for sweeps.
    pub planned: Option<usize>,
}

/// The folds in a folder; of a sweep there may be none yet.
pub fn folds_in(path: &Path) -> Outcome<Folds> {
    if let Some(fold) = FoldFolder::at(path).filter(FoldFolder::is_begun) {
        return Ok(Folds { begun: vec![fold], planned: None });
    }
    let sweep = SweepFolder::new(path);
    if sweep.is_begun() {
        let trials = sweep.read()?;
        let mut all: Vec<FoldFolder> = Vec::new();
        for arm in &trials.arms {
            for seed in &trials.seeds {
                all.extend(trials.folds.iter().map(|fold| sweep.trial(&arm.name, *seed, *fold)));
            }
        }
        let planned = Some(all.len());
        return Ok(Folds { begun: all.into_iter().filter(FoldFolder::is_begun).collect(), planned });
    }
    let mut begun = RunFolder::new(path).folds()?;
    for pair in pairs_in(path)? {
        begun.extend(RunFolder::for_pair(path, pair).folds()?);
    }
    if begun.is_empty() {
        return Err(ReportError::NoRun { folder: path.into() });
    }
    Ok(Folds { begun, planned: None })
}
