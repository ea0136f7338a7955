//! Channels and cases, with their names and files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Normalisation;

/// One channel of every image of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Its name: a modality (`CT`, `T1`), which decides how it is normalised.
    pub name: String,
    /// How it is normalised.
    pub normalisation: Normalisation,
}

/// Where a channel of a case is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFile {
    /// The image.
    pub path: PathBuf,
    /// The channel within the image, from 0.
    pub index: usize,
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
}

impl Case {
    /// Each file with channels once, in the order of the channels.
    pub fn image_files(&self) -> impl Iterator<Item = &Path> {
        let is_first = |at: usize| !self.images[..at].iter().any(|other| other.path == self.images[at].path);
        (0..self.images.len()).filter(move |at| is_first(*at)).map(|at| self.images[at].path.as_path())
    }

    /// Each file of the case once: images first, then the label map.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.image_files().chain(self.label.as_deref())
    }
}
