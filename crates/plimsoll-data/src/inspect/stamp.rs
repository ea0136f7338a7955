//! Stamps of files, to detect later that one has changed.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;

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

/// The current stamps of the files of the training cases.
pub(crate) fn stamps(dataset: &Dataset) -> Vec<FileStamp> {
    let stamp = |path: &Path| {
        let metadata = plimsoll_disk::metadata(path).ok();
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
