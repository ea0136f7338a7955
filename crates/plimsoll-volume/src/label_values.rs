//! Label maps whose values are not the numbers of classes: 0 and 255 for background and vessel, say.

use std::path::Path;

use crate::{VolumeError, VoxelBox};

/// Which class each value of a label map stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelValues {
    classes: Box<[Option<u8>; 256]>,
}

impl LabelValues {
    /// From pairs of a value and its class. A value that no pair has stands for no class.
    pub fn new(pairs: impl IntoIterator<Item = (u8, u8)>) -> LabelValues {
        let mut classes = Box::new([None; 256]);
        for (value, class) in pairs {
            classes[usize::from(value)] = Some(class);
        }
        LabelValues { classes }
    }

    /// The class of a value.
    pub fn class(&self, value: u8) -> Option<u8> {
        self.classes[usize::from(value)]
    }

    /// Replaces values that were read from a region of a file, `[depth][height][width]`, by their classes.
    ///
    /// # Errors
    /// If a value stands for no class.
    pub fn replace(&self, path: &Path, region: VoxelBox, labels: &mut [u8]) -> Result<(), VolumeError> {
        let [_, height, width] = region.shape;
        for (at, label) in labels.iter_mut().enumerate() {
            *label = self.class(*label).ok_or_else(|| {
                let within = [at / (height * width), at / width % height, at % width];
                let voxel = [0, 1, 2].map(|axis| region.start[axis] + within[axis]);
                VolumeError::UnknownLabel { path: path.into(), voxel, value: *label }
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_classes_and_an_unknown_one_is_named_with_its_voxel() {
        let values = LabelValues::new([(0, 0), (255, 1), (128, 2)]);
        let region = VoxelBox { start: [4, 0, 2], shape: [2, 1, 2] };
        let mut labels = [0, 255, 128, 255];
        values.replace(Path::new("a.nii"), region, &mut labels).unwrap();
        assert_eq!(labels, [0, 1, 2, 1]);
        let said = values.replace(Path::new("a.nii"), region, &mut [0, 0, 0, 7]).unwrap_err();
        assert!(matches!(said, VolumeError::UnknownLabel { voxel: [5, 0, 3], value: 7, .. }), "{said}");
    }
}
