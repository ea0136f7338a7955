//! Files beside labels: statistics and a preview.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use plimsoll_infer::{LabelStatistics, label_statistics};
use plimsoll_memory::Budget;
use plimsoll_report::preview::{Files, draw};
use serde::{Serialize, Serializer};

use crate::error::Outcome;
use crate::files::{write, write_json};

/// A choice of files beside labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraChoice {
    /// Volumes and mean intensities.
    pub statistics: bool,
    /// Measures labels near the border of the image, too.
    pub incomplete: bool,
    /// A picture.
    pub preview: bool,
}

/// The paths of the chosen files.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    pub statistics: Option<PathBuf>,
    pub preview: Option<PathBuf>,
}

impl Extras {
    /// Those that are not there, or are older than labels that were written at this time: these are of others.
    pub fn missing(&self, labels: SystemTime) -> Extras {
        let is_missing = |file: &PathBuf| written(file).is_none_or(|time| time < labels);
        Extras {
            statistics: self.statistics.clone().filter(is_missing),
            preview: self.preview.clone().filter(is_missing),
        }
    }

    /// Returns `true` if no file is chosen.
    pub fn is_empty(&self) -> bool {
        self.statistics.is_none() && self.preview.is_none()
    }

    /// Makes them.
    pub fn make(
        &self,
        files: &Files<'_>,
        choice: ExtraChoice,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Outcome {
        let Files { image, labels, names } = *files;
        if let Some(path) = &self.statistics {
            let found = label_statistics(labels, image, names, choice.incomplete, budget, stop)?;
            write(path, |file| write_json(file, &Statistics(&found)))?;
        }
        match &self.preview {
            None => Ok(()),
            Some(path) => Ok(draw(files, path, budget)?),
        }
    }
}

/// The time at which a file was last written; `None` if it does not exist or the time is unknown.
pub fn written(file: &Path) -> Option<SystemTime> {
    plimsoll_disk::metadata(file).ok().filter(|metadata| metadata.is_file())?.modified().ok()
}

/// An object with an entry for each label, in the order of labels.
struct Statistics<'a>(&'a [(String, LabelStatistics)]);

impl Serialize for Statistics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, found)| (name, found)))
    }
}
