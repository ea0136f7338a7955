//! Keeping an inspection, so that images are decoded again only if something has changed.

use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use plimsoll_disk::{ByteCount, atomic};
use plimsoll_memory::{Budget, Bytes, Digest, Digester, OverBudget};
use serde::{Deserialize, Serialize};

use super::inspect::list_bytes;
use super::{ImageDataset, InspectOptions, Inspection};

/// The version of what is kept. Raise it when an inspection finds more, or something else.
const VERSION: u32 = 2;

/// The longest file that is read: the file of some millions of images fits.
const LONGEST: u64 = 256 << 20;

/// The most heap that a byte of the file takes when it is read: lists that grow have up to twice their length, and the old half besides.
const HEAP_PER_BYTE: u64 = 24;

/// The stored inspection.
#[derive(Serialize, Deserialize)]
struct Kept<I> {
    version: u32,
    /// The digest of the inspected state: [`state_of`].
    state: Digest,
    inspection: I,
}

/// The digest of all that an inspection depends on: the length and the modification time of each file, names, labels, groups and splits of
/// cases, classes, and how files are read. It has to be taken before they are.
pub fn state_of(dataset: &ImageDataset, options: &InspectOptions) -> Digest {
    let mut digester = Digester::default();
    let mut add = |field: &[u8]| {
        digester.update(&(field.len() as u64).to_le_bytes());
        digester.update(field);
    };
    add(format!("{:?} {} {} {}", options.decode, options.channels, options.contents, dataset.multi_label)
        .as_bytes());
    for class in &dataset.classes {
        add(class.as_bytes());
    }
    for case in &dataset.cases {
        let metadata = plimsoll_disk::metadata(&case.path).ok();
        let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let stamp = (metadata.map(|metadata| metadata.len()), since.map(|since| since.as_nanos()));
        add(case.name.as_bytes());
        add(case.path.as_os_str().as_encoded_bytes());
        add(format!("{stamp:?} {:?} {:?} {:?}", case.labels, case.group, case.split).as_bytes());
    }
    digester.finish()
}

impl Inspection {
    /// Writes it into a file, whole or not at all, as the inspection of a [state](state_of).
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn save(&self, path: &Path, state: Digest) -> io::Result<()> {
        let kept = Kept { version: VERSION, state, inspection: self };
        atomic::write(path, |file| Ok(serde_json::to_writer(file, &kept)?))
    }

    /// The least budget in which the images can be inspected again and this inspection can be loaded.
    ///
    /// # Errors
    /// If it cannot be written as it is kept.
    pub fn least_bytes(&self) -> io::Result<Bytes> {
        let kept = Kept { version: VERSION, state: Digest(0), inspection: self };
        let mut length = ByteCount::default();
        serde_json::to_writer(&mut length, &kept)?;
        let loading = Bytes(length.0.saturating_mul(HEAP_PER_BYTE));
        Ok((list_bytes(self.readable.len()) + self.largest.decoding).max(loading))
    }

    /// Reads an inspection of a [state](state_of) of a data set with `cases` cases. Returns `None` if the file is of another state,
    /// missing or damaged: the images must then be inspected again.
    ///
    /// # Errors
    /// If the budget has no room to read it.
    pub fn load_if_current(
        path: &Path,
        state: Digest,
        cases: usize,
        budget: &Budget,
    ) -> Result<Option<Inspection>, OverBudget> {
        let Ok(length) = plimsoll_disk::metadata(path).map(|metadata| metadata.len()) else {
            return Ok(None);
        };
        if length > LONGEST {
            return Ok(None);
        }
        let bytes = Bytes(length.saturating_mul(HEAP_PER_BYTE));
        let _held = budget.reserve("inspection of images", bytes)?;
        let Ok(text) = plimsoll_disk::read(path, length) else { return Ok(None) };
        let Ok(kept) = serde_json::from_slice::<Kept<Inspection>>(&text) else { return Ok(None) };
        let Kept { version, state: of, inspection } = kept;
        let fits = inspection.readable.len() == cases
            && inspection.contents.len() == cases
            && inspection.problems.iter().all(|problem| problem.case.is_none_or(|case| case < cases));
        Ok((version == VERSION && of == state && fits).then_some(inspection))
    }
}
