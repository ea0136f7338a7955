//! The values that label maps have, of a data set that does not say what its classes are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{VolumeError, VolumeFile, VoxelBox, decode_labels};
use serde::{Deserialize, Serialize};

use crate::dataset::{DatasetError, FoundData, Labels};
use crate::inspect::InspectError;
use crate::inspect::stamp::{FileStamp, stamp};
use crate::inspect::threads::on_threads;

/// The most values that are written out in a message.
const LISTED: usize = 12;

/// The values that label maps of a data set have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelCensus {
    /// By value the number of cases and of voxels.
    pub values: BTreeMap<u8, (u64, u64)>,
    /// The state of the files when they were read.
    files: Vec<FileStamp>,
}

impl LabelCensus {
    /// Reads all label maps of a data set, of several cases at a time. `observe` is called with the number of finished cases.
    ///
    /// # Errors
    /// If a label map cannot be read, has values that are no labels, or the budget has no room for a plane.
    pub fn take(
        found: &FoundData,
        threads: usize,
        budget: &Budget,
        observe: &(dyn Fn(usize) + Sync),
    ) -> Result<LabelCensus, InspectError> {
        let files = stamps(found);
        let maps: Vec<&Path> = found.label_maps().map(|(_, path)| path).collect();
        let (next, stop, done) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
        let values = Mutex::new(BTreeMap::<u8, (u64, u64)>::new());
        let work = || -> Result<(), InspectError> {
            while !stop.load(Ordering::Relaxed) {
                let Some(path) = maps.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let counts = counts(path, budget).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
                for (value, voxels) in (0..=u8::MAX).zip(counts).filter(|(_, voxels)| *voxels > 0) {
                    let (cases, all) = values.entry(value).or_default();
                    *cases += 1;
                    *all += voxels;
                }
                observe(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
            Ok(())
        };
        on_threads("label values", threads.clamp(1, maps.len().max(1)), &stop, work)?;
        Ok(LabelCensus { values: values.into_inner().unwrap_or_else(PoisonError::into_inner), files })
    }

    /// Whether no label map has changed since.
    pub fn is_current(&self, found: &FoundData) -> bool {
        self.files == stamps(found)
    }

    /// A name for each value: as the data set says, or else `background` of 0, `foreground` of a single other one, and `label 2` and so on.
    pub fn classes(&self, found: &FoundData) -> Vec<(String, u8)> {
        let others = self.values.keys().filter(|value| **value != 0).count();
        let name = |value: u8| match found.value_names.get(&value) {
            Some(name) => name.clone(),
            None if value == 0 => "background".into(),
            None if others == 1 => "foreground".into(),
            None => format!("label {value}"),
        };
        let values: BTreeSet<u8> = self.values.keys().copied().chain([0]).collect();
        let mut taken = BTreeSet::new();
        let own = |value: u8| {
            let name = name(value);
            // Tables may give two values one name.
            let name = if taken.contains(&name) { format!("{name} {value}") } else { name };
            taken.insert(name.clone());
            (name, value)
        };
        values.into_iter().map(own).collect()
    }

    /// The classes, if values are numbered from 0 without gaps.
    ///
    /// # Errors
    /// If they are not: what other values stand for must be said.
    pub fn labels(&self, found: &FoundData) -> Result<Labels, DatasetError> {
        let classes = self.classes(found);
        let values = classes.iter().map(|(name, value)| (name.clone(), u64::from(*value))).collect();
        let labels = Labels::of_values(&found.folder, &values)?;
        if labels.other_values().is_empty() && classes.len() > 1 {
            return Ok(labels);
        }
        let listed: Vec<String> = self.values.keys().take(LISTED).map(u8::to_string).collect();
        let more = self.values.len().saturating_sub(LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let said: Vec<String> = classes
            .iter()
            .filter(|(_, value)| *value != 0)
            .take(LISTED)
            .map(|(name, value)| format!("{name:?} = {value}"))
            .collect();
        Err(DatasetError::Values {
            folder: found.folder.clone(),
            values: format!("{}{more}", listed.join(", ")),
            said: if said.is_empty() { "\"vessel\" = 1".into() } else { said.join(", ") },
        })
    }
}

fn stamps(found: &FoundData) -> Vec<FileStamp> {
    found.label_maps().map(|(_, path)| stamp(&found.folder, path)).collect()
}

/// The number of voxels of each value.
fn counts(path: &Path, budget: &Budget) -> Result<[u64; 256], InspectError> {
    let unreadable =
        |source: VolumeError| InspectError::Labels { path: path.into(), source: Box::new(source) };
    let mut file = VolumeFile::open_labels(path).map_err(unreadable)?;
    let [_, height, width] = file.geometry().shape();
    let (element_type, scaling) = (file.element_type(), file.scaling());
    let stored = Mapped::<u8>::bytes(height * width * element_type.size())?;
    let needed = Mapped::<u8>::bytes(height * width)? + file.decoding_bytes() + VolumeFile::OPEN_BYTES;
    // Each chunk is decoded once if there is room for the planes that it is part of.
    let layered = budget.reserve_in_turn("label values", needed + file.layer_bytes().max(stored));
    let memory = layered.or_else(|_| budget.reserve_in_turn("label values", needed + stored))?.into_budget();
    file.decode(&memory).map_err(unreadable)?;
    let mut plane = Mapped::<u8>::zeroed(&memory, "a plane of labels", height * width)?;
    let mut counts = [0; 256];
    let mut not_labels = None;
    let read = file.for_each_plane::<VolumeError>(0, &memory, |d, stored| {
        match decode_labels(element_type, scaling, stored, &mut plane) {
            Ok(()) => plane.iter().for_each(|value| counts[usize::from(*value)] += 1),
            Err(_) => {
                not_labels.get_or_insert(d);
            }
        }
        Ok(())
    });
    read.map_err(unreadable)?;
    if let Some(d) = not_labels {
        // Says which voxel it is.
        let region = VoxelBox { start: [d, 0, 0], shape: [1, height, width] };
        file.region_labels(0, region, &mut plane).map_err(unreadable)?;
    }
    Ok(counts)
}
