//! The images of a task: files of NIfTI, or a series of DICOM, which is brought into one first.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_data::{Case, Channel, Dataset, Normalisation};
use plimsoll_dicom::{Series, has_dicom};
use plimsoll_memory::Budget;

use super::ENDING;
use super::parts::PartsFolder;
use crate::failure::{Failure, Outcome};

/// What a path names.
pub enum Kind {
    /// An image.
    Image,
    /// A folder of images.
    Folder,
    /// This folder of slices, which are one image.
    Series(PathBuf),
}

impl Kind {
    /// Looks what a path is. A folder with images of NIfTI is one of images, whatever else it has.
    pub fn of(path: &Path) -> Outcome<Kind> {
        if !path.is_dir() {
            return Ok(if path.is_file() { Kind::Image } else { Kind::Folder });
        }
        let entries = plimsoll_disk::read_dir(path).map_err(|error| Failure::of_path(path, &error))?;
        let has_nifti = entries.iter().any(|entry| entry.to_string_lossy().ends_with(ENDING));
        match has_nifti || !has_dicom(path)? {
            true => Ok(Kind::Folder),
            false => Ok(Kind::Series(path.into())),
        }
    }

    /// Whether it is one image, and not any number of them.
    pub fn is_one(&self) -> bool {
        !matches!(self, Kind::Folder)
    }
}

/// The images of a task.
pub struct Input {
    pub cases: Vec<Case>,
    /// The image that a series was brought into, which is removed with it.
    _image: Option<PartsFolder>,
}

impl Input {
    /// Finds the images of a path. A series is written into a folder of its own in `beside`, which is made for it.
    pub fn open(
        path: &Path,
        kind: &Kind,
        beside: &Path,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Outcome<Input> {
        let Kind::Series(slices) = kind else {
            return Ok(Input { cases: images(path)?, _image: None });
        };
        let series = Series::find(slices, budget)?;
        plimsoll_disk::create_dir_all(beside).map_err(|error| Failure::of_path(beside, &error))?;
        let name =
            path.file_name().map_or_else(|| "series".into(), |name| name.to_string_lossy().into_owned());
        let folder = PartsFolder::make(beside, &format!("{name}.series"))?;
        let image: PathBuf = folder.plain(&name);
        series.write(&image, budget, stop)?;
        Ok(Input { cases: images(&image)?, _image: Some(folder) })
    }
}

/// The images of a path that is no series of DICOM.
pub(super) fn images(path: &Path) -> Outcome<Vec<Case>> {
    // How it is normalised follows from each model.
    let channels = [Channel { name: "image".into(), normalisation: Normalisation::None }];
    let is_plain = path.is_file() && path.extension().is_some_and(|ending| ending == "nii");
    Ok(Dataset::images(path, &channels, if is_plain { ".nii" } else { ENDING })?)
}
