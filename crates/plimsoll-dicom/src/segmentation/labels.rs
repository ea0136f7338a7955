//! The planes of a label map, with the numbers of segments in the places of values.

use std::path::Path;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{ElementType, VolumeFile, VoxelBox};

use super::segments::Segments;
use crate::DicomError;

/// A label map that is read plane by plane, one of which is held.
pub(super) struct LabelPlanes {
    file: VolumeFile,
    /// Rows and columns.
    size: [usize; 2],
    /// Tells whether labels have 16 bits.
    is_wide: bool,
    stored: Mapped<u8>,
    numbers: Mapped<u16>,
    /// The number of the segment of each value; 0 for a value without one, and for all values beyond the end.
    number_of: Mapped<u16>,
}

impl LabelPlanes {
    /// Opens a label map of this shape.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened, has another shape, or the budget has no room.
    pub(super) fn open(
        labels: &Path,
        expected: [usize; 3],
        segments: &Segments,
        budget: &Budget,
    ) -> Result<LabelPlanes, DicomError> {
        let mut file = VolumeFile::open_labels(labels)?;
        file.decode(budget)?;
        let found = file.geometry().shape();
        if found != expected {
            return Err(DicomError::OtherShape { path: labels.into(), found, expected });
        }
        let [_, height, width] = found;
        let is_wide = file.element_type() == ElementType::U16 && file.scaling().is_none();
        let pixels = height * width;
        let values = segments.all().iter().map(|segment| usize::from(segment.value) + 1).max();
        let mut number_of =
            Mapped::<u16>::zeroed(budget, "numbers of segments", values.map_or(1, |values| values))?;
        for segment in segments.all() {
            if let Some(number) = number_of.get_mut(usize::from(segment.value)) {
                *number = segment.number;
            }
        }
        Ok(LabelPlanes {
            file,
            size: [height, width],
            is_wide,
            stored: Mapped::zeroed(budget, "a plane of labels", pixels * if is_wide { 2 } else { 1 })?,
            numbers: Mapped::zeroed(budget, "a plane of labels", pixels)?,
            number_of,
        })
    }

    /// Reads a plane: of each pixel the number of its segment, 0 where it has none.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub(super) fn plane(&mut self, slice: usize) -> Result<&[u16], DicomError> {
        let [height, width] = self.size;
        let region = VoxelBox { start: [slice, 0, 0], shape: [1, height, width] };
        let number_of = &self.number_of;
        // A value beyond the end has no name: it is background.
        let number = |value: usize| number_of.get(value).copied().unwrap_or(0);
        if self.is_wide {
            self.file.read_region(0, region, &mut self.stored)?;
            let stored = self.stored.as_chunks::<2>().0;
            for (to, value) in self.numbers.iter_mut().zip(stored) {
                *to = number(usize::from(u16::from_ne_bytes(*value)));
            }
        } else {
            self.file.region_labels(0, region, &mut self.stored)?;
            for (to, value) in self.numbers.iter_mut().zip(self.stored.iter()) {
                *to = number(usize::from(*value));
            }
        }
        Ok(&self.numbers)
    }

    /// The plane that was read last.
    pub(super) fn current(&self) -> &[u16] {
        &self.numbers
    }
}
