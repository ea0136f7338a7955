//! Channels and cases, with their names and files.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use plimsoll_volume::{LabelValues, Segments, VolumeFile};
use serde::{Deserialize, Serialize};

use crate::Normalisation;
use crate::dataset::{DatasetError, LengthUnit};

/// One channel of every image of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Its name: a modality (`CT`, `T1`), which decides how it is normalised.
    pub name: String,
    /// The normalisation of its intensities.
    pub normalisation: Normalisation,
}

/// The file of a channel of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFile {
    /// The image.
    pub path: PathBuf,
    /// The channel within the image, from 0.
    pub index: usize,
}

/// Returns `true` if a text can name a case: a file name that stays within its folder.
pub fn is_case_name(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    let is_one =
        matches!(parts.next(), Some(Component::Normal(name)) if name == text) && parts.next().is_none();
    is_one && !text.contains('\0')
}

/// One subject: an image of one or more channels and, if it is for training, its label map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The name, unique in the data set.
    pub id: String,
    /// The file of each channel, in the order of the data set's channels.
    pub images: Vec<ChannelFile>,
    /// The label map.
    pub label: Option<PathBuf>,
    /// Facts about its files that the files do not contain.
    pub reading: Reading,
}

/// Facts about files that the files do not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The class of each value of the label map; `None` if values are the numbers of classes.
    pub label_values: Option<Arc<LabelValues>>,
    /// The names that its label map gives values, or a table beside it does.
    pub segments: Option<Arc<Segments>>,
    /// The unit that lengths in headers are in, whatever headers say; none where they are right.
    pub unit: Option<LengthUnit>,
}

impl Reading {
    /// The factor that converts the lengths of a file to millimetres: 1 if its header is right.
    pub fn scale(&self, file: &VolumeFile) -> f64 {
        self.unit.map_or(1.0, |unit| unit.millimetres() / file.millimetres_per_unit())
    }
}

impl Case {
    /// Each file with channels once, in the order of the channels.
    pub fn image_files(&self) -> impl Iterator<Item = &Path> {
        let is_first = |at: usize| !self.images[..at].iter().any(|other| other.path == self.images[at].path);
        (0..self.images.len()).filter(move |at| is_first(*at)).map(|at| self.images[at].path.as_path())
    }

    /// Checks that each image file holds the channels that are read from it: opens the headers of all of them.
    ///
    /// # Errors
    /// If a file cannot be opened, or holds more or fewer channels.
    pub fn expect_channels(&self) -> Result<(), DatasetError> {
        self.image_files().try_for_each(|path| self.expect_channels_of(&VolumeFile::open(path)?))
    }

    /// Checks that an open image file of the case holds the channels that are read from it.
    ///
    /// # Errors
    /// If it holds more or fewer.
    pub fn expect_channels_of(&self, file: &VolumeFile) -> Result<(), DatasetError> {
        let expected = self.images.iter().filter(|image| image.path == file.path()).count();
        match file.channels() {
            found if found == expected => Ok(()),
            found => Err(DatasetError::ChannelCount { path: file.path().into(), found, expected }),
        }
    }

    /// Each file of the case once: images first, then the label map.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.image_files().chain(self.label.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_case_cannot_lead_to_another_folder() {
        for name in ["a", "case 1", "ä.b", "..a"] {
            assert!(is_case_name(name), "{name:?}");
        }
        for name in ["", ".", "..", "/", "/a", "a/b", "a/", "../a", "a/..", "./a", "a\0b"] {
            assert!(!is_case_name(name), "{name:?}");
        }
    }
}
