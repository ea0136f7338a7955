//! The memory that finding the files of a data set takes. It follows from the lengths of names and descriptions, which are counted
//! before any of them is kept.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};

use crate::dataset::layout::table_file;
use crate::dataset::names::{BIDS_DESCRIPTION, name_ending};
use crate::dataset::{Case, ChannelFile, DatasetError};
use crate::files_memory::FilesMemory;
use crate::splits::FOLDS;

/// The most that a name in a folder takes: in the listing of the folder, in lists made from it, and in its case. Three of them contain its
/// path.
const PER_NAME: u64 = 768;
const PATHS: u64 = 3;

/// The most that a name takes if its case is predicted or planned: its files, its request, its plan and its result.
const PER_PREDICTED_NAME: u64 = 1536;

/// The most memory that a byte of JSON, or of a table, takes once it is parsed.
const PER_BYTE_OF_JSON: u64 = 24;
const PER_BYTE_OF_TABLE: u64 = 8;

/// The levels of folders of a data set: of BIDS `derivatives/PIPELINE/SUBJECT/SESSION/anat/`, of others `SPLIT/CASE/`.
const LEVELS_OF_BIDS: usize = 6;
const LEVELS: usize = 3;

/// The most that an inspection keeps about a case and about each of its images: geometry, statistics, stamps of files and counts.
const FACTS_OF_A_CASE: usize = 768;
const FACTS_OF_A_FILE: usize = 256;

/// Descriptions of data sets.
const DESCRIPTIONS: [&str; 2] = ["dataset.json", "datalist.json"];

/// Reserves the most memory that finding the files of a data set takes.
///
/// # Errors
/// If the budget has no room, or a folder or a description cannot be read.
pub(crate) fn reserve(place: &Path, budget: &Budget) -> Result<Reservation, DatasetError> {
    let mut bytes = names(place, PER_NAME, levels(place))?;
    let described = DESCRIPTIONS.iter().map(|name| place.join(name)).chain([place.to_path_buf()]);
    for path in described.filter(|path| path.is_file()) {
        let length = plimsoll_disk::metadata(&path)
            .map_err(|source| DatasetError::Io { path: path.clone(), action: "read", source })?
            .len();
        let of_byte = match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => PER_BYTE_OF_JSON,
            Some("csv" | "tsv") if table_file::has_volumes(&path) => PER_BYTE_OF_TABLE,
            _ => 0,
        };
        bytes = bytes.saturating_add(length.saturating_mul(of_byte));
    }
    held(place, bytes, budget)
}

/// Reserves the most memory that a list in memory takes once it is parsed.
///
/// # Errors
/// If the budget has no room.
pub(crate) fn reserve_list(name: &Path, text: &str, budget: &Budget) -> Result<Reservation, DatasetError> {
    held(name, (text.len() as u64).saturating_mul(PER_BYTE_OF_JSON), budget)
}

/// Reserves the memory that a folder's images take if they are predicted, from the listing of the folder to the result of each.
///
/// # Errors
/// If the budget has no room, or the folder cannot be read.
pub fn reserve_images(place: &Path, budget: &Budget) -> Result<FilesMemory, DatasetError> {
    Ok(held(place, names(place, PER_PREDICTED_NAME, levels(place))?, budget)?.into())
}

fn held(place: &Path, bytes: u64, budget: &Budget) -> Result<Reservation, DatasetError> {
    budget
        .reserve("names of files", Bytes(bytes))
        .map_err(|source: OverBudget| DatasetError::Memory { path: place.into(), source })
}

/// The levels of folders below a place in which files of a data set are searched.
fn levels(place: &Path) -> usize {
    if place.join(BIDS_DESCRIPTION).is_file() { LEVELS_OF_BIDS } else { LEVELS }
}

/// Returns the memory that the names in a folder and its subfolders take; zero for a file. The chunks of an image that is a folder are
/// not counted.
fn names(place: &Path, per_name: u64, levels: usize) -> Result<u64, DatasetError> {
    if !place.is_dir() {
        return Ok(0);
    }
    let failed = |source: io::Error| DatasetError::Io { path: place.into(), action: "list", source };
    let mut bytes = 0u64;
    for entry in plimsoll_disk::entries(place).map_err(failed)? {
        let path = entry.map_err(failed)?;
        let length = path.as_os_str().len() as u64;
        bytes = bytes.saturating_add(per_name.saturating_add(PATHS * length));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Whether an image is a folder is not checked: a call of the system for each of 100,000 files takes seconds.
        if levels > 1 && !name.starts_with('.') && name_ending(&name).is_none() && path.is_dir() {
            // A folder that cannot be listed keeps no names; whoever needs it reports the fault.
            bytes = bytes.saturating_add(names(&path, per_name, levels - 1).unwrap_or(0));
        }
    }
    Ok(bytes)
}

/// The memory that cases keep, with the facts that their inspection finds about them and their names in the usual folds.
pub(crate) fn kept_bytes<'a>(cases: impl Iterator<Item = &'a Case>) -> Bytes {
    let path = |path: &PathBuf| path.as_os_str().len();
    let of_case = |case: &Case| {
        let of_image = |image: &ChannelFile| size_of::<ChannelFile>() + FACTS_OF_A_FILE + path(&image.path);
        let images: usize = case.images.iter().map(of_image).sum();
        let of_folds = FOLDS * (size_of::<String>() + case.id.len());
        let names = case.id.len() + case.label.as_ref().map_or(0, path);
        size_of::<Case>() + FACTS_OF_A_CASE + names + images + of_folds
    };
    Bytes::from_len(cases.map(of_case).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_below_folders_count_but_for_those_of_chunks() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["a/b", "c.zarr/0"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for file in ["a/b/1.nii", "a/2.nii", "c.zarr/0/0", "c.zarr/0/1"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        let count = |levels| names(dir.path(), 1_000_000, levels).unwrap() / 1_000_000;
        assert_eq!((count(5), count(2), count(1)), (5, 4, 2), "a, a/b, a/b/1.nii, a/2.nii, c.zarr");
        let small = Budget::new(Bytes(1000));
        let error = reserve(dir.path(), &small).unwrap_err();
        assert!(matches!(error, DatasetError::Memory { .. }), "{error}");
        assert!(error.remedy().unwrap().contains("‹ram›"));
        assert_eq!(small.used(), Bytes::ZERO);
    }
}
