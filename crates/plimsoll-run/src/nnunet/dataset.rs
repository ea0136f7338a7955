//! `dataset.json`: channels and labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use plimsoll_memory::Budget;
use plimsoll_nn::bounds::MOST_FEATURES;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::NnUnetError;
use super::entry::Entry;
use super::plans::{Described, read};
use super::preparation;
use crate::{Answers, RunError};

/// The entries that are used. `overwrite_image_reader_writer` is none of them: it decides what plans are made with, which say it.
#[derive(Deserialize)]
struct Raw {
    channel_names: Option<BTreeMap<String, String>>,
    modality: Option<BTreeMap<String, String>>,
    labels: Option<Labels>,
    regions_class_order: Option<Value>,
    file_ending: Option<String>,
}

/// Labels by their names, which the file has in the order of the outputs of regions.
struct Labels {
    all: Value,
    /// The names in the file's order.
    names: Vec<String>,
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Labels;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("labels by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Labels, A::Error> {
                let (mut all, mut names) = (Map::new(), Vec::new());
                while let Some((name, value)) = entries.next_entry::<String, Value>()? {
                    // As in Python, a name that comes again has the later value in the earlier place.
                    if all.insert(name.clone(), value).is_none() {
                        names.push(name);
                    }
                }
                Ok(Labels { all: Value::Object(all), names })
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// What a model was trained on.
pub(super) struct ModelDataset {
    /// The names of the channels of its images, in order.
    pub(super) channels: Vec<String>,
    /// What the names of its images end in.
    pub(super) file_ending: String,
    /// What the outputs of its network say.
    pub(super) answers: Answers,
    /// What each output is called, a region with its values.
    pub(super) outputs: Vec<String>,
    /// All values of its labels above 0, ascending; that of voxels that are ignored is none of them.
    pub(super) foreground: Vec<u16>,
}

impl ModelDataset {
    pub(super) const FILE: &str = "dataset.json";

    pub(super) fn read(folder: &Path, budget: &Budget) -> Result<ModelDataset, RunError> {
        let file: Described<Raw> = read(folder.join(ModelDataset::FILE), budget)?;
        let (path, raw) = (&file.path, &file.value);
        let missing = |key: &str| NnUnetError::Missing { path: path.clone(), key: key.into() };
        // As nnU-Net, which looks for the older name first.
        let named = raw.modality.as_ref().map(|names| ("modality", names));
        let named = named.or(raw.channel_names.as_ref().map(|names| ("channel_names", names)));
        let (key, names) = named.ok_or_else(|| missing("channel_names"))?;
        let channels = channels(path, key, names)?;
        let file_ending = raw.file_ending.clone().ok_or_else(|| missing("file_ending"))?;
        if !preparation::endings().contains(&&file_ending.to_ascii_lowercase()[..]) {
            let (key, found) = ("file_ending".into(), format!("{file_ending:?}"));
            let expected = format!("images are read that end in {}", preparation::endings().join(", "));
            return Err(NnUnetError::Value { path: path.clone(), key, found, expected }.into());
        }
        let labels = raw.labels.as_ref().ok_or_else(|| missing("labels"))?;
        let order = raw.regions_class_order.as_ref();
        let order = order
            .filter(|order| !order.is_null())
            .map(|order| Entry::new(path, "regions_class_order", order));
        let entries = Entry::new(path, "labels", &labels.all);
        let OutputLabels { answers, outputs, foreground } = answers(&entries, &labels.names, order)?;
        Ok(ModelDataset { channels, file_ending, answers, outputs, foreground })
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

/// What outputs say, how they are called, and the values of labels above 0.
struct OutputLabels {
    answers: Answers,
    outputs: Vec<String>,
    foreground: Vec<u16>,
}

/// What labels, whose names are in the order of the file, say of outputs. With a label that is a list of several values, outputs are of regions: one for each
/// label but the background. Otherwise there is one for each value.
fn answers(
    labels: &Entry<'_>,
    names: &[String],
    order: Option<Entry<'_>>,
) -> Result<OutputLabels, NnUnetError> {
    if names.len() > MOST_FEATURES {
        return Err(labels.refuse(format!("at most {MOST_FEATURES} are possible")));
    }
    let background = labels.need("background")?;
    if background.value().as_f64() != Some(0.0) {
        return Err(background.refuse("the background must be 0"));
    }
    let ignored = labels.get("ignore")?;
    let (mut values, mut named, mut of_several) = (BTreeSet::new(), Vec::new(), false);
    for name in names.iter().filter(|name| *name != "ignore") {
        let label = labels.need(name)?;
        let own = match label.value().is_array() {
            true => label.list()?.iter().map(value_of).collect::<Result<Vec<u16>, _>>()?,
            false => vec![value_of(&label)?],
        };
        of_several |= own.len() > 1;
        values.extend(own.iter().copied());
        named.push((name, own));
    }
    if let Some(ignored) = ignored {
        let last = values.last().copied().map_or(0, u64::from);
        if ignored.value().as_u64() != Some(last + 1) {
            return Err(ignored.refuse(format!("it must be {}, the one after all others", last + 1)));
        }
    }
    let foreground: Vec<u16> = values.iter().copied().filter(|value| *value != 0).collect();
    if !of_several {
        let called = |value: &u16| {
            let same = named.iter().filter(|(_, own)| own.contains(value));
            same.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" or ")
        };
        let outputs = values.iter().map(called).collect();
        return Ok(OutputLabels { answers: Answers::Classes(values.len()), outputs, foreground });
    }
    let Some(order) = order else {
        let missing = |key: &str| NnUnetError::Missing { path: labels.path().into(), key: key.into() };
        return Err(missing("regions_class_order"));
    };
    let regions = named.iter().filter(|(_, own)| own.iter().any(|value| *value != 0));
    let outputs: Vec<String> = regions.map(|(name, own)| format!("{name} {own:?}")).collect();
    let order = order.list_of(outputs.len())?.iter().map(value_of).collect::<Result<_, _>>()?;
    Ok(OutputLabels { answers: Answers::Regions(order), outputs, foreground })
}

/// A value of a voxel, which nnU-Net writes in at most 16 bits.
fn value_of(entry: &Entry<'_>) -> Result<u16, NnUnetError> {
    let whole = entry.whole(0, usize::from(u16::MAX))?;
    u16::try_from(whole).map_err(|_| entry.refuse("it must fit 16 bits"))
}
