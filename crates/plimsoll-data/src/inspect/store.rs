//! Saving an inspection, so that a data set is read again only if it has changed.
//!
//! `dataset_fingerprint.json` has nnU-Net's entries, the other facts about each case and, under `inspection`, the
//! stamps of the files when they were read. `foreground_index.bin` beside it has the positions of all cases as
//! little-endian 32-bit integers, and `nonzero_masks.bin` the masks of cases that are normalised inside of them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use plimsoll_disk::{File, atomic};
use plimsoll_memory::{Budget, Bytes, Fnv1a, MapError};
use serde::{Deserialize, Serialize};

use crate::Labels;
use crate::dataset::{Channel, Dataset, LengthUnit};
use crate::fingerprint::{CaseFingerprint, Fingerprint};
use crate::inspect::foreground::unit;
use crate::inspect::stamp::{FileStamp, stamps};
use crate::inspect::{ForegroundIndex, InspectConfig, InspectError, Inspection, MaskRuns, Problem, masks};
use crate::statistics::IntensityProperties;

const FINGERPRINT: &str = "dataset_fingerprint.json";
const INDEX: &str = "foreground_index.bin";
const MASKS: &str = "nonzero_masks.bin";

/// The version of the entry `inspection`. Raise it when the samples or the statistics change.
const VERSION: u32 = 6;

/// The largest fingerprint that is read: that of a hundred thousand cases fits.
const LARGEST: u64 = 256 << 20;

/// The most heap that a byte of a fingerprint takes when it is read: `[],` stands for a list of 24 bytes, and lists that grow
/// have up to twice their length, and the old half besides.
const HEAP_PER_BYTE: u64 = 24;

/// The entry `inspection`: what must be unchanged for the fingerprint to be current.
#[derive(Serialize, Deserialize)]
struct InspectionRecord {
    version: u32,
    seed: u64,
    channels: Vec<Channel>,
    labels: Labels,
    /// The unit that headers were taken to be in, where the user said so.
    unit: Option<LengthUnit>,
    /// A checksum of the classes that values of each label map have.
    label_values: u64,
    files: Vec<FileStamp>,
    problems: Vec<Problem>,
    /// The number of positions by case and class.
    index_counts: Vec<Vec<usize>>,
    /// The FNV-1a checksum of the index.
    index_hash: u64,
    /// The bytes of the mask of each case, where there are masks.
    mask_lengths: Vec<usize>,
    /// The FNV-1a checksum of all of them.
    mask_hash: u64,
}

/// What is read of the file `dataset_fingerprint.json`: what else stands there follows from this.
#[derive(Deserialize)]
struct StoredFingerprint {
    inspection: InspectionRecord,
    #[serde(default)]
    cases: Vec<CaseFingerprint>,
    #[serde(default)]
    foreground_intensity_properties_per_channel: BTreeMap<usize, IntensityProperties>,
}

/// The file `dataset_fingerprint.json`.
#[derive(Serialize)]
struct FingerprintFile<'a> {
    #[serde(flatten)]
    fingerprint: Option<&'a Fingerprint>,
    inspection: InspectionRecord,
}

impl Inspection {
    /// Writes `dataset_fingerprint.json` and `foreground_index.bin` into a folder, each atomically.
    ///
    /// # Errors
    /// If the disk fails. Older files may then still be there.
    pub fn save(&self, folder: impl AsRef<Path>, dataset: &Dataset) -> Result<(), InspectError> {
        let folder = folder.as_ref();
        let path = folder.join(INDEX);
        let mut index_hash = Fnv1a::default();
        // Number by number, so that the file is little-endian on any machine.
        let positions = || self.foreground.iter().flat_map(ForegroundIndex::packed);
        let written = atomic::write(&path, |file| {
            for position in positions() {
                let bytes = position.to_le_bytes();
                index_hash.update(&bytes);
                file.write_all(&bytes)?;
            }
            Ok(())
        });
        written.map_err(|source| InspectError::Io { path, action: "write", source })?;
        let mut mask_hash = Fnv1a::default();
        if !self.masks.is_empty() {
            let path = folder.join(MASKS);
            let written = atomic::write(&path, |file| {
                for mask in &self.masks {
                    mask_hash.update(mask.bytes());
                    file.write_all(mask.bytes())?;
                }
                Ok(())
            });
            written.map_err(|source| InspectError::Io { path, action: "write", source })?;
        }
        let kept = InspectionRecord {
            version: VERSION,
            seed: self.seed,
            channels: dataset.channels.clone(),
            labels: dataset.labels.clone(),
            unit: unit_of(dataset),
            label_values: label_values(dataset),
            files: self.stamps.clone(),
            problems: self.problems.clone(),
            index_counts: self.foreground.iter().map(ForegroundIndex::counts).collect(),
            index_hash: index_hash.finish(),
            mask_lengths: self.masks.iter().map(|mask| mask.bytes().len()).collect(),
            mask_hash: mask_hash.finish(),
        };
        // The fingerprint is written last: without it the index and the masks are ignored.
        let path = folder.join(FINGERPRINT);
        let whole = FingerprintFile { fingerprint: self.fingerprint.as_ref(), inspection: kept };
        atomic::write(&path, |file| {
            serde_json::to_writer_pretty(&mut *file, &whole)?;
            file.write_all(b"\n")
        })
        .map_err(|source| InspectError::Io { path, action: "write", source })
    }

    /// Loads an inspection from a folder if it is current: every file of the data set has the same length and
    /// modification time, and channels, labels and seed are the same. `None` if it is outdated, missing or damaged; the
    /// data set must then be inspected again.
    ///
    /// # Errors
    /// If the budget has no room for the index.
    pub fn load_if_current(
        folder: impl AsRef<Path>,
        dataset: &Dataset,
        config: InspectConfig,
        budget: &Budget,
    ) -> Result<Option<Inspection>, InspectError> {
        let folder = folder.as_ref();
        let Some(stored) = read_fingerprint(&folder.join(FINGERPRINT), budget)? else { return Ok(None) };
        let StoredFingerprint { inspection: kept, cases, foreground_intensity_properties_per_channel } =
            stored;
        let is_current = kept.version == VERSION
            && kept.seed == config.seed
            && kept.channels == dataset.channels
            && kept.labels == dataset.labels
            && kept.unit == unit_of(dataset)
            && kept.label_values == label_values(dataset)
            && kept.files == stamps(dataset)
            && are_of(&cases, dataset)
            && kept.index_counts.len() == cases.len()
            && kept.index_counts.iter().all(|counts| counts.len() == dataset.labels.classes());
        if !is_current {
            return Ok(None);
        }
        let count =
            kept.index_counts.iter().flatten().fold(0, |sum: usize, count| sum.saturating_add(*count));
        let opened = File::open(folder.join(INDEX)).and_then(|file| Ok((file.len()?, file)));
        let Ok((length, mut file)) = opened else { return Ok(None) };
        if length != (count as u64).saturating_mul(size_of::<u32>() as u64) {
            return Ok(None);
        }
        let mut foreground = Vec::with_capacity(cases.len());
        let mut index_hash = Fnv1a::default();
        for (counts, case) in kept.index_counts.iter().zip(&cases) {
            let voxels = case.geometry.voxel_count() as u64;
            let unit = unit(case.geometry.voxel_count());
            let of_case = counts.iter().sum();
            let mut index = ForegroundIndex::zeroed(counts.iter().copied(), unit, of_case, budget)?;
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(index.packed_mut());
            if file.read_exact(bytes).is_err() {
                return Ok(None);
            }
            index_hash.update(bytes);
            index.packed_mut().iter_mut().for_each(|position| *position = u32::from_le(*position));
            if index.packed().iter().any(|position| u64::from(*position) * unit >= voxels) {
                return Ok(None);
            }
            foreground.push(index);
        }
        if index_hash.finish() != kept.index_hash {
            return Ok(None);
        }
        let masks = match kept.mask_lengths.is_empty() {
            true => Vec::new(),
            false => match read_masks(&folder.join(MASKS), &cases, &kept, budget)? {
                Some(masks) => masks,
                None => return Ok(None),
            },
        };
        let fingerprint = Fingerprint::of(cases, foreground_intensity_properties_per_channel);
        if fingerprint.as_ref().is_some_and(|all| masks::are_used(dataset, all) == masks.is_empty()) {
            return Ok(None);
        }
        let InspectionRecord { problems, files: stamps, seed, .. } = kept;
        Ok(Some(Inspection { problems, fingerprint, foreground, masks, stamps, seed }))
    }
}

/// Reads the masks of cases; none if the file is not that of the inspection, or what is kept of the cases is not of these masks.
fn read_masks(
    path: &Path,
    cases: &[CaseFingerprint],
    kept: &InspectionRecord,
    budget: &Budget,
) -> Result<Option<Vec<Arc<MaskRuns>>>, InspectError> {
    let count = kept.mask_lengths.iter().fold(0, |sum: usize, length| sum.saturating_add(*length));
    let opened = File::open(path).and_then(|file| Ok((file.len()?, file)));
    let Ok((length, mut file)) = opened else { return Ok(None) };
    if length != count as u64 || kept.mask_lengths.len() != cases.len() {
        return Ok(None);
    }
    let mut masks = Vec::with_capacity(cases.len());
    let mut hash = Fnv1a::default();
    for (length, case) in kept.mask_lengths.iter().zip(cases) {
        let Some(voxels) = case.mask_voxels else { return Ok(None) };
        let mask = MaskRuns::read(case.nonzero_box, (*length, voxels), &mut file, budget)?;
        let Some(mask) = mask else { return Ok(None) };
        hash.update(mask.bytes());
        masks.push(Arc::new(mask));
    }
    Ok((hash.finish() == kept.mask_hash).then_some(masks))
}

/// Reads the file; none if it is none. Meanwhile what that can take is reserved.
fn read_fingerprint(path: &Path, budget: &Budget) -> Result<Option<StoredFingerprint>, InspectError> {
    let Ok(length) = plimsoll_disk::metadata(path).map(|metadata| metadata.len()) else { return Ok(None) };
    if length > LARGEST {
        return Ok(None);
    }
    let _held =
        budget.reserve("fingerprint", Bytes(length.saturating_mul(HEAP_PER_BYTE))).map_err(MapError::from)?;
    let Ok(bytes) = plimsoll_disk::read(path, length) else { return Ok(None) };
    Ok(serde_json::from_slice(&bytes).ok())
}

/// A checksum of the classes that values of each label map have.
fn label_values(dataset: &Dataset) -> u64 {
    let mut sum = Fnv1a::default();
    for values in dataset.cases.iter().map(|case| case.reading.label_values.as_deref()) {
        sum.update(&[u8::from(values.is_some())]);
        for class in values.into_iter().flat_map(|values| (0..=u8::MAX).map(|value| values.class(value))) {
            sum.update(&class.map_or([0, 0], |class| [1, class]));
        }
    }
    sum.finish()
}

/// The unit that the headers of a data set are in, where the user says so: the same of all its cases.
fn unit_of(dataset: &Dataset) -> Option<LengthUnit> {
    dataset.cases.first().and_then(|case| case.reading.unit)
}

/// Whether these are cases of a data set, in its order, with facts that can be true.
fn are_of(cases: &[CaseFingerprint], dataset: &Dataset) -> bool {
    let mut known = dataset.cases.iter();
    cases.iter().all(|case| {
        let shape = case.geometry.shape();
        known.any(|known| known.id == case.id)
            && case.nonzero_box.is_within(shape)
            && case.nonzero_box.shape.iter().all(|extent| *extent > 0)
            && case.channels.len() == dataset.channels.len()
            && case.element_types.len() == dataset.channels.len()
    })
}
