//! Folders of slices of DICOM, each of which is one image.

use std::path::{Path, PathBuf};

use plimsoll_volume::{VolumeFile, image_ending};

use crate::dataset::files::file_name;
use crate::dataset::name_ending;

/// What the names of files and folders of DICOM end in.
pub(crate) const DICOM: &str = ".dcm";

/// Whether a folder has several slices of DICOM right in it, with or without an ending: it is one image. Of files that have many slices each
/// is an image of its own.
pub(crate) fn is_series(folder: &Path) -> bool {
    let Ok(mut listed) = plimsoll_disk::read_dir(folder) else { return false };
    listed.retain(|path| !file_name(path).starts_with('.'));
    listed.sort();
    // As lazily as can be: there may be thousands.
    let mut slices = listed.iter().filter(|path| !path.is_dir() && is_slice(path));
    match (slices.next(), slices.next()) {
        (Some(first), Some(_)) => !VolumeFile::open(first).is_ok_and(|file| file.geometry().shape()[0] > 1),
        _ => false,
    }
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
pub(crate) fn series_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = plimsoll_disk::read_dir(folder).unwrap_or_default();
    found.retain(|path| {
        let name = file_name(path);
        !name.starts_with('.') && name_ending(&name).is_none() && path.is_dir() && is_series(path)
    });
    found.sort();
    found
}
