//! Files beside labels: statistics, features and a preview.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use plimsoll_infer::{LabelStatistics, Measured, label_statistics, structure_features, write_features};
use plimsoll_memory::Budget;
use plimsoll_report::preview::{Files, beside, draw, preview_of};
use serde::{Serialize, Serializer};

use super::Job;
use crate::error::Outcome;
use crate::files::{write, write_json};

/// A choice of files beside labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraChoice {
    /// Volumes and mean intensities.
    pub statistics: bool,
    /// Measures labels near the border of the image, too.
    pub incomplete: bool,
    /// PyRadiomics' shape and first-order features of each label, in a table.
    pub report: bool,
    /// A picture.
    pub preview: bool,
}

/// The paths of the chosen files.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    pub statistics: Option<PathBuf>,
    pub report: Option<PathBuf>,
    pub preview: Option<PathBuf>,
}

impl Extras {
    /// Those that are not there, or are older than labels that were written at this time: these are of others.
    pub fn missing(&self, labels: SystemTime) -> Extras {
        let is_missing = |file: &PathBuf| written(file).is_none_or(|time| time < labels);
        Extras {
            statistics: self.statistics.clone().filter(is_missing),
            report: self.report.clone().filter(is_missing),
            preview: self.preview.clone().filter(is_missing),
        }
    }

    /// Returns `true` if no file is chosen.
    pub fn is_empty(&self) -> bool {
        self.statistics.is_none() && self.report.is_none() && self.preview.is_none()
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
        if let Some(path) = &self.report {
            let found = structure_features(&Measured { labels, image, names }, budget, stop)?;
            write(path, |file| write_features(&found, file))?;
        }
        match &self.preview {
            None => Ok(()),
            Some(path) => Ok(draw(files, path, budget)?),
        }
    }
}

impl Job<'_> {
    /// The paths of the files beside labels.
    pub(super) fn extras(&self, output: &Path) -> Extras {
        let ExtraChoice { statistics, report, preview, .. } = self.request.extras;
        let of_statistics = || match self.request.one_file {
            // Several label maps may be in a folder.
            true => beside(output, ".statistics.json"),
            false => output.join("statistics.json"),
        };
        let of_report = || match self.request.one_file {
            true => beside(output, ".report.csv"),
            false => output.join("report.csv"),
        };
        let of_preview = || match self.request.one_file {
            true => preview_of(output),
            false => output.join("preview.png"),
        };
        Extras {
            statistics: statistics.then(of_statistics),
            report: report.then(of_report),
            preview: preview.then(of_preview),
        }
    }

    /// Writes the requested files beside a label map.
    pub(super) fn make(&self, extras: &Extras, image: &Path, labels: &Path) -> Outcome {
        let files = Files { image, labels, names: &self.names() };
        let _overhead = match extras.report.is_some() {
            true => Some(self.overhead()?),
            false => None,
        };
        extras.make(&files, self.request.extras, &self.budget, self.context.stop.flag())
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
