//! Images without labels, to be predicted.

use std::path::Path;

use plimsoll_memory::Budget;

use super::folder::is_image;
use super::{DatasetError, ImageCase, ImageDataset, list, reserve};

impl ImageDataset {
    /// Lists one image, or the images of a folder, those in folders of it left out. There are no classes, and no labels.
    ///
    /// # Errors
    /// If the folder cannot be read, there are no images, or the memory is not available.
    pub fn unlabelled(place: impl AsRef<Path>, budget: &Budget) -> Result<ImageDataset, DatasetError> {
        let place = place.as_ref();
        let is_folder =
            plimsoll_disk::metadata(place).map_err(|source| DatasetError::io(place, source))?.is_dir();
        let (mut paths, _names) = match is_folder {
            true => list(place, budget).map(|(paths, names)| (paths, Some(names)))?,
            false => (vec![place.to_path_buf()], None),
        };
        paths.retain(|path| is_image(path));
        if paths.is_empty() {
            return Err(DatasetError::NoCases { path: place.into() });
        }
        paths.sort();
        let text = paths.iter().map(|path| 2 * path.as_os_str().len() as u64).sum();
        let memory = reserve(budget, paths.len(), text).map_err(DatasetError::memory(place))?;
        let cases = paths.into_iter().map(|path| ImageCase {
            name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            labels: Vec::new(),
            group: None,
            split: None,
            path,
        });
        Ok(ImageDataset {
            classes: Vec::new(),
            multi_label: false,
            cases: cases.collect(),
            warnings: Vec::new(),
            memory: vec![memory],
        })
    }
}
