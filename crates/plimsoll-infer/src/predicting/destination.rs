//! The files to which the labels of a folder of cases are written.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;

use plimsoll_data::{Case, bids_label};

use crate::error::InferError;

/// The destination of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The folder, which is there.
    pub folder: PathBuf,
    /// The naming of label files.
    pub names: LabelNames,
    /// The ending of the names of files, with the dot: `.nii.gz`.
    pub ending: String,
    /// `true` if predictions that are there are replaced; else they are kept. A file appears under its name only when it is
    /// complete, so one that is there is whole.
    pub overwrite: bool,
    /// `true` if probabilities are written beside labels: `.npz` in place of the ending.
    pub probabilities: bool,
    /// The folder of an earlier network's labels, under the names that labels get here; `None` if the model is not a later
    /// stage of a cascade.
    pub earlier: Option<PathBuf>,
}

/// The naming of label files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelNames {
    /// Named after their cases, in one folder.
    #[default]
    Cases,
    /// Named by BIDS, in folders of subjects and sessions.
    Bids,
}

impl Destination {
    /// The file of a case.
    pub fn file(&self, case: &Case) -> PathBuf {
        self.folder.join(self.name(case))
    }

    /// The name of a case's file of labels, with folders where names have such.
    fn name(&self, case: &Case) -> PathBuf {
        let mut name = match self.names {
            LabelNames::Cases => OsString::from(&case.id),
            LabelNames::Bids => bids_label(case).into_os_string(),
        };
        name.push(&self.ending);
        name.into()
    }

    /// The file of a case's probabilities, if they are written.
    pub fn probabilities(&self, case: &Case) -> Option<PathBuf> {
        self.probabilities.then(|| self.folder.join(format!("{}.npz", case.id)))
    }

    /// The file of an earlier network's labels of a case.
    pub fn earlier(&self, case: &Case) -> Option<PathBuf> {
        Some(self.earlier.as_ref()?.join(self.name(case)))
    }

    /// Returns `true` if a case is not predicted again: all its files are there, and they are not replaced.
    pub fn keeps(&self, case: &Case) -> bool {
        !self.overwrite && self.has(case)
    }

    /// Returns `true` if all files of a case are there.
    fn has(&self, case: &Case) -> bool {
        self.file(case).exists() && self.probabilities(case).is_none_or(|file| file.exists())
    }

    /// Refuses to write labels over an image that any of the cases is predicted from, under whatever name it is reached.
    ///
    /// # Errors
    /// Returns an error if a file of a case is an image of one.
    pub fn check(&self, cases: &[Case]) -> Result<(), InferError> {
        let earlier: Vec<PathBuf> = cases.iter().filter_map(|case| self.earlier(case)).collect();
        let images = cases.iter().flat_map(Case::image_files).chain(earlier.iter().map(PathBuf::as_path));
        let images: HashSet<PathBuf> = images.filter_map(|image| image.canonicalize().ok()).collect();
        // What is not there yet is no image.
        let replaced = |case: &Case| self.file(case).canonicalize().ok().filter(|file| images.contains(file));
        match cases.iter().find_map(|case| Some((case, replaced(case)?))) {
            Some((case, image)) => Err(InferError::ReplacesImage { case: case.id.clone(), image }),
            None => Ok(()),
        }
    }
}
