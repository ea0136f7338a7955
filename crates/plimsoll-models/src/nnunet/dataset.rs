//! `dataset.json`: channels and labels.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_data::{LabelEntries, LabelFault, Ordered};
use plimsoll_memory::Budget;
use plimsoll_nn::bounds::MOST_FEATURES;
use serde::Deserialize;
use serde_json::Value;

use super::NnUnetError;
use super::plans::{Described, read};
use super::preparation;
use crate::{Answers, ModelError};

/// The entries that are used. `overwrite_image_reader_writer` is none of them: it decides what plans are made with, which say it.
#[derive(Deserialize)]
struct Raw {
    channel_names: Option<BTreeMap<String, String>>,
    modality: Option<BTreeMap<String, String>>,
    labels: Option<Ordered<Value>>,
    regions_class_order: Option<Value>,
    file_ending: Option<String>,
}

/// The data set of a model.
pub(super) struct ModelDataset {
    /// The names of the channels of its images, in order.
    pub(super) channels: Vec<String>,
    /// The ending of the names of its images.
    pub(super) file_ending: String,
    /// The meaning of the network's outputs.
    pub(super) answers: Answers,
    /// The name of each output; of a region with its values.
    pub(super) outputs: Vec<String>,
    /// All values of its labels above 0, ascending, without the value of ignored voxels.
    pub(super) foreground: Vec<u16>,
}

impl ModelDataset {
    pub(super) const FILE: &str = "dataset.json";

    pub(super) fn read(folder: &Path, budget: &Budget) -> Result<ModelDataset, ModelError> {
        let file: Described<Raw> = read(folder.join(ModelDataset::FILE), budget)?;
        let (path, raw) = (&file.path, &file.value);
        let missing = |key: &str| NnUnetError::Missing { path: path.clone(), key: key.into() };
        let channels = raw.channels(path)?;
        let file_ending = raw.file_ending.clone().ok_or_else(|| missing("file_ending"))?;
        if !preparation::endings().contains(&&file_ending.to_ascii_lowercase()[..]) {
            let (key, found) = ("file_ending".into(), format!("{file_ending:?}"));
            let expected = format!("images must have the ending {}", preparation::endings().join(", "));
            return Err(NnUnetError::Value { path: path.clone(), key, found, expected }.into());
        }
        let labels = raw.labels.as_ref().ok_or_else(|| missing("labels"))?;
        let OutputLabels { answers, outputs, foreground } =
            answers(path, labels, raw.regions_class_order.as_ref())?;
        Ok(ModelDataset { channels, file_ending, answers, outputs, foreground })
    }
}

/// The names of the channels of images, where nothing else of the description matters.
///
/// # Errors
/// Returns an error if the file cannot be read, or channels are not numbered from 0.
pub(super) fn channel_names(folder: &Path, budget: &Budget) -> Result<Vec<String>, ModelError> {
    let file: Described<Raw> = read(folder.join(ModelDataset::FILE), budget)?;
    Ok(file.value.channels(&file.path)?)
}

impl Raw {
    fn channels(&self, path: &Path) -> Result<Vec<String>, NnUnetError> {
        // As nnU-Net, which looks for the older name first.
        let named = self.modality.as_ref().map(|names| ("modality", names));
        let named = named.or(self.channel_names.as_ref().map(|names| ("channel_names", names)));
        let missing = || NnUnetError::Missing { path: path.into(), key: "channel_names".into() };
        let (key, names) = named.ok_or_else(missing)?;
        channels(path, key, names)
    }
}

fn channels(path: &Path, key: &str, names: &BTreeMap<String, String>) -> Result<Vec<String>, NnUnetError> {
    let mut numbered: Vec<(Option<usize>, &String)> =
        names.iter().map(|(n, name)| (n.parse().ok(), name)).collect();
    numbered.sort();
    let consecutive = numbered.iter().enumerate().all(|(expected, (number, _))| *number == Some(expected));
    if !consecutive || numbered.is_empty() || numbered.len() > MOST_FEATURES {
        let found = names.keys().take(8).cloned().collect::<Vec<_>>().join(", ");
        let expected = "channels must be numbered 0, 1, 2, …".into();
        return Err(NnUnetError::Value { path: path.into(), key: key.into(), found, expected });
    }
    Ok(numbered.into_iter().map(|(_, name)| name.clone()).collect())
}

/// The meaning and the names of outputs, and the values of labels above 0.
struct OutputLabels {
    answers: Answers,
    outputs: Vec<String>,
    foreground: Vec<u16>,
}

/// The outputs that follow from labels, in the order of the file. If a label is a list of several values, outputs are regions: one for
/// each label but the background. Otherwise there is one output for each value.
fn answers(path: &Path, labels: &Ordered<Value>, order: Option<&Value>) -> Result<OutputLabels, NnUnetError> {
    let refuse = |key: &str, found: String, expected: String| NnUnetError::Value {
        path: path.into(),
        key: key.into(),
        found,
        expected,
    };
    if labels.0.len() > MOST_FEATURES {
        let found = format!("{} labels", labels.0.len());
        return Err(refuse("labels", found, format!("at most {MOST_FEATURES} are possible")));
    }
    let read = LabelEntries::read(labels, order, u16::MAX.into()).map_err(|fault| match fault {
        LabelFault::Missing { key } => NnUnetError::Missing { path: path.into(), key },
        LabelFault::Value { key, found, expected } => refuse(&key, found, expected),
    })?;
    // All of them fit 16 bits, as checked before.
    let of_file = |value: u64| value as u16;
    let values: Vec<u16> = read.values().into_iter().map(of_file).collect();
    let Some(last) = values.last().copied().map(u64::from) else {
        return Err(NnUnetError::Missing { path: path.into(), key: "labels.background".into() });
    };
    if let Some(ignored) = read.ignore().filter(|ignored| *ignored != last + 1) {
        let expected = format!("it must be {}, the one after all others", last + 1);
        return Err(refuse("labels.ignore", ignored.to_string(), expected));
    }
    let foreground: Vec<u16> = values.iter().copied().filter(|value| *value != 0).collect();
    let Some(order) = read.order() else {
        let called = |value: &u16| {
            let same = read.entries().iter().filter(|entry| entry.values.contains(&u64::from(*value)));
            same.map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(" or ")
        };
        let outputs = values.iter().map(called).collect();
        return Ok(OutputLabels { answers: Answers::Classes(values.len()), outputs, foreground });
    };
    let outputs = read.regions().map(|entry| format!("{} {:?}", entry.name, entry.values)).collect();
    let order = order.iter().copied().map(of_file).collect();
    Ok(OutputLabels { answers: Answers::Regions(order), outputs, foreground })
}
