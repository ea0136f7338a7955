//! Labels into memory of the caller.

use std::path::PathBuf;

use plimsoll_volume::{ElementType, Geometry, NiftiHeader, VolumeError};

use crate::error::InferError;
use crate::labels::label_sink::LabelSink;

/// A buffer with room for a label of each voxel, which is filled from its beginning.
pub struct MemoryLabels<'a> {
    /// The part that is not filled yet.
    rest: &'a mut [u8],
    /// `true` if the buffer has 16 bits per label.
    is_wide: bool,
    /// `true` if the model's labels have 16 bits.
    comes_wide: bool,
}

impl<'a> MemoryLabels<'a> {
    /// Labels of one or two bytes per voxel. All labels of the model must fit.
    pub fn new(buffer: &'a mut [u8], is_wide: bool) -> MemoryLabels<'a> {
        MemoryLabels { rest: buffer, is_wide, comes_wide: is_wide }
    }

    fn wrong_length(&self, needed: usize) -> InferError {
        let (path, found) = (PathBuf::from("the buffer of labels"), self.rest.len());
        InferError::Write(VolumeError::BufferLength { path, needed, found })
    }
}

impl LabelSink for MemoryLabels<'_> {
    fn begin(
        &mut self,
        geometry: &Geometry,
        element: ElementType,
        _: Option<&NiftiHeader>,
    ) -> Result<(), InferError> {
        self.comes_wide = element.size() == 2;
        let needed = geometry.voxel_count().saturating_mul(1 + usize::from(self.is_wide));
        if self.rest.len() == needed { Ok(()) } else { Err(self.wrong_length(needed)) }
    }

    fn write_planes(&mut self, planes: &[u8]) -> Result<(), InferError> {
        let voxels = planes.len() / (1 + usize::from(self.comes_wide));
        let needed = voxels * (1 + usize::from(self.is_wide));
        let rest = std::mem::take(&mut self.rest);
        let Some((now, later)) = rest.split_at_mut_checked(needed) else {
            return Err(self.wrong_length(needed));
        };
        self.rest = later;
        match (self.comes_wide, self.is_wide) {
            (false, false) | (true, true) => now.copy_from_slice(planes),
            (false, true) => {
                for (to, label) in now.as_chunks_mut::<2>().0.iter_mut().zip(planes) {
                    *to = u16::from(*label).to_ne_bytes();
                }
            }
            (true, false) => {
                for (to, label) in now.iter_mut().zip(planes.as_chunks::<2>().0) {
                    // The largest label of the model was checked to fit.
                    *to = u16::from_ne_bytes(*label) as u8;
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), InferError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong_length(0)) }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_volume::{Affine, Spacing};

    use super::*;

    /// The contents of a buffer after labels 3 and 254 in planes of one voxel.
    fn filled(comes: ElementType, is_wide: bool, bytes: usize) -> Result<Vec<u8>, InferError> {
        let geometry = Geometry::new([2, 1, 1], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
        let mut buffer = vec![9; bytes];
        let mut labels = MemoryLabels::new(&mut buffer, is_wide);
        labels.begin(&geometry, comes, None)?;
        for label in [3u16, 254] {
            match comes {
                ElementType::U8 => labels.write_planes(&[label as u8])?,
                _ => labels.write_planes(&label.to_ne_bytes())?,
            }
        }
        labels.finish()?;
        Ok(buffer)
    }

    #[test]
    fn labels_become_as_wide_as_the_buffer_has_them() {
        let wide: Vec<u8> = [3u16, 254].iter().flat_map(|label| label.to_ne_bytes()).collect();
        for comes in [ElementType::U8, ElementType::U16] {
            assert_eq!(filled(comes, false, 2).unwrap(), [3, 254]);
            assert_eq!(filled(comes, true, 4).unwrap(), wide);
            assert!(filled(comes, false, 3).is_err() && filled(comes, true, 2).is_err());
        }
    }

    #[test]
    fn planes_that_are_missing_or_too_many_are_noticed() {
        let geometry = Geometry::new([2, 1, 1], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
        let mut buffer = vec![0; 2];
        let mut labels = MemoryLabels::new(&mut buffer, false);
        labels.begin(&geometry, ElementType::U8, None).unwrap();
        labels.write_planes(&[1]).unwrap();
        assert!(labels.finish().is_err());
        assert!(labels.write_planes(&[1, 1]).is_err());
    }
}
