//! The classes of a data set.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_volume::LabelValues;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dataset::label_entries::{IGNORE, LabelEntries, Ordered};
use crate::dataset::{DatasetError, SegmentRule};

/// A set of labels that a network tells from all others, whatever other regions they are in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// The numbers of its labels, ascending; none is the background's.
    pub labels: Vec<u8>,
    /// The number of the label that is written where the region is predicted, over what regions before it have written.
    pub written: u8,
}

/// The largest number of classes, background included: labels are bytes, and one value must be left for "ignore".
const MOST_CLASSES: usize = 255;

/// The classes of a data set, numbered in the order of their values in label maps: 0 is the background. The number after the last
/// class can mark voxels to be ignored. Values in files may be others, like 0 and 255, each of which denotes a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Labels {
    names: Vec<String>,
    ignore: Option<u8>,
    /// The value in files of each class, and then of "ignore"; empty if it is the number of the class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<u8>,
    /// Sets of classes that are predicted for themselves; empty where each class is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) regions: Vec<Region>,
    /// The classes of names in label maps, if they differ from the names of the classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) segments: Option<SegmentRule>,
}

/// Classes as a file has them, which need not be possible.
#[derive(Deserialize)]
struct Stored {
    names: Vec<String>,
    ignore: Option<u8>,
    #[serde(default)]
    values: Vec<u8>,
    #[serde(default)]
    regions: Vec<Region>,
    #[serde(default)]
    segments: Option<SegmentRule>,
}

impl TryFrom<Stored> for Labels {
    type Error = String;

    fn try_from(Stored { names, ignore, values, regions, segments }: Stored) -> Result<Labels, String> {
        let classes = names.len();
        if !(1..=MOST_CLASSES).contains(&classes) {
            return Err(format!("there are {classes} classes; there must be from 1 to {MOST_CLASSES}"));
        }
        if let Some(value) = ignore.filter(|value| usize::from(*value) != classes) {
            return Err(format!(
                "the ignored value is {value}, but must be {classes}, the one after the last class"
            ));
        }
        let count = classes + usize::from(ignore.is_some());
        if !values.is_empty() && values.len() != count {
            return Err(format!("there are {} values in files for {count} labels", values.len()));
        }
        let labels = Labels { names, ignore, values, regions, segments };
        match labels.regions_fault() {
            Some(fault) => Err(fault),
            None => Ok(labels),
        }
    }
}

impl Labels {
    /// The names of the classes, the background's first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of classes that a network predicts: background included, "ignore" excluded.
    pub fn classes(&self) -> usize {
        self.names.len()
    }

    /// The number of voxels that take part in neither loss nor statistics.
    pub fn ignore(&self) -> Option<u8> {
        self.ignore
    }

    /// Two classes, if there are such, whose names differ in the side alone, like `kidney_left` and `kidney_right`, or `L-femur` and
    /// `R-femur`. A network that is trained on mirrored patches cannot tell them apart.
    pub fn sides(&self) -> Option<(&str, &str)> {
        const SIDES: [(&str, &str); 3] = [("left", "right"), ("l", "r"), ("lt", "rt")];
        let words = |name: &str| -> Vec<String> {
            let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            words.map(str::to_lowercase).collect()
        };
        for name in &self.names {
            for (left, right) in SIDES {
                let own = words(name);
                let opposite: Vec<&str> =
                    own.iter().map(|word| if word == left { right } else { &word[..] }).collect();
                let other = self.names.iter().find(|other| *other != name && words(other) == opposite);
                if let Some(other) = other.filter(|_| own != opposite) {
                    return Some((name, other));
                }
            }
        }
        None
    }

    /// Returns `true` if a voxel may have this label.
    pub fn contains(&self, label: u8) -> bool {
        usize::from(label) < self.names.len() || self.ignore == Some(label)
    }

    /// Returns `true` if this is the number of a class other than the background.
    pub fn is_foreground(&self, label: u8) -> bool {
        label != 0 && usize::from(label) < self.names.len()
    }

    /// The name of each value in files that is not the number of its class.
    pub fn other_values(&self) -> Vec<(&str, u8)> {
        let names = self.names.iter().map(String::as_str).chain([IGNORE]);
        let numbered = names.zip(self.values.iter().copied()).zip(0..);
        numbered.filter(|((_, value), number)| value != number).map(|(named, _)| named).collect()
    }

    /// The name of every label with its value in files.
    pub fn in_files(&self) -> Vec<(String, u8)> {
        let names = self.names.iter().map(String::as_str).chain(self.ignore.map(|_| IGNORE));
        names.zip(0..=u8::MAX).map(|(name, label)| (name.to_string(), self.value_in_files(label))).collect()
    }

    /// The value in files of a class, or of "ignore" by its number.
    pub fn value_in_files(&self, label: u8) -> u8 {
        self.values.get(usize::from(label)).copied().unwrap_or(label)
    }

    /// The class of each value in files; `None` if values are the numbers of classes.
    pub fn file_values(&self) -> Option<LabelValues> {
        (!self.values.is_empty()).then(|| LabelValues::new(self.values.iter().copied().zip(0..=u8::MAX)))
    }

    /// Classes by name with their values in files, and `ignore` where there is such a value.
    ///
    /// # Errors
    /// If two have the same value, none has 0, or a value is no byte. `path` is where they are from.
    pub fn from_values(path: &Path, values: &BTreeMap<String, u64>) -> Result<Labels, DatasetError> {
        let path = || path.to_path_buf();
        let mut pairs: Vec<(u64, &String)> = values.iter().map(|(name, value)| (*value, name)).collect();
        pairs.sort();
        for pair in pairs.windows(2) {
            if let [(value, name), (same, other)] = pair
                && value == same
            {
                let (name, other) = (name.to_string(), other.to_string());
                return Err(DatasetError::SameValue { path: path(), name, other, value: *value });
            }
        }
        if let Some((found, name)) = pairs.iter().find(|(value, _)| *value > u64::from(u8::MAX)) {
            return Err(DatasetError::LabelValue { path: path(), name: name.to_string(), found: *found });
        }
        let ignored = pairs.iter().position(|(_, name)| *name == IGNORE).map(|at| pairs.remove(at).0);
        if pairs.first().is_none_or(|(value, _)| *value != 0) {
            return Err(DatasetError::NoBackground { path: path() });
        }
        let found = pairs.len();
        if found > MOST_CLASSES {
            return Err(DatasetError::TooManyClasses { path: path(), found, most: MOST_CLASSES });
        }
        // All of them fit a byte, as was checked.
        let values: Vec<u8> =
            pairs.iter().map(|(value, _)| *value).chain(ignored).map(|value| value as u8).collect();
        let are_numbers = values.iter().zip(0..).all(|(value, number)| *value == number);
        Ok(Labels {
            names: pairs.iter().map(|(_, name)| name.to_string()).collect(),
            ignore: ignored.map(|_| found as u8),
            values: if are_numbers { Vec::new() } else { values },
            regions: Vec::new(),
            segments: None,
        })
    }

    /// Reads `labels` of a `dataset.json`, in either direction: `{"background": 0, "vessel": 1}` as nnU-Net writes it,
    /// `{"0": "background", "1": "vessel"}` as the Decathlon does.
    ///
    /// Reads labels from JSON. Labels that are lists of several values are regions, and `order` has the value
    /// written for each.
    pub(crate) fn from_json(
        path: &Path,
        labels: &Ordered<Value>,
        order: Option<&Value>,
    ) -> Result<Labels, DatasetError> {
        if LabelEntries::are_regions(labels) {
            let read = LabelEntries::read(labels, order, u8::MAX.into());
            return Labels::from_entries(path, &read.map_err(|fault| DatasetError::from_label(path, fault))?);
        }
        let mut values = BTreeMap::new();
        for (key, value) in &labels.0 {
            let (value, name) = pair(path, key, value)?;
            if let Some(other) = values.insert(name.clone(), value) {
                return Err(DatasetError::SameName { path: path.into(), name, values: [other, value] });
            }
        }
        Labels::from_values(path, &values)
    }
}

/// One entry as (value, name).
fn pair(path: &Path, key: &str, value: &Value) -> Result<(u64, String), DatasetError> {
    let unreadable =
        || DatasetError::LabelForm { path: path.into(), key: key.into(), value: value.to_string() };
    match value {
        Value::Number(number) => Ok((number.as_u64().ok_or_else(unreadable)?, key.into())),
        Value::Array(values) => match values.as_slice() {
            // A list of a single value is that class.
            [Value::Number(number)] => Ok((number.as_u64().ok_or_else(unreadable)?, key.into())),
            // Lists of others are regions, which are read elsewhere.
            _ => Err(unreadable()),
        },
        Value::String(name) => match key.trim().parse() {
            Ok(number) => Ok((number, name.clone())),
            // The number may be quoted.
            Err(_) => Ok((name.trim().parse().map_err(|_| unreadable())?, key.into())),
        },
        _ => Err(unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_differ_in_the_side_alone_are_found_by_their_names() {
        let sides = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_string()).collect();
            let labels = Labels::try_from(Stored {
                names,
                ignore: None,
                values: Vec::new(),
                regions: Vec::new(),
                segments: None,
            })
            .unwrap();
            labels.sides().map(|(one, other)| (one.to_string(), other.to_string()))
        };
        let pair = |one: &str, other: &str| Some((one.to_string(), other.to_string()));
        assert_eq!(
            sides(&["background", "kidney_right", "kidney_left"]),
            pair("kidney_left", "kidney_right")
        );
        assert_eq!(sides(&["background", "Femur L", "Femur R"]), pair("Femur L", "Femur R"));
        assert_eq!(sides(&["background", "left atrium", "left ventricle"]), None);
        assert_eq!(sides(&["background", "liver", "tumour"]), None);
    }
}
