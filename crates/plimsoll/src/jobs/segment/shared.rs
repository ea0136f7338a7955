//! Labels that the tasks of an image share.

use std::path::Path;

use plimsoll_infer::PartLabels;
use plimsoll_models::total_segmentator::Mode;

use super::parts::PartsFolder;
use crate::error::Outcome;

/// The labels that tasks have found in an image: for themselves, and for others that look where they have found something.
pub(super) struct Shared {
    folder: PartsFolder,
    found: Vec<((String, Mode), Vec<PartLabels>)>,
}

impl Shared {
    /// Makes a folder for the labels of a case.
    pub(super) fn new(beside: &Path, case: &str) -> Outcome<Shared> {
        Ok(Shared { folder: PartsFolder::make(beside, &name_of(case))?, found: Vec::new() })
    }

    /// Removes the folders of processes that have ended.
    pub(super) fn sweep(beside: &Path, case: &str) -> Outcome {
        PartsFolder::sweep(beside, &name_of(case))
    }

    /// The labels that a task has found in the image. If it was not run, `find` runs it, with a folder for files of labels.
    pub(super) fn labels(
        &mut self,
        task: &str,
        mode: Mode,
        find: impl FnOnce(&PartsFolder) -> Outcome<Vec<PartLabels>>,
    ) -> Outcome<&[PartLabels]> {
        let known = self.found.iter().position(|((name, of_mode), _)| name == task && *of_mode == mode);
        let at = match known {
            Some(at) => at,
            None => {
                let labels = find(&self.folder)?;
                self.found.push(((task.into(), mode), labels));
                self.found.len() - 1
            }
        };
        Ok(&self.found[at].1)
    }
}

/// The name of the folder of a case.
fn name_of(case: &str) -> String {
    format!("{case}.regions")
}
