//! Folders of slices of DICOM, each of which is one image.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use plimsoll_volume::{VolumeError, VolumeFile, image_ending};

use crate::dataset::DatasetError;
use crate::dataset::names::{file_name, list, name_ending};

/// The ending of the names of DICOM files and folders.
pub(crate) const DICOM: &str = ".dcm";

/// Returns `true` if a folder directly contains several DICOM slices, with or without an ending: it is one
/// image. A file with many slices is an image of its own.
///
/// # Errors
/// If the folder cannot be read, or a file in it without a known ending.
pub(crate) fn is_series(folder: &Path) -> Result<bool, DatasetError> {
    let listed = list(folder)?;
    // As lazily as can be: there may be thousands.
    let files = listed.iter().filter(|path| !path.is_dir());
    let mut slices = files.filter_map(|path| is_slice(path).map(|is| is.then_some(path)).transpose());
    Ok(match (slices.next().transpose()?, slices.next().transpose()?) {
        (Some(first), Some(_)) => !VolumeFile::open(first).is_ok_and(|file| file.geometry().shape()[0] > 1),
        _ => false,
    })
}

/// Returns `true` if a file is DICOM, by its name or, if it has no ending of images, by its first bytes.
///
/// # Errors
/// If it cannot be read where that is needed: it may be a slice, without which the series would be another one.
fn is_slice(path: &Path) -> Result<bool, DatasetError> {
    let name = file_name(path);
    match name_ending(&name) {
        Some(ending) => Ok(ending.eq_ignore_ascii_case(DICOM)),
        None if name.to_ascii_lowercase().ends_with(DICOM) => Ok(true),
        None => match image_ending(path) {
            // Texts and tables beside slices begin with nothing of DICOM.
            Ok(ending) => Ok(ending == Some(DICOM)),
            // A link that leads nowhere is none.
            Err(VolumeError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(false),
            Err(error @ VolumeError::Io { .. }) => Err(error.into()),
            Err(_) => Ok(false),
        },
    }
}

/// The folders in a folder that are series of slices under names without an ending of images, sorted.
///
/// # Errors
/// If the folder, one in it, or a file without a known ending in one of these cannot be read.
pub(crate) fn series_in(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let mut found = Vec::new();
    for (path, is_series) in each_series(folder)? {
        if is_series? {
            found.push(path);
        }
    }
    Ok(found)
}

/// The folders in a folder whose names have no ending of images, sorted. Each has `true` if it is a series of slices, or the
/// error that prevented reading it.
///
/// # Errors
/// If the folder cannot be read.
pub(crate) fn each_series(
    folder: &Path,
) -> Result<impl Iterator<Item = (PathBuf, Result<bool, DatasetError>)>, DatasetError> {
    let unnamed = |path: &PathBuf| name_ending(&file_name(path)).is_none() && path.is_dir();
    Ok(list(folder)?.into_iter().filter(unnamed).map(|path| {
        let is_series = is_series(&path);
        (path, is_series)
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

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
        // Files whose names say nothing are looked into, but for a link that leads nowhere.
        for slice in ["1", "2"] {
            fs::rename(series.join(format!("{slice}.dcm")), series.join(slice)).unwrap();
        }
        symlink("nowhere", series.join("link")).unwrap();
        assert!(series_in(dir.path()).unwrap().is_empty());
        let fails = |number| {
            let fault = Fault { number, kind: FaultKind::Eio };
            let (found, reached) = inject(dir.path(), fault, || series_in(dir.path()));
            reached.then(|| found.unwrap_err().to_string())
        };
        let refused: Vec<String> = (3..).map_while(fails).collect();
        for slice in ["1", "2"] {
            let named = format!("cannot open {}", series.join(slice).display());
            assert!(refused.contains(&named), "{refused:?}");
        }
        let error = series_in(&dir.path().join("missing")).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
