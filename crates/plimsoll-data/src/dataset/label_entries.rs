//! Labels as descriptions list them: names with one value, or with the values of a region, in the order in which they stand there.
//!
//! nnU-Net numbers the outputs of a network with regions in the order of `labels`, and `regions_class_order` has the value written
//! for each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The name of voxels that take part in nothing.
pub(crate) const IGNORE: &str = "ignore";
/// The name that the label 0 must have where there are regions.
const BACKGROUND: &str = "background";
/// The key of the values that are written for regions.
pub(crate) const ORDER: &str = "regions_class_order";
/// The most labels, and the most values of a region: more than a network can have outputs.
const MOST: usize = 4096;
/// The most characters of a value that an error shows.
const MOST_SHOWN: usize = 60;

/// Entries of a map in the order in which they stand in the file. As in Python, a name that comes again has the later value in the
/// earlier place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered<V>(pub Vec<(String, V)>);

impl<V> Ordered<V> {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }
}

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Ordered<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ordered<V>, D::Error> {
        struct InOrder<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for InOrder<V> {
            type Value = Ordered<V>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("labels by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<V>, A::Error> {
                let mut places = BTreeMap::new();
                let mut entries: Vec<(String, V)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, V>()? {
                    match places.get(&name).and_then(|place: &usize| entries.get_mut(*place)) {
                        Some(known) => known.1 = value,
                        None => {
                            places.insert(name.clone(), entries.len());
                            entries.push((name, value));
                        }
                    }
                }
                Ok(Ordered(entries))
            }
        }

        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

/// An invalid entry: its key, its value, and the required value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelFault {
    /// It is not there.
    Missing {
        /// The keys that lead to it.
        key: String,
    },
    /// It is something else.
    Value {
        /// The keys that lead to it.
        key: String,
        /// The value.
        found: String,
        /// The required value.
        expected: String,
    },
}

impl LabelFault {
    fn new(key: impl Into<String>, value: &Value, expected: impl Into<String>) -> LabelFault {
        let whole = value.to_string();
        let mut found: String = whole.chars().take(MOST_SHOWN).collect();
        if found.len() < whole.len() {
            found.push('…');
        }
        LabelFault::Value { key: key.into(), found, expected: expected.into() }
    }
}

/// A name with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelEntry {
    /// The name.
    pub name: String,
    /// The values that its voxels have in label maps.
    pub values: Vec<u64>,
}

impl LabelEntry {
    fn is_background(&self) -> bool {
        !self.values.is_empty() && self.values.iter().all(|value| *value == 0)
    }
}

/// Labels with one value or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelEntries {
    /// All entries except the label of ignored voxels, in the order of the file.
    entries: Vec<LabelEntry>,
    /// The value of voxels that are ignored.
    ignore: Option<u64>,
    /// The value written for each region, in their order; `None` if no label has several values.
    order: Option<Vec<u64>>,
}

impl LabelEntries {
    /// Returns `true` if a label has several values, so that labels are regions.
    pub fn are_regions(labels: &Ordered<Value>) -> bool {
        labels.0.iter().any(|(_, value)| value.as_array().is_some_and(|values| values.len() != 1))
    }

    /// Reads `labels` with `regions_class_order`, each value at most `largest`.
    ///
    /// # Errors
    /// If a value is none, the background is not 0, or there are regions without an order that has a value for each.
    pub fn read(
        labels: &Ordered<Value>,
        order: Option<&Value>,
        largest: u64,
    ) -> Result<LabelEntries, LabelFault> {
        let is_too_long = |count: usize| count > MOST;
        if is_too_long(labels.0.len()) {
            let (key, found) = ("labels".into(), format!("{} labels", labels.0.len()));
            return Err(LabelFault::Value { key, found, expected: format!("at most {MOST} are possible") });
        }
        let background = labels.get(BACKGROUND).filter(|value| !value.is_null());
        let background =
            background.ok_or_else(|| LabelFault::Missing { key: format!("labels.{BACKGROUND}") })?;
        if background.as_f64() != Some(0.0) {
            let key = format!("labels.{BACKGROUND}");
            return Err(LabelFault::new(key, background, "the background must be 0"));
        }
        let mut entries = Vec::new();
        let mut ignore = None;
        for (name, value) in &labels.0 {
            let key = format!("labels.{name}");
            if name == IGNORE {
                if !value.is_null() {
                    ignore = Some(whole(&key, value, largest)?);
                }
                continue;
            }
            let values = match value.as_array() {
                Some(list) if list.is_empty() || is_too_long(list.len()) => {
                    return Err(LabelFault::new(
                        key,
                        value,
                        format!("a region must have from 1 to {MOST} values"),
                    ));
                }
                Some(list) => {
                    let item = |(place, value)| whole(&format!("{key}[{place}]"), value, largest);
                    list.iter().enumerate().map(item).collect::<Result<_, _>>()?
                }
                None => vec![whole(&key, value, largest)?],
            };
            entries.push(LabelEntry { name: name.clone(), values });
        }
        let mut read = LabelEntries { entries, ignore, order: None };
        if LabelEntries::are_regions(labels) {
            let key = ORDER;
            let value = order.filter(|order| !order.is_null());
            let value = value.ok_or_else(|| LabelFault::Missing { key: key.into() })?;
            let count = read.regions().count();
            let list = value.as_array().filter(|list| list.len() == count);
            let list = list.ok_or_else(|| {
                LabelFault::new(
                    key,
                    value,
                    format!("it must be a list of {count} values, one for each region"),
                )
            })?;
            let item = |(place, value)| whole(&format!("{key}[{place}]"), value, largest);
            read.order = Some(list.iter().enumerate().map(item).collect::<Result<_, _>>()?);
        }
        Ok(read)
    }

    /// Creates entries of regions with the value written for each.
    pub(crate) fn from_regions(regions: Vec<LabelEntry>, order: Vec<u64>) -> LabelEntries {
        let background = LabelEntry { name: BACKGROUND.into(), values: vec![0] };
        let entries = [background].into_iter().chain(regions).collect();
        LabelEntries { entries, ignore: None, order: Some(order) }
    }

    /// Names with values, except the label of ignored voxels, in the order of the file.
    pub fn entries(&self) -> &[LabelEntry] {
        &self.entries
    }

    /// The value of voxels that are ignored.
    pub fn ignore(&self) -> Option<u64> {
        self.ignore
    }

    /// The value written for each of the [`regions`](LabelEntries::regions); `None` if labels have one value
    /// each.
    pub fn order(&self) -> Option<&[u64]> {
        self.order.as_deref()
    }

    /// All values except the value of ignored voxels.
    pub fn values(&self) -> BTreeSet<u64> {
        self.entries.iter().flat_map(|entry| entry.values.iter().copied()).collect()
    }

    /// The labels that are not background alone: each has an output where labels are regions.
    pub fn regions(&self) -> impl Iterator<Item = &LabelEntry> {
        self.entries.iter().filter(|entry| !entry.is_background())
    }
}

/// A whole number, which may be written as a fraction of nothing: `2.0`.
fn whole(key: &str, value: &Value, largest: u64) -> Result<u64, LabelFault> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0);
    // The cast saturates, which is beyond the bound.
    let number = number.map(|number| number as u64).filter(|number| *number <= largest);
    number
        .ok_or_else(|| LabelFault::new(key, value, format!("it must be a whole number from 0 to {largest}")))
}
