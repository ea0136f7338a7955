//! The structure of a data set: channels, labels, cases and their files. No image is decoded here.
//!
//! Two layouts are supported: nnU-Net's raw format (`imagesTr/CASE_0000.nii.gz` per channel, `labelsTr/CASE.nii.gz`)
//! and that of the Medical Segmentation Decathlon (`dataset.json` lists pairs of an image, 4D if it has channels, and a
//! label map). Images are NIfTI, or pictures of which one file may hold all channels: an RGB image `CASE_0000.png` has three.

mod case;
mod error;
mod files;
mod json;
mod labels;

use std::path::{Path, PathBuf};

pub use case::{Case, Channel, ChannelFile, is_case_name};
pub use error::DatasetError;
pub use json::{is_image_ending, is_picture_ending, label_ending, prediction_ending};
pub use labels::Labels;

use files::Folder;
use json::Description;
use plimsoll_volume::VolumeFile;

/// A data set as its folder describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// The folder.
    pub folder: PathBuf,
    /// Its name: `name` of `dataset.json`, or the name of the folder.
    pub name: String,
    /// The channels of its images.
    pub channels: Vec<Channel>,
    /// Its classes.
    pub labels: Labels,
    /// The file ending of its images, with the dot.
    pub file_ending: String,
    /// The cases with label maps, sorted by id.
    pub cases: Vec<Case>,
    /// The cases without, of `imagesTs`, sorted by id.
    pub test_cases: Vec<Case>,
    /// Warnings about harmless irregularities.
    pub warnings: Vec<String>,
}

impl Dataset {
    /// Reads `dataset.json` and finds the files of each case.
    ///
    /// # Errors
    /// If the folder is not a data set, its description is not usable, there are no cases, or a file of a case is
    /// missing. The error names the file.
    pub fn open(folder: impl AsRef<Path>) -> Result<Dataset, DatasetError> {
        let folder = folder.as_ref();
        let description = Description::read(folder)?;
        let channels = description.channels()?;
        let labels = Labels::from_json(&description.path, &description.labels)?;
        let file_ending = description.file_ending()?;
        let mut warnings = Vec::new();
        let (cases, test_cases) = match description.listed_cases() {
            Some(list) => (
                files::listed(folder, list.training, &channels, &file_ending, true)?,
                files::listed(folder, list.test, &channels, &file_ending, false)?,
            ),
            None => {
                let images = Folder::read(&folder.join("imagesTr"), &file_ending)?;
                let mut cases = images.channel_cases(&channels, &mut warnings)?;
                let labels = folder.join("labelsTr");
                let mut label_maps = Folder::read(&labels, label_ending(&file_ending))?;
                if label_maps.names.is_empty() {
                    // Of a format that is refused once its files are opened, by their names.
                    label_maps = Folder::read(&labels, &file_ending)?;
                }
                label_maps.give_labels(&mut cases, &mut warnings)?;
                let test_folder = folder.join("imagesTs");
                let test_cases = if test_folder.is_dir() {
                    Folder::read(&test_folder, &file_ending)?.channel_cases(&channels, &mut warnings)?
                } else {
                    Vec::new()
                };
                (cases, test_cases)
            }
        };
        if cases.is_empty() {
            return Err(DatasetError::NoCases { folder: folder.join("imagesTr"), file_ending });
        }
        if let Some(said) = description.training_cases
            && said != cases.len() as u64
        {
            let path = description.path.display();
            warnings.push(format!("{path}: `numTraining` is {said}, but there are {} cases", cases.len()));
        }
        let name = description.name.clone().unwrap_or_else(|| folder_name(folder));
        let folder = folder.to_path_buf();
        Ok(Dataset { folder, name, channels, labels, file_ending, cases, test_cases, warnings })
    }

    /// Finds images to predict: `CASE_0000.nii.gz`, `CASE_0001.nii.gz`, … in a folder; or, where no file is named like
    /// that, every file is a case of its own that holds all channels. `path` may also be one such file. Sorted by id,
    /// without label maps.
    ///
    /// # Errors
    /// If there are no images, a channel of a case is missing, or an image that should hold all channels does not.
    pub fn images(
        path: impl AsRef<Path>,
        channels: &[Channel],
        file_ending: &str,
    ) -> Result<Vec<Case>, DatasetError> {
        let path = path.as_ref();
        let folder = if path.is_file() {
            let parent = path.parent().unwrap_or(Path::new("")).to_path_buf();
            Folder { path: parent, names: vec![files::file_name(path)], file_ending: file_ending.into() }
        } else {
            Folder::read(path, file_ending)?
        };
        let cases = folder.cases_to_predict(path.is_file(), channels)?;
        if cases.is_empty() {
            return Err(DatasetError::NoCases { folder: path.into(), file_ending: file_ending.into() });
        }
        // A file that is supposed to hold several channels is checked before prediction starts.
        for case in
            cases.iter().filter(|case| channels.len() > 1 && case.images[0].path == case.images[1].path)
        {
            let path = &case.images[0].path;
            let found = VolumeFile::open(path)?.channels();
            if found != channels.len() {
                return Err(DatasetError::ChannelCount {
                    path: path.clone(),
                    found,
                    expected: channels.len(),
                });
            }
        }
        Ok(cases)
    }
}

fn folder_name(folder: &Path) -> String {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    files::file_name(&absolute)
}
