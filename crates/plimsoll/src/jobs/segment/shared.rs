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

    /// The folder for files of labels.
    pub(super) fn folder(&self) -> &PartsFolder {
        &self.folder
    }

    /// The labels that a task has found in the image; `None` if it was not run.
    pub(super) fn labels(&self, task: &str, mode: Mode) -> Option<&[PartLabels]> {
        let is_it =
            |((name, of_mode), _): &&((String, Mode), Vec<PartLabels>)| name == task && *of_mode == mode;
        self.found.iter().find(is_it).map(|(_, labels)| labels.as_slice())
    }

    /// Keeps the labels of a task.
    pub(super) fn keep(&mut self, task: &str, mode: Mode, labels: Vec<PartLabels>) {
        self.found.push(((task.into(), mode), labels));
    }
}

/// The name of the folder of a case.
fn name_of(case: &str) -> String {
    format!("{case}.regions")
}
