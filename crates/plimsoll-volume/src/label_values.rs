//! Label maps whose values are not the numbers of classes: 0 and 255 for background and vessel, or numbers that mean what the file itself
//! says.

use std::path::Path;

use crate::{Segments, VolumeError, VoxelBox};

/// The class of each value of a label map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelValues {
    classes: Box<[Option<u8>; 256]>,
    /// The names that the file gives its values, if classes follow from these.
    segments: Option<Box<Segments>>,
}

impl LabelValues {
    /// From pairs of a value and its class. A value that no pair has denotes no class.
    pub fn new(pairs: impl IntoIterator<Item = (u8, u8)>) -> LabelValues {
        let mut classes = Box::new([None; 256]);
        for (value, class) in pairs {
            classes[usize::from(value)] = Some(class);
        }
        LabelValues { classes, segments: None }
    }

    /// The classes of a file that names its values. `class` is the class of a voxel that is in segments of these names, if there is one. 0 is the
    /// background, unless its name is a class.
    pub fn from_segments(segments: &Segments, class: impl Fn(&[&str]) -> Option<u8>) -> LabelValues {
        let mut classes = Box::new([None; 256]);
        classes[0] = Some(0);
        for code in segments.codes() {
            let found = class(&segments.names_of(code));
            // Tables call the background "???", "Clear Label", or nothing.
            classes[usize::from(code)] = if code == 0 { found.or(Some(0)) } else { found };
        }
        LabelValues { classes, segments: Some(Box::new(segments.clone())) }
    }

    /// A value as messages show it: with the names that its file gives it, if classes follow from names.
    pub fn shown(&self, value: u8) -> String {
        let Some(segments) = &self.segments else { return value.to_string() };
        let names = segments.names_of(value);
        let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        match quoted.len() {
            0 => format!("{value}, which has no name in the file"),
            1 => format!("{} (the value {value})", quoted[0]),
            _ => format!("{} at once", quoted.join(" and ")),
        }
    }

    /// Returns `true` if classes follow from names in the file.
    pub fn are_by_name(&self) -> bool {
        self.segments.is_some()
    }

    /// The error of a voxel whose value has no class.
    pub fn unknown(&self, path: &Path, voxel: [usize; 3], value: u8) -> VolumeError {
        match self.segments {
            None => VolumeError::UnknownLabel { path: path.into(), voxel, value },
            Some(_) => VolumeError::UnknownSegment { path: path.into(), voxel, found: self.shown(value) },
        }
    }

    /// The class of a value.
    pub fn class(&self, value: u8) -> Option<u8> {
        self.classes[usize::from(value)]
    }

    /// Replaces values that were read from a region of a file, `[depth][height][width]`, by their classes.
    ///
    /// # Errors
    /// Returns an error if a value denotes no class.
    pub fn replace(&self, path: &Path, region: VoxelBox, labels: &mut [u8]) -> Result<(), VolumeError> {
        let [_, height, width] = region.shape;
        for (at, label) in labels.iter_mut().enumerate() {
            *label = self.class(*label).ok_or_else(|| {
                let within = [at / (height * width), at / width % height, at % width];
                let voxel = [0, 1, 2].map(|axis| region.start[axis] + within[axis]);
                self.unknown(path, voxel, *label)
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
