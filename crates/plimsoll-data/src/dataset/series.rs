//! Folders of slices of DICOM, each of which is one image.

use std::path::{Path, PathBuf};

use plimsoll_volume::{VolumeFile, image_ending};

use crate::dataset::files::{file_name, list};
use crate::dataset::{DatasetError, name_ending};

/// What the names of files and folders of DICOM end in.
pub(crate) const DICOM: &str = ".dcm";

/// Whether a folder has several slices of DICOM right in it, with or without an ending: it is one image. Of files that have many slices each
/// is an image of its own.
///
/// # Errors
/// If the folder cannot be read.
pub(crate) fn is_series(folder: &Path) -> Result<bool, DatasetError> {
    let listed = list(folder)?;
    // As lazily as can be: there may be thousands.
    let mut slices = listed.iter().filter(|path| !path.is_dir() && is_slice(path));
    Ok(match (slices.next(), slices.next()) {
        (Some(first), Some(_)) => !VolumeFile::open(first).is_ok_and(|file| file.geometry().shape()[0] > 1),
        _ => false,
    })
}

/// Whether a file is one of DICOM, as its name says or, where it has no ending of images, what it begins with.
fn is_slice(path: &Path) -> bool {
    let name = file_name(path);
    match name_ending(&name) {
        Some(ending) => ending.eq_ignore_ascii_case(DICOM),
        None if name.to_ascii_lowercase().ends_with(DICOM) => true,
        // Texts and tables beside slices begin with nothing of DICOM.
        None => image_ending(path).is_ok_and(|ending| ending == Some(DICOM)),
    }
}

/// The folders in a folder that are series of slices and whose names do not say so, sorted.
///
/// # Errors
/// If the folder, or one in it, cannot be read.
pub(crate) fn series_in(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let mut found = Vec::new();
    for path in list(folder)? {
        if name_ending(&file_name(&path)).is_none() && path.is_dir() && is_series(&path)? {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plimsoll_disk::faults::{Fault, FaultKind, inject};

    use super::*;

    #[test]
    fn a_folder_that_cannot_be_read_is_named_and_not_taken_for_one_without_series() {
        let dir = tempfile::tempdir().unwrap();
        let series = dir.path().join("series");
        fs::create_dir(&series).unwrap();
        for slice in ["1.dcm", "2.dcm"] {
            fs::write(series.join(slice), "no slice").unwrap();
        }
        fs::write(dir.path().join("notes.txt"), "beside").unwrap();
        assert_eq!(series_in(dir.path()).unwrap(), std::slice::from_ref(&series));
        for (number, folder) in [(1, dir.path()), (2, &series)] {
            let fault = Fault { number, kind: FaultKind::Eio };
            let (found, reached) = inject(dir.path(), fault, || series_in(dir.path()));
            let error = found.unwrap_err().to_string();
            assert!(reached && error == format!("cannot list {}", folder.display()), "{error}");
        }
        let error = series_in(&dir.path().join("missing")).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
