//! The files of a task's labels.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_data::Case;
use plimsoll_disk::atomic::sweep;
use plimsoll_volume::LabelTable;

use super::extras::written;
use super::parts::PartsFolder;
use super::{DERIVED, ENDING, Job};
use crate::error::{Error, Outcome};

impl Job<'_> {
    /// Returns `true` if the labels and all files beside them exist and are kept.
    pub(super) fn has_all(&self, output: &Path) -> bool {
        let labels = self.labels_written(output).filter(|_| !self.request.overwrite);
        labels.is_some_and(|labels| self.extras(output).missing(labels).is_empty())
    }

    /// The names of labels that are written.
    pub(super) fn names(&self) -> LabelTable {
        let is_wanted =
            |class: &String| self.request.subset.is_empty() || self.request.subset.contains(class);
        let wanted = self.task.classes.iter().filter(|class| is_wanted(class));
        LabelTable {
            labels: wanted
                .filter_map(|class| Some((self.task.value(class)?.into(), class.clone())))
                .collect(),
        }
    }

    /// The files of masks in a folder.
    pub(super) fn masks(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        let derived = DERIVED.into_iter().filter(|_| self.has_skin()).map(String::from);
        let names = self.names().labels.into_iter().map(|(_, name)| name).chain(derived);
        names.map(move |name| folder.join(format!("{name}{ENDING}")))
    }

    /// Returns `true` if masks of the whole body and its skin are derived.
    pub(super) fn has_skin(&self) -> bool {
        self.task.has_skin && self.request.derived && !self.request.one_file
    }

    /// The time at which the labels of an image were last written; `None` if a file is missing.
    pub(super) fn labels_written(&self, output: &Path) -> Option<SystemTime> {
        match self.request.one_file {
            true => written(output),
            false => {
                let all = self.masks(output).map(|mask| written(&mask));
                all.collect::<Option<Vec<SystemTime>>>()?.into_iter().max()
            }
        }
    }

    /// The folder that an output goes to.
    pub(super) fn beside<'b>(&self, output: &'b Path) -> &'b Path {
        match self.request.one_file {
            true => output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
            false => output,
        }
    }

    /// Removes what killed processes have left where an output goes to, whether or not there is still something to do.
    pub(super) fn sweep(&self, output: &Path, case: &Case) -> Outcome {
        let beside = self.beside(output);
        if !beside.is_dir() {
            return Ok(());
        }
        sweep(beside).map_err(|error| Error::at_path(beside, &error))?;
        PartsFolder::sweep(beside, &case.id)
    }
}
