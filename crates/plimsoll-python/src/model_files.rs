//! Images and label maps that jobs exchange with arrays through files.

use std::path::Path;

use plimsoll_infer::InferError;
use plimsoll_postprocess::LabelMap;
use plimsoll_volume::{ElementType, Geometry, VolumeError, VolumeFile, VolumeWriter};

use crate::Failure;
use crate::model::budget_within;

/// Writes an image of one channel to a file, in the format of its name.
///
/// # Errors
/// If the voxels do not have the length of the grid, or the file cannot be written. Nothing half-written is left.
pub fn write_image(
    path: &Path,
    geometry: Geometry,
    element: ElementType,
    voxels: &[u8],
) -> Result<(), Failure> {
    let written = || -> Result<(), VolumeError> {
        let mut writer = VolumeWriter::create(path, &geometry, 1, element, None)?;
        writer.write_planes(voxels)?;
        writer.finish()
    };
    Ok(written().map_err(InferError::Write)?)
}

/// Returns depth, height, width of the image in a file.
///
/// # Errors
/// If it cannot be read.
pub fn image_shape(path: &Path) -> Result<[usize; 3], Failure> {
    let file = VolumeFile::open(path).map_err(InferError::from)?;
    Ok(file.geometry().shape())
}

/// Copies the labels of a file.
///
/// # Errors
/// If it cannot be read, has another number of voxels, or has a label above 255.
pub fn read_labels(path: &Path, labels: &mut [u8]) -> Result<(), Failure> {
    let map = LabelMap::read(path, &budget_within(None))
        .map_err(|error| Failure::Failed { message: error.to_string(), remedy: error.remedy() })?;
    if map.labels().len() != labels.len() {
        return Err(Failure::argument("labels", "do not have the shape of the file"));
    }
    for (to, label) in labels.iter_mut().zip(map.labels()) {
        *to = u8::try_from(*label).map_err(|_| Failure::argument("labels", "are above 255"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use plimsoll_volume::{Affine, Spacing};

    use super::*;

    #[test]
    fn labels_are_read_as_they_were_written() {
        let folder = std::env::temp_dir().join(format!("plimsoll-python-{}", std::process::id()));
        plimsoll_disk::create_dir_all(&folder).unwrap();
        let path = folder.join("labels.nii");
        let geometry = Geometry::new([2, 1, 3], Affine::from_spacing(Spacing([2.0, 1.0, 0.5]))).unwrap();
        write_image(&path, geometry, ElementType::U8, &[1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(image_shape(&path).unwrap(), [2, 1, 3]);
        let mut labels = [0; 6];
        read_labels(&path, &mut labels).unwrap();
        assert_eq!(labels, [1, 2, 3, 4, 5, 6]);
        assert!(read_labels(&path, &mut [0; 5]).is_err());
        assert!(write_image(&path, geometry, ElementType::U8, &[1, 2, 3]).is_err());
        assert_eq!(image_shape(&path).unwrap(), [2, 1, 3]);
        plimsoll_disk::remove_folder(&folder).ok();
    }
}
