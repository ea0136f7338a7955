//! The classes of a data set.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dataset::DatasetError;

/// The largest number of classes, background included: labels are bytes, and one value must be left for "ignore".
const MOST_CLASSES: usize = 255;

/// The classes of a data set: the value of a voxel is the index of its class, 0 is the background. The value after the
/// last class can mark voxels to be ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Labels {
    names: Vec<String>,
    ignore: Option<u8>,
}

/// Classes as a file has them, which need not be possible.
#[derive(Deserialize)]
struct Stored {
    names: Vec<String>,
    ignore: Option<u8>,
}

impl TryFrom<Stored> for Labels {
    type Error = String;

    fn try_from(Stored { names, ignore }: Stored) -> Result<Labels, String> {
        let classes = names.len();
        if !(1..=MOST_CLASSES).contains(&classes) {
            return Err(format!("there are {classes} classes; there must be from 1 to {MOST_CLASSES}"));
        }
        match ignore {
            Some(value) if usize::from(value) != classes => Err(format!(
                "the value {value} is ignored, but must be {classes}, the one after the last class"
            )),
            _ => Ok(Labels { names, ignore }),
        }
    }
}

impl Labels {
    /// The names of the classes, the background's first; the index is the value in a label map.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of classes that a network predicts: background included, "ignore" excluded.
    pub fn classes(&self) -> usize {
        self.names.len()
    }

    /// The value of voxels that take part in neither loss nor statistics.
    pub fn ignore(&self) -> Option<u8> {
        self.ignore
    }

    /// Whether a voxel of a label map may have this value.
    pub fn contains(&self, value: u8) -> bool {
        usize::from(value) < self.names.len() || self.ignore == Some(value)
    }

    /// Whether this value is a class other than the background.
    pub fn is_foreground(&self, value: u8) -> bool {
        value != 0 && usize::from(value) < self.names.len()
    }

    /// Reads `labels` of a `dataset.json`, in either direction: `{"background": 0, "vessel": 1}` as nnU-Net writes it,
    /// `{"0": "background", "1": "vessel"}` as the Decathlon does.
    pub(crate) fn from_json(path: &Path, labels: &Map<String, Value>) -> Result<Labels, DatasetError> {
        let mut pairs = Vec::with_capacity(labels.len());
        for (key, value) in labels {
            pairs.push(pair(path, key, value)?);
        }
        pairs.sort();
        let path = || path.to_path_buf();
        let ignore = pairs.iter().position(|(_, name)| name == "ignore").map(|at| pairs.remove(at).0);
        if pairs.first().is_none_or(|(value, _)| *value != 0) {
            return Err(DatasetError::NoBackground { path: path() });
        }
        if pairs.len() > MOST_CLASSES {
            return Err(DatasetError::TooManyClasses {
                path: path(),
                found: pairs.len(),
                most: MOST_CLASSES,
            });
        }
        for (expected, (found, name)) in pairs.iter().enumerate() {
            if *found != expected as u64 {
                return Err(DatasetError::NotConsecutive {
                    path: path(),
                    name: name.clone(),
                    found: *found,
                    expected: expected as u64,
                });
            }
        }
        let last = pairs.len();
        if let Some(found) = ignore
            && found != last as u64
        {
            return Err(DatasetError::IgnoreNotLast { path: path(), found, expected: last as u64 });
        }
        Ok(Labels {
            names: pairs.into_iter().map(|(_, name)| name).collect(),
            // At most 255, as was checked.
            ignore: ignore.map(|value| value as u8),
        })
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
            _ => Err(DatasetError::Regions { path: path.into(), name: key.into() }),
        },
        Value::String(name) => match key.trim().parse() {
            Ok(number) => Ok((number, name.clone())),
            // The number may be quoted.
            Err(_) => Ok((name.trim().parse().map_err(|_| unreadable())?, key.into())),
        },
        _ => Err(unreadable()),
    }
}
