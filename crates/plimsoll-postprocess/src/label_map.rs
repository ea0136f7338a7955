//! A label map in memory.

use std::path::Path;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{
    Content, ElementType, Geometry, LabelValues, NiftiHeader, Spacing, VolumeFile, VolumeWriter, VoxelBox,
};

use crate::PostprocessError;

/// The largest label that 8 bits hold.
const LARGEST_OF_8: u16 = 255;

/// The tolerance of scaled values, whose slope is stored with few digits. Without scaling, a label must be a whole number.
const SCALED_TOLERANCE: f32 = 1e-3;

/// A label map with all that it is written back with.
pub struct LabelMap {
    labels: Mapped<u16>,
    geometry: Geometry,
    element: ElementType,
    header: Option<NiftiHeader>,
    /// The unit of length of its header, in millimetres.
    millimetres_per_unit: f64,
}

impl LabelMap {
    /// Reads a file of whole numbers from 0 to 65535, of whatever type they are stored as, plane by plane.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, has several channels or a voxel that is no label, or the budget has no room for two bytes for each voxel
    /// and a plane.
    pub fn read(path: &Path, budget: &Budget) -> Result<LabelMap, PostprocessError> {
        LabelMap::from_file(VolumeFile::open_labels(path)?, path, budget)
    }

    /// Reads a file whose values are to be [replaced](Self::replace), on a grid that it may have a part of.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read), and an error if classes follow from names of segments alone, and no values are given.
    pub(crate) fn read_on(
        path: &Path,
        on: Geometry,
        values: Option<&LabelValues>,
        budget: &Budget,
    ) -> Result<LabelMap, PostprocessError> {
        let file = VolumeFile::open_as(path, Content::Segments { on: Some(on) })?;
        file.expect_values(values)?;
        LabelMap::from_file(file, path, budget)
    }

    fn from_file(mut file: VolumeFile, path: &Path, budget: &Budget) -> Result<LabelMap, PostprocessError> {
        if file.channels() != 1 {
            return Err(PostprocessError::Channels { path: path.into(), channels: file.channels() });
        }
        file.decode(budget)?;
        let geometry = *file.geometry();
        let [depth, height, width] = geometry.shape();
        let mut labels = Mapped::<u16>::zeroed(budget, "labels", geometry.voxel_count())?;
        let mut plane = Mapped::<f32>::zeroed(budget, "a plane of labels", height * width)?;
        let tolerance = if file.scaling().is_none() { 0.0 } else { SCALED_TOLERANCE };
        let mut largest = 0;
        for (d, to) in (0..depth).zip(labels.chunks_mut((height * width).max(1))) {
            file.region_f32(0, VoxelBox { start: [d, 0, 0], shape: [1, height, width] }, &mut plane)?;
            for (place, (label, value)) in to.iter_mut().zip(plane.iter()).enumerate() {
                // The cast saturates, and gives 0 for what is no number: only labels stay what they are.
                *label = (*value + 0.5) as u16;
                let is_label = (f32::from(*label) - *value).abs() <= tolerance;
                if !is_label {
                    let voxel = [d, place / width.max(1), place % width.max(1)];
                    return Err(PostprocessError::NotALabel { path: path.into(), voxel, value: *value });
                }
                largest = largest.max(*label);
            }
        }
        let element = match file.element_type() {
            kept @ ElementType::U16 => kept,
            // Scaled values of 8 bits may be larger than these.
            _ if largest <= LARGEST_OF_8 => ElementType::U8,
            _ => ElementType::U16,
        };
        let millimetres_per_unit = file.millimetres_per_unit();
        Ok(LabelMap { labels, geometry, element, header: file.header().cloned(), millimetres_per_unit })
    }

    /// Writes it: 16 bits where it was stored as these, or else as its labels need, with the header that it had.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, or the budget has no room for a plane.
    pub fn write(&self, path: &Path, budget: &Budget) -> Result<(), PostprocessError> {
        let mut writer = VolumeWriter::create(path, &self.geometry, 1, self.element, self.header.as_ref())?;
        let mut bytes = Mapped::<u8>::zeroed(budget, "a plane of labels", writer.plane_bytes())?;
        let [_, height, width] = self.geometry.shape();
        for plane in self.labels.chunks((height * width).max(1)) {
            match self.element {
                // No step gives a voxel a label that was not in the map.
                ElementType::U8 => bytes.iter_mut().zip(plane).for_each(|(byte, label)| *byte = *label as u8),
                _ => {
                    let pairs = bytes.as_chunks_mut::<2>().0;
                    pairs.iter_mut().zip(plane).for_each(|(pair, label)| *pair = label.to_ne_bytes());
                }
            }
            writer.write_planes(&bytes)?;
        }
        Ok(writer.finish()?)
    }

    /// Replaces values by the labels that they stand for. `path` is where they are from.
    ///
    /// # Errors
    /// Returns an error if a value denotes no label.
    pub(crate) fn replace(&mut self, path: &Path, values: &LabelValues) -> Result<(), PostprocessError> {
        let [_, height, width] = self.geometry.shape();
        for (at, label) in self.labels.iter_mut().enumerate() {
            let path = || path.to_path_buf();
            let voxel = [at / (height * width), at / width % height, at % width];
            let value = u8::try_from(*label).map_err(|_| PostprocessError::NotALabel {
                path: path(),
                voxel,
                value: f32::from(*label),
            })?;
            let class = values.class(value);
            *label = class.ok_or_else(|| values.unknown(&path(), voxel, value))?.into();
        }
        Ok(())
    }

    /// From one voxel to the next, in millimetres. `unit` is what lengths in its header are in, in millimetres, whatever it says; none
    /// where it is right.
    pub fn spacing(&self, unit: Option<f64>) -> Spacing {
        let scale = unit.map_or(1.0, |unit| unit / self.millimetres_per_unit);
        Spacing(self.geometry.spacing().0.map(|length| length * scale))
    }

    /// The same with labels on another grid. A header says where the old one was, so that another is written.
    pub(crate) fn on(self, geometry: Geometry, labels: Mapped<u16>) -> LabelMap {
        LabelMap { labels, geometry, header: None, ..self }
    }

    /// The grid.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The labels, `[depth][height][width]`.
    pub fn labels(&self) -> &[u16] {
        &self.labels
    }

    /// The same, to be changed.
    pub fn labels_mut(&mut self) -> &mut [u16] {
        &mut self.labels
    }
}
