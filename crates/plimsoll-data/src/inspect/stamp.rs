//! Stamps of files, to detect later that one has changed.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::dataset::{Case, Dataset};

/// The length and modification time of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStamp {
    /// Relative to the data set's folder.
    path: PathBuf,
    /// Its length; `None` if it does not exist.
    bytes: Option<u64>,
    /// Its modification time in nanoseconds since 1970, if the system provides it.
    modified: Option<u64>,
}

/// The current stamp of a file of a data set, or of a folder whose files are one image: their length together, and the latest time.
pub(crate) fn stamp(folder: &Path, path: &Path) -> FileStamp {
    let (mut bytes, mut modified) = state(path);
    if path.is_dir() {
        for file in plimsoll_disk::read_dir(path).unwrap_or_default() {
            let (of_file, time) = state(&file);
            bytes = Some(bytes.unwrap_or(0).saturating_add(of_file.unwrap_or(0)));
            modified = modified.max(time);
        }
    }
    FileStamp { path: path.strip_prefix(folder).unwrap_or(path).into(), bytes, modified }
}

/// The length and the modification time of a file, as far as they are known.
fn state(path: &Path) -> (Option<u64>, Option<u64>) {
    let metadata = plimsoll_disk::metadata(path).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let nanoseconds = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
    (metadata.map(|metadata| metadata.len()), nanoseconds)
}

/// The current stamps of the files of the training cases.
pub(crate) fn stamps(dataset: &Dataset) -> Vec<FileStamp> {
    let of_case = |case: &'_ Case| -> Vec<FileStamp> {
        case.files().map(|path| stamp(&dataset.folder, path)).collect()
    };
    dataset.cases.iter().flat_map(of_case).collect()
}
