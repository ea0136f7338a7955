//! The images of a task: files of NIfTI, or a series of DICOM, which is brought into one first.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_data::{Case, Channel, Dataset, FilesMemory, FoundImages, Normalisation, RefusedImage};
use plimsoll_dicom::{Series, has_dicom};
use plimsoll_disk::atomic::sweep;
use plimsoll_memory::Budget;

use super::ENDING;
use super::parts::PartsFolder;
use crate::error::{Error, Outcome};

/// The kind of input at a path.
pub enum InputKind {
    /// An image.
    Image,
    /// A folder of images.
    Folder,
    /// This folder, archive or file of slices, which are one image.
    Series(PathBuf),
}

impl InputKind {
    /// Looks what a path is. A folder with images of NIfTI is one of images, whatever else it has.
    ///
    /// # Errors
    /// Returns an error if there is nothing, or it cannot be read.
    pub fn detect(path: &Path) -> Outcome<InputKind> {
        let metadata = plimsoll_disk::metadata(path).map_err(|error| Error::at_path(path, &error))?;
        if metadata.is_file() {
            let name = path.to_string_lossy();
            let is_nifti = [ENDING, ".nii"].iter().any(|ending| name.ends_with(ending));
            let is_series = !is_nifti && has_dicom(path)?;
            return Ok(if is_series { InputKind::Series(path.into()) } else { InputKind::Image });
        }
        if !metadata.is_dir() {
            return Ok(InputKind::Folder);
        }
        let mut entries = plimsoll_disk::entries(path).map_err(|error| Error::at_path(path, &error))?;
        let has_nifti =
            entries.any(|entry| entry.is_ok_and(|entry| entry.to_string_lossy().ends_with(ENDING)));
        match has_nifti || !has_dicom(path)? {
            true => Ok(InputKind::Folder),
            false => Ok(InputKind::Series(path.into())),
        }
    }

    /// The slices of a series, without their pixels; `None` if the input is no series.
    pub fn series(&self, budget: &Budget) -> Outcome<Option<Series>> {
        match self {
            InputKind::Series(slices) => Ok(Some(Series::find(slices, budget)?)),
            InputKind::Image | InputKind::Folder => Ok(None),
        }
    }

    /// Returns `true` if the input is a single image.
    pub fn is_one(&self) -> bool {
        !matches!(self, InputKind::Folder)
    }
}

/// The images of a task.
pub struct Input {
    pub cases: Vec<Case>,
    /// Images that cannot be segmented.
    pub refused: Vec<RefusedImage>,
    /// The reservation for the names of files.
    _memory: FilesMemory,
    /// The image that a series was brought into, which is removed with it.
    _image: Option<PartsFolder>,
}

impl Input {
    /// Finds the images of a path. A series is written into a folder of its own in `beside`, which is made for it.
    pub fn open(
        path: &Path,
        kind: &InputKind,
        series: Option<&Series>,
        beside: &Path,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Outcome<Input> {
        let Some(series) = series else {
            let FoundImages { cases, refused, memory } = images(path, kind, budget)?;
            return Ok(Input { cases, refused, _memory: memory, _image: None });
        };
        plimsoll_disk::create_dir_all(beside).map_err(|error| Error::at_path(beside, &error))?;
        let name = series_name(path);
        let folder = PartsFolder::make(beside, &folder_name(&name))?;
        let image: PathBuf = folder.plain(&name);
        series.write(&image, budget, stop)?;
        let FoundImages { cases, refused, memory } = images(&image, &InputKind::Image, budget)?;
        Ok(Input { cases, refused, _memory: memory, _image: Some(folder) })
    }

    /// Removes what killed processes have left in `beside` of the series of a path.
    pub fn sweep(path: &Path, beside: &Path) -> Outcome {
        sweep(beside).map_err(|error| Error::at_path(beside, &error))?;
        let name = series_name(path);
        PartsFolder::sweep(beside, &folder_name(&name))?;
        PartsFolder::sweep(beside, &name)
    }
}

/// The name of the image of a series, which is also its case.
fn series_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "series".into(), |name| name.to_string_lossy().into_owned())
}

/// The name of the folder of this image.
fn folder_name(series: &str) -> String {
    format!("{series}.series")
}

/// The images of a path as they are stored: of a series of DICOM, its slices.
pub(super) fn images(path: &Path, kind: &InputKind, budget: &Budget) -> Outcome<FoundImages> {
    // How it is normalised follows from each model.
    let channels = [Channel { name: "image".into(), normalisation: Normalisation::None }];
    let is_plain = path.is_file() && path.extension().is_some_and(|ending| ending == "nii");
    let ending = match kind {
        InputKind::Series(_) => ".dcm",
        InputKind::Image if is_plain => ".nii",
        InputKind::Image | InputKind::Folder => ENDING,
    };
    Ok(Dataset::find_images(path, &channels, ending, budget)?)
}
