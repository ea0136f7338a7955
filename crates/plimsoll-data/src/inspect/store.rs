//! Keeping what was found out, so that a data set is read again only if it has changed.
//!
//! `dataset_fingerprint.json` has nnU-Net's entries, the other facts about each case and, under `inspection`, what the
//! files looked like when they were read. `foreground_index.bin` beside it has the positions of all cases as 32-bit
//! numbers, the least significant byte first.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use plimsoll_memory::Budget;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Labels;
use crate::atomic;
use crate::dataset::{Channel, Dataset};
use crate::fingerprint::Fingerprint;
use crate::inspect::foreground::unit;
use crate::inspect::{ForegroundIndex, InspectConfig, InspectError, Inspection, Problem};

const FINGERPRINT: &str = "dataset_fingerprint.json";
const INDEX: &str = "foreground_index.bin";

/// Of the entry `inspection`. To be raised when anything about the samples or the statistics changes.
const VERSION: u32 = 1;

/// The fingerprints of a hundred thousand cases fit into this.
const LARGEST: u64 = 256 << 20;

/// What a file looked like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStamp {
    /// Relative to the data set's folder.
    path: PathBuf,
    /// Its length; none if it was not there.
    bytes: Option<u64>,
    /// When it was changed, in nanoseconds since 1970, if the system tells.
    modified: Option<u64>,
}

/// What else must be as it was for the fingerprint to be that of the data set.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    seed: u64,
    channels: Vec<Channel>,
    labels: Labels,
    files: Vec<FileStamp>,
    problems: Vec<Problem>,
    /// The number of positions by case and class.
    index_counts: Vec<Vec<usize>>,
    /// A check sum of the index.
    index_hash: u64,
}

/// The file `dataset_fingerprint.json`.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    fingerprint: Option<&'a Fingerprint>,
    inspection: Kept,
}

/// What the files of the training cases look like now.
pub(crate) fn stamps(dataset: &Dataset) -> Vec<FileStamp> {
    let stamp = |path: &Path| {
        let metadata = fs::metadata(path).ok();
        let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        FileStamp {
            path: path.strip_prefix(&dataset.folder).unwrap_or(path).into(),
            bytes: metadata.map(|metadata| metadata.len()),
            modified: since.and_then(|since| u64::try_from(since.as_nanos()).ok()),
        }
    };
    dataset.cases.iter().flat_map(|case| case.files().map(stamp)).collect()
}

/// FNV-1a.
fn hash(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

impl Inspection {
    /// Writes `dataset_fingerprint.json` and `foreground_index.bin` into a folder, each whole or not at all.
    ///
    /// # Errors
    /// If the disk refuses. Files that were there before may then still be there.
    pub fn save(&self, folder: impl AsRef<Path>, dataset: &Dataset) -> Result<(), InspectError> {
        let folder = folder.as_ref();
        let path = folder.join(INDEX);
        let mut index_hash = HASH_START;
        // Number by number, so that the order of bytes is the file's on any machine.
        let positions = || self.foreground.iter().flat_map(ForegroundIndex::packed);
        let written = atomic::write(&path, |file| {
            for position in positions() {
                let bytes = position.to_le_bytes();
                index_hash = hash(index_hash, &bytes);
                file.write_all(&bytes)?;
            }
            Ok(())
        });
        written.map_err(|source| InspectError::Io { path, action: "write", source })?;
        let kept = Kept {
            version: VERSION,
            seed: self.seed,
            channels: dataset.channels.clone(),
            labels: dataset.labels.clone(),
            files: self.stamps.clone(),
            problems: self.problems.clone(),
            index_counts: self.foreground.iter().map(ForegroundIndex::counts).collect(),
            index_hash,
        };
        // The fingerprint comes last: without it the index is not looked at.
        let path = folder.join(FINGERPRINT);
        let whole = Whole { fingerprint: self.fingerprint.as_ref(), inspection: kept };
        atomic::write(&path, |file| {
            serde_json::to_writer_pretty(&mut *file, &whole)?;
            file.write_all(b"\n")
        })
        .map_err(|source| InspectError::Io { path, action: "write", source })
    }

    /// Reads back what was saved in a folder, if it is still true: every file of the data set has the length and the time
    /// that it had, and channels, labels and the seed are the same. `None` if it is not, if nothing was saved, or if what
    /// was saved is damaged; then the data set is to be inspected again.
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
        let Some((kept, fingerprint)) = read_fingerprint(&folder.join(FINGERPRINT)) else { return Ok(None) };
        let is_current = kept.version == VERSION
            && kept.seed == config.seed
            && kept.channels == dataset.channels
            && kept.labels == dataset.labels
            && kept.files == stamps(dataset);
        let cases = fingerprint.as_ref().map_or(&[][..], |fingerprint| &fingerprint.cases);
        if !is_current || kept.index_counts.len() != cases.len() {
            return Ok(None);
        }
        let count =
            kept.index_counts.iter().flatten().fold(0, |sum: usize, count| sum.saturating_add(*count));
        let opened = File::open(folder.join(INDEX)).and_then(|file| Ok((file.metadata()?.len(), file)));
        let Ok((length, mut file)) = opened else { return Ok(None) };
        if length != (count as u64).saturating_mul(size_of::<u32>() as u64) {
            return Ok(None);
        }
        let mut foreground = Vec::with_capacity(cases.len());
        let mut index_hash = HASH_START;
        for (counts, case) in kept.index_counts.iter().zip(cases) {
            let unit = unit(case.geometry.voxel_count());
            let of_case = counts.iter().sum();
            let mut index = ForegroundIndex::zeroed(counts.iter().copied(), unit, of_case, budget)?;
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(index.packed_mut());
            if file.read_exact(bytes).is_err() {
                return Ok(None);
            }
            index_hash = hash(index_hash, bytes);
            index.packed_mut().iter_mut().for_each(|position| *position = u32::from_le(*position));
            foreground.push(index);
        }
        if index_hash != kept.index_hash {
            return Ok(None);
        }
        let Kept { problems, files: stamps, seed, .. } = kept;
        Ok(Some(Inspection { problems, fingerprint, foreground, stamps, seed }))
    }
}

fn read_fingerprint(path: &Path) -> Option<(Kept, Option<Fingerprint>)> {
    let mut bytes = Vec::new();
    let read =
        |bytes: &mut Vec<u8>| -> io::Result<usize> { File::open(path)?.take(LARGEST).read_to_end(bytes) };
    read(&mut bytes).ok()?;
    let mut all: Value = serde_json::from_slice(&bytes).ok()?;
    let kept = serde_json::from_value(all.get_mut("inspection")?.take()).ok()?;
    let fingerprint = match all.get("cases") {
        Some(_) => Some(serde_json::from_value(all).ok()?),
        None => None,
    };
    Some((kept, fingerprint))
}
