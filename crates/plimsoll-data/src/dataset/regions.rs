//! Regions: sets of labels that may overlap, each predicted for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dataset::label_entries::{IGNORE, LabelEntries, LabelEntry, LabelFault, Ordered};
use crate::dataset::{DatasetError, Labels, Region};

/// The table `[regions]` of `plimsoll.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionSettings {
    /// The names of all regions in the order in which they are decided: a later one's label is written over an earlier one's.
    #[serde(default)]
    pub order: Vec<String>,
    /// The value that is written for each, in this order [default: the value of the one label that no later region has].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Vec<u64>>,
    /// Regions by name, with the values of their voxels in label maps.
    #[serde(flatten)]
    pub regions: BTreeMap<String, RegionValues>,
}

/// One value, or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RegionValues {
    /// One.
    One(u64),
    /// Several.
    Several(Vec<u64>),
}

/// The name of the table in messages.
const TABLE: &str = "[regions]";

impl RegionSettings {
    fn read(&self) -> Result<LabelEntries, LabelFault> {
        let fault = |key: &str, found: String, expected: String| LabelFault::Value {
            key: key.into(),
            found,
            expected,
        };
        let names = self.regions.keys().cloned().collect::<Vec<_>>().join(", ");
        let are_all = self.order.iter().collect::<BTreeSet<_>>() == self.regions.keys().collect();
        if !are_all || self.order.len() != self.regions.len() || self.order.is_empty() {
            let found = format!("[{}]", self.order.join(", "));
            return Err(fault("order", found, format!("it must have each region once: {names}")));
        }
        let values = |name: &String| match &self.regions[name] {
            RegionValues::One(value) => vec![*value],
            RegionValues::Several(values) => values.clone(),
        };
        let entries: Vec<LabelEntry> =
            self.order.iter().map(|name| LabelEntry { name: name.clone(), values: values(name) }).collect();
        let written = match &self.written {
            Some(written) if written.len() != entries.len() => {
                let expected = format!("it must have a value for each of {} regions", entries.len());
                return Err(fault("written", format!("{written:?}"), expected));
            }
            Some(written) => written.clone(),
            None => {
                (0..entries.len()).map(|place| usual_value(&entries[place..])).collect::<Result<_, _>>()?
            }
        };
        Ok(LabelEntries::from_regions(entries, written))
    }

    /// The labels that regions alone describe: each value that one of them has.
    pub(crate) fn labels(&self) -> Result<Labels, DatasetError> {
        let path = Path::new(TABLE);
        let read = self.read().map_err(|fault| DatasetError::from_label(path, fault))?;
        Labels::from_entries(path, &read)
    }

    /// Known labels in these regions.
    pub(crate) fn apply_to(&self, labels: Labels) -> Result<Labels, DatasetError> {
        let path = Path::new(TABLE);
        let read = self.read().map_err(|fault| DatasetError::from_label(path, fault))?;
        labels.with_entries(path, &read)
    }
}

/// The value of the first of some regions that no other of them has, if it is one alone.
fn usual_value(regions: &[LabelEntry]) -> Result<u64, LabelFault> {
    let Some((first, later)) = regions.split_first() else {
        return Err(LabelFault::Missing { key: "order".into() });
    };
    let own = |value: &&u64| !later.iter().any(|other| other.values.contains(value));
    let own: BTreeSet<u64> = first.values.iter().filter(own).copied().collect();
    match own.iter().collect::<Vec<_>>()[..] {
        [one] => Ok(*one),
        _ => Err(LabelFault::Value {
            key: first.name.clone(),
            found: format!("{:?}", first.values),
            expected: format!(
                "{} of its values belong to no region after it in the order, so the value to write must be set: written = [a value for \
                 each region]",
                own.len()
            ),
        }),
    }
}

impl Labels {
    /// Labels that include regions.
    ///
    /// # Errors
    /// If a region is empty, or has the background or the ignored label among its values; if its value in the order is no label; or if
    /// there are too many labels.
    pub(crate) fn from_entries(path: &Path, read: &LabelEntries) -> Result<Labels, DatasetError> {
        let own = |value: u64| {
            let mut alone = read.regions().filter(|entry| entry.values == [value]);
            alone.next().map_or_else(|| format!("label {value}"), |entry| entry.name.clone())
        };
        let mut values = BTreeMap::new();
        for value in read.values() {
            let name = if value == 0 { "background".to_string() } else { own(value) };
            // A region may be called like this.
            let name = if values.contains_key(&name) { format!("label {value}") } else { name };
            values.insert(name, value);
        }
        if let Some(ignore) = read.ignore() {
            values.insert(IGNORE.into(), ignore);
        }
        Labels::from_values(path, &values)?.with_entries(path, read)
    }

    fn with_entries(mut self, path: &Path, read: &LabelEntries) -> Result<Labels, DatasetError> {
        let Some(order) = read.order() else { return Ok(self) };
        let refuse = |key: String, found: String, expected: String| {
            DatasetError::from_label(path, LabelFault::Value { key, found, expected })
        };
        let count = read.regions().count();
        if count > usize::from(u8::MAX) {
            return Err(refuse("regions".into(), count.to_string(), "at most 255 are possible".into()));
        }
        let number = |key: &str, value: u64| {
            let mut known = (0..=u8::MAX).take(self.classes());
            match known.find(|label| u64::from(self.value_in_files(*label)) == value) {
                Some(0) => Err(refuse(key.into(), "0".into(), "that is the value of the background".into())),
                Some(number) => Ok(number),
                None => {
                    let all = (0..=u8::MAX).take(self.classes()).map(|label| self.value_in_files(label));
                    let all = all.map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
                    Err(refuse(key.into(), value.to_string(), format!("labels have the values {all}")))
                }
            }
        };
        let mut regions: Vec<Region> = Vec::new();
        for (LabelEntry { name, values }, written) in read.regions().zip(order) {
            if values.is_empty() {
                return Err(refuse(name.clone(), "[]".into(), "a region needs at least one value".into()));
            }
            let labels =
                values.iter().map(|value| number(name, *value)).collect::<Result<BTreeSet<u8>, _>>()?;
            let written = number(&format!("what is written for {name}"), *written)?;
            regions.push(Region { name: name.clone(), labels: labels.into_iter().collect(), written });
        }
        if regions.iter().all(|region| region.labels.len() == 1) {
            let found = "of one label each".to_string();
            let expected = "these are classes, which do not overlap: leave the regions out".to_string();
            return Err(refuse("all regions".into(), found, expected));
        }
        let is_left = |label: &u8| *label != 0 && !regions.iter().any(|region| region.labels.contains(label));
        if let Some(left) = (0..=u8::MAX).take(self.classes()).find(is_left) {
            let found = format!("without the value {}", self.value_in_files(left));
            return Err(refuse(
                "regions".into(),
                found,
                "each label must belong to at least one region".into(),
            ));
        }
        self.regions = regions;
        Ok(self)
    }

    /// The regions that are predicted, in the order in which they are decided; empty where each label is predicted for itself.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The number of outputs of a network: one for each region, or one for each label, the background among
    /// them.
    pub fn outputs(&self) -> usize {
        if self.regions.is_empty() { self.classes() } else { self.regions.len() }
    }

    /// The names of the scored classes, by number from 1 on: regions, or labels. Number 0 is the background.
    pub fn scored_names(&self) -> Vec<String> {
        match self.regions.is_empty() {
            true => self.names().to_vec(),
            false => {
                let background = self.names().first().cloned();
                background.into_iter().chain(self.regions.iter().map(|region| region.name.clone())).collect()
            }
        }
    }

    /// The labels of each region that is scored, by number from 1 on; empty where each label is scored for itself.
    pub fn scored_regions(&self) -> Vec<Vec<u8>> {
        self.regions.iter().map(|region| region.labels.clone()).collect()
    }

    /// `labels` and `regions_class_order` of a `dataset.json` with these labels, by their values in files or by their numbers.
    pub fn described(&self, in_files: bool) -> (Ordered<Value>, Option<Value>) {
        let value = |label: u8| if in_files { self.value_in_files(label) } else { label };
        let ignored = self.ignore().map(|label| (IGNORE.to_string(), value(label).into()));
        if self.regions.is_empty() {
            let names = self.names().iter().zip(0..=u8::MAX);
            let labels = names.map(|(name, label)| (name.clone(), value(label).into()));
            return (Ordered(labels.chain(ignored).collect()), None);
        }
        let of = |region: &Region| match region.labels[..] {
            [one] => (region.name.clone(), value(one).into()),
            _ => (region.name.clone(), region.labels.iter().map(|label| value(*label)).collect()),
        };
        let background = ("background".to_string(), value(0).into());
        let labels = [background].into_iter().chain(self.regions.iter().map(of)).chain(ignored).collect();
        (Ordered(labels), Some(self.regions.iter().map(|region| value(region.written)).collect()))
    }

    /// The fault of the regions of a file, if they have one.
    pub(crate) fn regions_fault(&self) -> Option<String> {
        let known = |label: &u8| *label != 0 && usize::from(*label) < self.classes();
        let wrong = |region: &&Region| {
            region.labels.is_empty() || !region.labels.iter().chain([&region.written]).all(known)
        };
        let region = self.regions.iter().find(wrong)?;
        Some(format!("the region {} has labels that do not exist", region.name))
    }
}
