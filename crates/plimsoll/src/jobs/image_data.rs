//! The images of a data set for classification: a table, or a folder for each class.

use std::path::{Path, PathBuf};

use plimsoll_data::DatasetError;
use plimsoll_data::pictures::{ImageDataset, LabelSource, TableSettings};
use plimsoll_memory::Budget;
use plimsoll_run::Settings;

use crate::error::{Error, Outcome};

/// Returns `true` if a place is a table of images, not a folder.
pub(super) fn is_table(place: &Path) -> bool {
    place.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"))
}

/// Lists the images of a data set, with their labels.
///
/// # Errors
/// Returns an error if there are none, a table or a folder is not as it should be, or the limit leaves no room for their names.
pub(super) fn list(place: &Path, settings: &Settings, budget: &Budget) -> Outcome<ImageDataset> {
    let is_table = is_table(place);
    let has_folders = || -> Outcome<bool> {
        let mut found = plimsoll_disk::entries(place).map_err(|error| Error::at_path(place, &error))?;
        Ok(found.any(|path| path.is_ok_and(|path| path.is_dir())))
    };
    if !is_table && !place.is_dir() {
        return Err(DatasetError::not_a_folder(place).into());
    }
    if !is_table && (place.join("imagesTr").exists() || !has_folders()?) {
        return Err(DatasetError::NoDatasetJson { folder: place.into() }.into());
    }
    let images = settings.images.clone().unwrap_or_default();
    Ok(match is_table {
        true => ImageDataset::from_table(place, &images.table.unwrap_or_else(usual_table), budget)?,
        false if images.table.is_some() => {
            let message = format!("`images.table` is set, but {} is a folder", place.display());
            return Err(Error::new(message, "name the table itself, which ends in .csv"));
        }
        false => ImageDataset::from_folders(place, budget)?,
    })
}

/// Columns as they are usually called.
fn usual_table() -> TableSettings {
    TableSettings {
        image: "image".into(),
        label: LabelSource::One("label".into()),
        group: None,
        split: None,
        folder: PathBuf::new(),
        ending: String::new(),
        classes: Vec::new(),
        skip_unlabelled: false,
    }
}
