//! The file `dataset.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::TooLong;
use plimsoll_volume::PICTURE_ENDINGS;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Normalisation;
use crate::dataset::{Channel, DatasetError};

/// The largest description that is read: a Decathlon description of a hundred thousand cases fits.
const LARGEST: u64 = 16 << 20;

/// The supported file endings of volumes; pictures are beside them.
const VOLUMES: [&str; 3] = [".nii.gz", ".nii", ".hdr"];

/// The entries of `dataset.json` that are used here.
pub(crate) struct Description {
    pub(crate) path: PathBuf,
    pub(crate) name: Option<String>,
    pub(crate) labels: Map<String, Value>,
    pub(crate) training_cases: Option<u64>,
    raw: Raw,
}

/// The entries of either layout. Others are ignored.
#[derive(Deserialize)]
struct Raw {
    name: Option<String>,
    channel_names: Option<BTreeMap<String, String>>,
    modality: Option<BTreeMap<String, String>>,
    labels: Option<Map<String, Value>>,
    file_ending: Option<String>,
    #[serde(rename = "numTraining")]
    training_cases: Option<u64>,
    training: Option<Vec<Listed>>,
    test: Option<Vec<Listed>>,
}

/// An entry of `training` or `test`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Listed {
    /// An image with its label map, relative to the data set's folder.
    Pair { image: String, label: Option<String> },
    /// An image alone.
    Image(String),
}

/// The cases that a Decathlon description lists.
pub(crate) struct ListedCases<'a> {
    pub(crate) training: &'a [Listed],
    pub(crate) test: &'a [Listed],
}

impl Description {
    pub(crate) fn read(folder: &Path) -> Result<Description, DatasetError> {
        if !folder.is_dir() {
            return Err(DatasetError::NotAFolder { path: folder.into() });
        }
        let path = folder.join("dataset.json");
        if !path.is_file() {
            return Err(DatasetError::NoDatasetJson { folder: folder.into() });
        }
        let bytes = read_bounded(&path)?;
        let mut raw: Raw = serde_json::from_slice(&bytes)
            .map_err(|problem| DatasetError::Json { path: path.clone(), problem })?;
        let labels = raw
            .labels
            .take()
            .ok_or_else(|| DatasetError::MissingKey { path: path.clone(), key: "labels" })?;
        Ok(Description { path, name: raw.name.take(), labels, training_cases: raw.training_cases, raw })
    }

    /// The channels, in order. nnU-Net calls them `channel_names`, the Decathlon `modality`.
    pub(crate) fn channels(&self) -> Result<Vec<Channel>, DatasetError> {
        let names = self.raw.channel_names.as_ref().or(self.raw.modality.as_ref());
        let names = names.filter(|names| !names.is_empty());
        let names = names
            .ok_or_else(|| DatasetError::MissingKey { path: self.path.clone(), key: "channel_names" })?;
        let mut numbered: Vec<(Option<usize>, &String)> =
            names.iter().map(|(number, name)| (number.parse().ok(), name)).collect();
        numbered.sort();
        if numbered.iter().enumerate().any(|(expected, (number, _))| *number != Some(expected)) {
            let found = names.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(DatasetError::ChannelNumbers { path: self.path.clone(), found });
        }
        let channel =
            |name: &String| Channel { name: name.clone(), normalisation: Normalisation::for_channel(name) };
        Ok(numbered.into_iter().map(|(_, name)| channel(name)).collect())
    }

    /// The file ending of images. The Decathlon's is always the same, so its description has none.
    pub(crate) fn file_ending(&self) -> Result<String, DatasetError> {
        let ending = match (&self.raw.file_ending, self.listed_cases()) {
            (Some(ending), _) => ending.clone(),
            (None, Some(_)) => ".nii.gz".into(),
            (None, None) => {
                return Err(DatasetError::MissingKey { path: self.path.clone(), key: "file_ending" });
            }
        };
        if !is_image_ending(&ending) {
            return Err(DatasetError::FileEnding { path: self.path.clone(), found: ending });
        }
        Ok(ending)
    }

    /// The lists of a Decathlon description. nnU-Net's format is distinguished by `channel_names`; lists that a
    /// conversion left over are then ignored, as nnU-Net does.
    pub(crate) fn listed_cases(&self) -> Option<ListedCases<'_>> {
        match (&self.raw.channel_names, &self.raw.training) {
            (None, Some(training)) => {
                Some(ListedCases { training, test: self.raw.test.as_deref().unwrap_or_default() })
            }
            _ => None,
        }
    }
}

/// Whether the names of images can end in this, the dot included.
pub fn is_image_ending(ending: &str) -> bool {
    let ending = ending.to_ascii_lowercase();
    VOLUMES.contains(&&ending[..]) || PICTURE_ENDINGS.contains(&&ending[..])
}

/// Whether images whose names end in this are pictures: PNG, JPEG, TIFF, BMP.
pub fn is_picture_ending(ending: &str) -> bool {
    PICTURE_ENDINGS.contains(&&ending.to_ascii_lowercase()[..])
}

/// What label maps end in beside images that end in this: the same, but PNG beside JPEG, which would change classes.
pub fn label_ending(ending: &str) -> &str {
    match &ending.to_ascii_lowercase()[..] {
        ".jpg" | ".jpeg" => ".png",
        _ => ending,
    }
}

/// What predictions end in where images end in this: the same, but PNG beside JPEG, which would change classes, and BMP.
pub fn prediction_ending(ending: &str) -> &str {
    match &ending.to_ascii_lowercase()[..] {
        ".jpg" | ".jpeg" | ".bmp" => ".png",
        _ => ending,
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, DatasetError> {
    plimsoll_disk::read(path, LARGEST).map_err(|source: io::Error| match TooLong::of(&source) {
        Some(TooLong { found, most }) => DatasetError::TooLarge { path: path.into(), found, most },
        None => DatasetError::Io { path: path.into(), action: "read", source },
    })
}
