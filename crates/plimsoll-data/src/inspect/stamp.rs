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

impl FileStamp {
    /// The memory that it takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<FileStamp>() + self.path.as_os_str().len()
    }

    /// The path of the file.
    pub(crate) fn place(&self, folder: &Path) -> PathBuf {
        folder.join(&self.path)
    }
}

/// The current stamp of a file of a data set, or of a folder whose files, including the files of folders in it, are one image: their length
/// together, and the latest time.
pub(crate) fn stamp(folder: &Path, path: &Path) -> FileStamp {
    let (mut bytes, mut modified) = state(path);
    let mut folders = Vec::new();
    if path.is_dir() {
        folders.push(path.to_path_buf());
    }
    while let Some(of) = folders.pop() {
        let Ok(files) = plimsoll_disk::entries(&of) else {
            // Of a folder that cannot be read nothing is known: it is unlike any that could.
            (bytes, modified) = (None, None);
            break;
        };
        for file in files {
            let (of_file, time) = file.as_deref().map_or((None, None), state);
            bytes = bytes.zip(of_file).map(|(sum, of_file)| sum.saturating_add(of_file));
            modified = modified.max(time);
            // A link may lead back to where it is.
            folders.extend(file.ok().filter(|file| file.is_dir() && !file.is_symlink()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_of_a_folder_changes_with_files_in_its_folders() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a.zarr");
        let chunk = image.join("0/c/0");
        std::fs::create_dir_all(image.join("0/c")).unwrap();
        std::fs::write(&chunk, [0; 4]).unwrap();
        let before = stamp(dir.path(), &image);
        assert_eq!(before, stamp(dir.path(), &image));
        std::fs::write(&chunk, [0; 5]).unwrap();
        let after = stamp(dir.path(), &image);
        assert_eq!(after.bytes, before.bytes.map(|bytes| bytes + 1));
        std::fs::remove_dir_all(&image).unwrap();
        assert_eq!(stamp(dir.path(), &image).bytes, None);
    }
}
