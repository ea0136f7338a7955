//! The values that label maps have, of a data set that does not say what its classes are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_disk::ByteCount;
use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_volume::{Content, SegmentCoding, Segments, VolumeError, VolumeFile, VoxelBox, decode_labels};
use serde::{Deserialize, Serialize};

use crate::dataset::{DatasetError, FoundData, Labels, folded};
use crate::inspect::InspectError;
use crate::inspect::stamp::{FileStamp, stamp};
use crate::inspect::threads::on_threads;

/// The most heap that a byte of a kept census takes when it is loaded: a stamp is of a path of at least as many bytes.
const HEAP_PER_BYTE: u64 = 4;
/// The most values that are written out in a message.
const LISTED: usize = 12;

/// The values that label maps of a data set have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelCensus {
    /// By value the number of cases and of voxels, of values that their files give no names.
    pub values: BTreeMap<u8, (u64, u64)>,
    /// The classes that files name.
    #[serde(default)]
    names: BTreeMap<String, NamedClass>,
    /// Names of segments of one file that overlap.
    #[serde(default)]
    overlap: Option<(PathBuf, Vec<String>)>,
    /// The state of the files when they were read.
    files: Vec<FileStamp>,
    /// The least budget in which they can be read again.
    least: Bytes,
}

/// A class that label maps have by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NamedClass {
    /// The number of cases and of voxels.
    count: (u64, u64),
    /// The values that files store for it.
    values: BTreeSet<u8>,
    /// `true` if a file has the name in a layer, where values have no meaning.
    in_layers: bool,
}

/// The values and names of one label map.
struct Counts<'a> {
    path: &'a Path,
    segments: Option<&'a Segments>,
    voxels: [u64; 256],
    /// The least budget in which it can be read.
    least: Bytes,
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
        let maps: Vec<(&Path, Option<&Segments>)> = found
            .cases
            .iter()
            .filter_map(|case| Some((case.label.as_deref()?, case.reading.segments.as_deref())))
            .collect();
        let (next, stop, done) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
        let empty = LabelCensus {
            values: BTreeMap::new(),
            names: BTreeMap::new(),
            overlap: None,
            files: Vec::new(),
            least: Bytes::ZERO,
        };
        let census = Mutex::new(empty);
        let work = || -> Result<(), InspectError> {
            while !stop.load(Ordering::Relaxed) {
                let Some((path, segments)) = maps.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let (voxels, least) =
                    counts(path, budget).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                let counts = Counts { path, segments: *segments, voxels, least };
                census.lock().unwrap_or_else(PoisonError::into_inner).add(&counts);
                observe(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
            Ok(())
        };
        on_threads("label values", threads.clamp(1, maps.len().max(1)), &stop, work)?;
        Ok(LabelCensus { files, ..census.into_inner().unwrap_or_else(PoisonError::into_inner) })
    }

    /// The least budget in which the label maps can be read again and this census can be loaded.
    ///
    /// # Errors
    /// If it cannot be written as it is kept.
    pub fn least_bytes(&self) -> io::Result<Bytes> {
        let mut length = ByteCount::default();
        serde_json::to_writer(&mut length, self)?;
        Ok(self.least.max(LabelCensus::loading_bytes(length.0)))
    }

    /// The memory that loading takes from a file of this length.
    pub fn loading_bytes(length: u64) -> Bytes {
        Bytes(length.saturating_mul(HEAP_PER_BYTE))
    }

    fn add(&mut self, counts: &Counts<'_>) {
        self.least = self.least.max(counts.least);
        for (code, voxels) in (0..=u8::MAX).zip(counts.voxels).filter(|(_, voxels)| *voxels > 0) {
            // Whatever a file calls the background.
            let segments = counts.segments.filter(|_| code != 0);
            let names = segments.map_or_else(Vec::new, |segments| segments.names_of(code));
            let count = match names[..] {
                [] => self.values.entry(code).or_default(),
                [name] => {
                    let class = self.names.entry(name.to_string()).or_default();
                    match segments.map(|segments| segments.coding) {
                        Some(SegmentCoding::Values) => {
                            class.values.insert(code);
                        }
                        _ => class.in_layers = true,
                    }
                    &mut class.count
                }
                _ => {
                    let names = names.into_iter().map(str::to_string).collect();
                    let found = (counts.path.to_path_buf(), names);
                    // The same one, whichever thread comes first.
                    self.overlap = Some(self.overlap.take().map_or(found.clone(), |first| first.min(found)));
                    continue;
                }
            };
            *count = (count.0 + 1, count.1 + voxels);
        }
    }

    /// Returns `true` if no label map has changed since.
    pub fn is_current(&self, found: &FoundData) -> bool {
        self.files == stamps(found)
    }

    /// Returns `true` if each name has one value and each value one name, in all files.
    fn agrees(&self) -> bool {
        let named = self.names.values().flat_map(|class| &class.values);
        let values: BTreeSet<&u8> =
            named.clone().chain(self.values.keys().filter(|value| **value != 0)).collect();
        let unnamed = self.values.keys().filter(|value| **value != 0).count();
        self.names.values().all(|class| class.values.len() == 1 && !class.in_layers)
            && named.count() + unnamed == values.len()
    }

    /// A warning, where files give the same class different values, so that classes are numbered in the order of their names.
    pub fn warning(&self) -> Option<String> {
        let several = self.names.iter().find(|(_, class)| class.values.len() > 1);
        let (name, class) = several.filter(|_| !self.agrees())?;
        let values = class.values.iter().map(u8::to_string).collect::<Vec<_>>().join(" and ");
        Some(format!(
            "label maps number their classes differently, {name:?} is {values}: they are read by the names in the files, and classes are \
             numbered in the order of these"
        ))
    }

    /// A name for each value: as the data set says, or else `background` of 0, `foreground` of a single other one, and `label 2` and so on.
    pub fn classes(&self) -> Vec<(String, u8)> {
        let names = self.names.keys().filter(|name| !is_background(name));
        if !self.names.is_empty() && !self.agrees() {
            let background = ("background".to_string(), 0);
            return std::iter::once(background).chain(names.cloned().zip(1..=u8::MAX)).collect();
        }
        let named: BTreeMap<u8, &String> = self
            .names
            .iter()
            .flat_map(|(name, class)| class.values.iter().map(move |value| (*value, name)))
            .collect();
        let others = self.values.keys().filter(|value| **value != 0).count();
        let name = |value: u8| match named.get(&value) {
            Some(name) => (*name).clone(),
            None if value == 0 => "background".into(),
            None if others == 1 => "foreground".into(),
            None => format!("label {value}"),
        };
        let values: BTreeSet<u8> = self.values.keys().chain(named.keys()).copied().chain([0]).collect();
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
    /// If they are not: the user must state the classes of other values.
    pub fn labels(&self, found: &FoundData) -> Result<Labels, DatasetError> {
        let classes = self.classes();
        if let Some((path, names)) = &self.overlap {
            return Err(DatasetError::SegmentsOverlap { path: path.clone(), names: names.clone() });
        }
        let unnamed = self.values.keys().copied().find(|value| *value != 0);
        if let (Some(value), Some(name), false) = (unnamed, self.names.keys().next(), self.agrees()) {
            let (folder, name) = (found.folder.clone(), name.clone());
            let names = self.names.keys().filter(|name| !is_background(name));
            let proposal: Vec<String> =
                names.zip(1u8..).map(|(name, value)| format!("{name:?} = {value}")).collect();
            return Err(DatasetError::SegmentValues { folder, name, value, proposal: proposal.join(", ") });
        }
        let values = classes.iter().map(|(name, value)| (name.clone(), u64::from(*value))).collect();
        let labels = Labels::from_values(&found.folder, &values)?;
        // Names say what classes are, whatever their values.
        let are_named = unnamed.is_none() && !self.names.is_empty();
        if (labels.other_values().is_empty() || are_named) && classes.len() > 1 {
            return Ok(labels);
        }
        let listed: Vec<String> = self.values.keys().take(LISTED).map(u8::to_string).collect();
        let more = self.values.len().saturating_sub(LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let proposal: Vec<String> = classes
            .iter()
            .filter(|(_, value)| *value != 0)
            .take(LISTED)
            .map(|(name, value)| format!("{name:?} = {value}"))
            .collect();
        Err(DatasetError::Values {
            folder: found.folder.clone(),
            values: format!("{}{more}", listed.join(", ")),
            proposal: if proposal.is_empty() { "\"vessel\" = 1".into() } else { proposal.join(", ") },
        })
    }
}

/// Returns `true` if a file gives the background this name.
fn is_background(name: &str) -> bool {
    folded(name) == "background"
}

fn stamps(found: &FoundData) -> Vec<FileStamp> {
    found.label_maps().map(|(_, path)| stamp(&found.folder, path)).collect()
}

/// The number of voxels of each value, and the least budget in which they can be counted.
fn counts(path: &Path, budget: &Budget) -> Result<([u64; 256], Bytes), InspectError> {
    let unreadable =
        |source: VolumeError| InspectError::Labels { path: path.into(), source: Box::new(source) };
    let mut file = VolumeFile::open_as(path, Content::Segments { on: None }).map_err(unreadable)?;
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
    Ok((counts, needed + stored))
}
