//! The structure of a data set: channels, labels, cases and their files. No image is decoded here.
//!
//! A [`Layout`] decides which files belong to a case: nnU-Net's raw format (`imagesTr/CASE_0000.nii.gz` per channel,
//! `labelsTr/CASE.nii.gz`), lists as of the Medical Segmentation Decathlon and MONAI, pairs of folders, BIDS, a folder for each case, or
//! a table. [`FoundData`] are such cases before their classes are known. Images are NIfTI, or pictures of which one file may hold all channels: an RGB image `CASE_0000.png` has three.

mod case;
mod error;
mod files;
mod found_images;
mod json;
mod label_entries;
mod labels;
mod layout;
mod names;
mod predictions;
mod regions;
mod segment_rule;
mod segments;
mod series;
mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use case::{Case, Channel, ChannelFile, Reading, is_case_name};
pub use error::DatasetError;
pub use found_images::{FoundImages, RefusedImage};
pub use label_entries::{LabelEntries, LabelEntry, LabelFault, Ordered};
pub use labels::{Labels, Region};
pub use layout::{
    BIDS_GENERATOR, DataDescription, FoundData, Layout, bids_images, bids_label, is_predicted, reserve_images,
};
pub(crate) use names::slashed;
pub use names::{
    BIDS_DESCRIPTION, is_image_ending, is_picture_ending, label_ending, name_ending, prediction_ending,
};
pub use predictions::{PredictedPair, ReferenceMap, pair_predictions, reference_maps};
pub use regions::{RegionSettings, RegionValues};
pub use segment_rule::{SegmentRule, SegmentsBy};
pub use segments::SegmentNames;
pub(crate) use segments::folded;
pub use settings::{DataOptions, DataSettings, LayoutName, LengthUnit, Names};

use crate::files_memory::FilesMemory;
use files::Folder;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{VolumeFile, image_ending, image_endings};
use series::{DICOM, each_series, series_in};

/// A data set as its folder describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// The folder.
    pub folder: PathBuf,
    /// Its name: `name` of `dataset.json`, or the name of the folder.
    pub name: String,
    /// The layout of its files.
    pub layout: Layout,
    /// The channels of its images.
    pub channels: Vec<Channel>,
    /// Its classes.
    pub labels: Labels,
    /// The fold that each case is validated in, if a list states it for all of them.
    pub folds: BTreeMap<String, u64>,
    /// The file ending of its images, with the dot.
    pub file_ending: String,
    /// The cases with label maps, sorted by id.
    pub cases: Vec<Case>,
    /// The cases without, of `imagesTs`, sorted by id.
    pub test_cases: Vec<Case>,
    /// Warnings about harmless irregularities.
    pub warnings: Vec<String>,
    /// The reservation for the names of its files.
    pub memory: FilesMemory,
}

/// The limit for the names of a data set if the caller has no budget.
const USUAL: Bytes = Bytes::mib(256);

impl Dataset {
    /// Opens a data set whose description says what its classes are, in `dataset.json`, in at most 256 MiB.
    ///
    /// # Errors
    /// If the folder is not a data set, its description is not usable, there are no cases, or a file of a case is
    /// missing. The error names the file.
    pub fn open(folder: impl AsRef<Path>) -> Result<Dataset, DatasetError> {
        Dataset::open_with(folder, &DataOptions::default(), &Budget::new(USUAL))
    }

    /// The path that opens the data set again: its list or table, or its folder if that is enough.
    pub fn place(&self) -> &Path {
        match &self.layout {
            Layout::Table { file, .. } => file,
            // A list in memory has a name, but no file.
            Layout::List { file }
                if file.is_file() && !layout::is_default_description(file, &self.folder) =>
            {
                file
            }
            _ => &self.folder,
        }
    }

    /// The same, with what a user says of it, within a budget.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        folder: impl AsRef<Path>,
        options: &DataOptions,
        budget: &Budget,
    ) -> Result<Dataset, DatasetError> {
        let folder = folder.as_ref();
        let Some(found) = FoundData::find(folder, options, budget)? else {
            return Err(DatasetError::NoDatasetJson { folder: folder.into() });
        };
        match found.labels.clone() {
            Some(labels) => Ok(found.with_labels(labels)),
            None => Err(DatasetError::MissingKey { path: folder.into(), key: "labels" }),
        }
    }

    /// Finds images to predict, all of which must be sound: as [`find_images`](Self::find_images), with the first fault as an error. A file that
    /// is supposed to hold several channels is opened. Takes at most 256 MiB for names.
    ///
    /// # Errors
    /// If there are no images, a channel of a case is missing, or an image that should hold all channels does not.
    pub fn images(
        path: impl AsRef<Path>,
        channels: &[Channel],
        file_ending: &str,
    ) -> Result<Vec<Case>, DatasetError> {
        let budget = Budget::new(USUAL);
        let cases = Dataset::find_images(path, channels, file_ending, &budget)?.expect_all()?;
        for case in cases.iter().filter(|case| case.images.len() > 1 && case.image_files().count() == 1) {
            case.expect_channels()?;
        }
        Ok(cases)
    }

    /// Finds images to predict: `CASE_0000.nii.gz`, `CASE_0001.nii.gz`, … in a folder; or, where no file is named like
    /// that, every file is a case of its own that holds all channels. `path` may also be one such file, or a folder that is one image: a
    /// series of slices. Sorted by id, without label maps. No image is opened: see [`Case::expect_channels`]. The memory that names and
    /// their cases take, including requests and plans for them, is reserved before the folder is listed.
    ///
    /// # Errors
    /// If the folder cannot be read, has no image that can be predicted, or the budget has no room for its names.
    pub fn find_images(
        path: impl AsRef<Path>,
        channels: &[Channel],
        file_ending: &str,
        budget: &Budget,
    ) -> Result<FoundImages, DatasetError> {
        let path = path.as_ref();
        let memory = reserve_images(path, budget)?;
        let is_one = path.is_file() || is_one_image(path, file_ending)?;
        let mut refused = Vec::new();
        let folder = if is_one {
            // `.` and the like have no name of their own.
            let named = match path.file_name() {
                Some(_) => path.to_path_buf(),
                None => path.canonicalize().unwrap_or_else(|_| path.to_path_buf()),
            };
            let parent = named.parent().unwrap_or(Path::new("")).to_path_buf();
            Folder { path: parent, names: vec![names::file_name(&named)], file_ending: file_ending.into() }
        } else {
            let mut folder = Folder::read(path, file_ending)?;
            if file_ending.eq_ignore_ascii_case(DICOM) {
                for (series, found) in each_series(path)? {
                    let added = found.and_then(|is_series| match is_series {
                        true => folder.add_series(&series),
                        false => Ok(()),
                    });
                    if let Err(error) = added {
                        refused.push(RefusedImage { case: names::file_name(&series), error });
                    }
                }
            }
            folder
        };
        let mut found = folder.images_to_predict(is_one, channels);
        found.memory = memory;
        found.refused.splice(..0, refused);
        if found.cases.is_empty() && found.refused.is_empty() {
            return Err(DatasetError::NoCases { folder: path.into(), file_ending: file_ending.into() });
        }
        found.expect_any()
    }

    /// The file ending of the images to predict: `usual`, the ending of the images that a model was trained on,
    /// if any image has it or it is an ending of pictures; else the ending of the image's format, or of most images
    /// in a folder.
    ///
    /// # Errors
    /// If the path cannot be read.
    pub fn input_ending(path: &Path, usual: &str) -> Result<String, DatasetError> {
        if is_picture_ending(usual) || !path.exists() {
            return Ok(usual.into());
        }
        let is_volume = |ending: &&str| !is_picture_ending(ending);
        if path.is_file() || is_one_image(path, usual)? {
            let named = names::file_name(path).ends_with(usual);
            // A folder of slices is a volume, whatever they end in.
            let is_image = |ending: &&str| path.is_dir() || is_volume(ending);
            let found = if named { None } else { image_ending(path)?.filter(is_image) };
            return Ok(found.unwrap_or(usual).into());
        }
        if !Folder::read(path, usual)?.names.is_empty() {
            return Ok(usual.into());
        }
        let mut most = (0, usual);
        for ending in image_endings().filter(is_volume) {
            let count = Folder::read(path, ending)?.names.len();
            if count > most.0 {
                most = (count, ending);
            }
        }
        if most.0 == 0 && !series_in(path)?.is_empty() {
            return Ok(DICOM.into());
        }
        Ok(most.1.into())
    }
}

/// The endings of folders that are one image: slices in TIFF, and OME-Zarr.
const FOLDERS: [&str; 4] = [".tif", ".tiff", ".zarr", ".ome.zarr"];

/// Returns `true` if a folder is one image, by its name or as a series of slices, and has no image whose name
/// ends in `ending`.
fn is_one_image(folder: &Path, ending: &str) -> Result<bool, DatasetError> {
    let is_of_dicom = |name: &String| name.to_ascii_lowercase().ends_with(DICOM);
    let is_other = |name: &String| {
        let lower = name.to_ascii_lowercase();
        ending != DICOM && name.ends_with(ending)
            || image_endings().any(|known| known != DICOM && lower.ends_with(known))
    };
    if !folder.is_dir() {
        return Ok(false);
    }
    // Slices and chunks have names of their own.
    let named = name_ending(&names::file_name(folder)).map(str::to_ascii_lowercase);
    if named.is_some_and(|named| FOLDERS.contains(&&*named)) {
        return Ok(true);
    }
    let names = Folder::read(folder, "")?.names;
    // Of DICOM a folder is an image, and a file with many slices; files with one are slices of the same image.
    let is_image = |path: &Path| {
        path.is_dir() || VolumeFile::open(path).is_ok_and(|file| file.geometry().shape()[0] > 1)
    };
    let first = names.iter().find(|name| is_of_dicom(name));
    if names.iter().any(is_other) || first.is_some_and(|name| is_image(&folder.join(name))) {
        return Ok(false);
    }
    // Several series are as many images.
    if series_in(folder)?.len() > 1 {
        return Ok(false);
    }
    Ok(image_ending(folder)?.is_some())
}
