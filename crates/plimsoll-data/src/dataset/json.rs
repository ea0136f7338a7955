//! The file `dataset.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_disk::{TooLong, without_mark};
use serde::Deserialize;
use serde_json::Value;

use crate::Normalisation;
use crate::dataset::names::is_image_ending;
use crate::dataset::{Channel, DatasetError, LengthUnit, Names, Ordered, SegmentRule};

/// The largest description that is read: a Decathlon description of a hundred thousand cases fits.
const LARGEST: u64 = 16 << 20;

/// The entries of a description that are used here.
pub(crate) struct Description {
    pub(crate) path: PathBuf,
    pub(crate) name: Option<String>,
    pub(crate) labels: Option<Ordered<Value>>,
    /// The value written for each region, if labels are regions.
    pub(crate) region_order: Option<Value>,
    pub(crate) training_cases: Option<u64>,
    /// The file ending of images.
    pub(crate) file_ending: Option<String>,
    /// The unit that lengths in headers are in, whatever headers say.
    pub(crate) unit: Option<LengthUnit>,
    /// The classes of names in label maps.
    pub(crate) segments: Option<SegmentRule>,
    raw: Raw,
}

/// The entries of any layout. Others are ignored.
#[derive(Deserialize)]
struct Raw {
    name: Option<String>,
    channel_names: Option<BTreeMap<String, String>>,
    modality: Option<BTreeMap<String, String>>,
    labels: Option<Ordered<Value>>,
    regions_class_order: Option<Value>,
    file_ending: Option<String>,
    #[serde(rename = "numTraining")]
    training_cases: Option<u64>,
    /// The unit that lengths in headers are in, whatever headers say.
    unit: Option<LengthUnit>,
    /// The classes of names in label maps.
    segments: Option<SegmentRule>,
    /// nnU-Net's list of files by case.
    dataset: Option<BTreeMap<String, ListedCase>>,
    training: Option<Vec<Entry>>,
    test: Option<Vec<Entry>>,
    /// MONAI's name for `test`.
    testing: Option<Vec<Entry>>,
}

/// A case of `dataset`.
#[derive(Deserialize)]
struct ListedCase {
    images: Vec<String>,
    label: String,
}

/// An entry of `training` or `test`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    /// An image, or one for each channel, with its label map.
    Pair { image: Names, label: Option<String>, fold: Option<u64> },
    /// An image alone.
    Image(String),
}

/// A case of a list: files relative to the folder of the list.
pub(crate) struct Listed {
    /// Its name, if the list gives it one.
    pub(crate) case: Option<String>,
    /// One image with all channels, or one for each.
    pub(crate) images: Vec<String>,
    pub(crate) label: Option<String>,
    /// The fold that it is validated in.
    pub(crate) fold: Option<u64>,
}

/// The cases that a description lists.
pub(crate) struct Lists {
    pub(crate) training: Vec<Listed>,
    pub(crate) test: Vec<Listed>,
}

impl Description {
    pub(crate) fn read(path: PathBuf) -> Result<Description, DatasetError> {
        let bytes = read_bounded(&path)?;
        Description::parse(path, &bytes)
    }

    /// Parses a description; errors name it `path`.
    pub(crate) fn parse(path: PathBuf, bytes: &[u8]) -> Result<Description, DatasetError> {
        let mut raw: Raw = serde_json::from_slice(bytes)
            .map_err(|problem| DatasetError::Json { path: path.clone(), problem })?;
        if let Some(ending) = raw.file_ending.as_ref().filter(|ending| !is_image_ending(ending)) {
            return Err(DatasetError::FileEnding { path, found: ending.clone() });
        }
        Ok(Description {
            path,
            name: raw.name.take(),
            labels: raw.labels.take(),
            region_order: raw.regions_class_order.take(),
            training_cases: raw.training_cases,
            file_ending: raw.file_ending.take(),
            unit: raw.unit,
            segments: raw.segments.take(),
            raw,
        })
    }

    /// The channels, in order, if it says them. nnU-Net calls them `channel_names`, the Decathlon `modality`.
    pub(crate) fn channels(&self) -> Result<Option<Vec<Channel>>, DatasetError> {
        let names = self.raw.channel_names.as_ref().or(self.raw.modality.as_ref());
        let Some(names) = names.filter(|names| !names.is_empty()) else { return Ok(None) };
        let mut numbered: Vec<(Option<usize>, &String)> =
            names.iter().map(|(number, name)| (number.parse().ok(), name)).collect();
        numbered.sort();
        if numbered.iter().enumerate().any(|(expected, (number, _))| *number != Some(expected)) {
            let found = names.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(DatasetError::ChannelNumbers { path: self.path.clone(), found });
        }
        let channel =
            |name: &String| Channel { name: name.clone(), normalisation: Normalisation::for_channel(name) };
        Ok(Some(numbered.into_iter().map(|(_, name)| channel(name)).collect()))
    }

    /// The cases that it lists, if it does: under `dataset`, as nnU-Net; or under `training`. nnU-Net's format is distinguished by
    /// `channel_names`; lists of the latter kind that a conversion left over are then ignored, as nnU-Net does.
    pub(crate) fn lists(&self) -> Result<Option<Lists>, DatasetError> {
        let raw = &self.raw;
        if let Some(cases) = &raw.dataset {
            let listed = |(case, files): (&String, &ListedCase)| Listed {
                case: Some(case.clone()),
                images: files.images.clone(),
                label: Some(files.label.clone()),
                fold: None,
            };
            return Ok(Some(Lists { training: cases.iter().map(listed).collect(), test: Vec::new() }));
        }
        let Some(training) = raw.training.as_ref().filter(|_| raw.channel_names.is_none()) else {
            return Ok(None);
        };
        let listed = |entry: &Entry| match entry {
            Entry::Pair { image, label, fold } => {
                Listed { case: None, images: image.list().to_vec(), label: label.clone(), fold: *fold }
            }
            Entry::Image(image) => {
                Listed { case: None, images: vec![image.clone()], label: None, fold: None }
            }
        };
        let test = raw.test.iter().chain(&raw.testing).flatten();
        Ok(Some(Lists { training: training.iter().map(listed).collect(), test: test.map(listed).collect() }))
    }
}

/// Reads a text, without the mark that some programs begin one of Unicode with.
pub(crate) fn read_bounded(path: &Path) -> Result<Vec<u8>, DatasetError> {
    let read = plimsoll_disk::read(path, LARGEST).map(without_mark);
    read.map_err(|source: io::Error| match TooLong::from_error(&source) {
        Some(TooLong { found, most }) => DatasetError::TooLarge { path: path.into(), found, most },
        None => DatasetError::Io { path: path.into(), action: "read", source },
    })
}
