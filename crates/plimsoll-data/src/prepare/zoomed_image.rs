//! The image that TotalSegmentator hands to nnU-Net, in a file: cut to a box, in the canonical orientation, at the spacing of a task.
//!
//! Networks see this file instead of the stored image if labels are changed before they return to the stored
//! grid, or nnU-Net brings images to its spacing itself.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_volume::{
    Affine, ElementType, Geometry, GeometryError, Spacing, StoredVolume, VolumeFile, VolumeWriter, VoxelBox,
};

use crate::patch::zoom::Zoom;
use crate::prepare::window::Part;
use crate::prepare::zoomed_source::ZoomedSource;
use crate::prepare::{PREPARED_SCRATCH, PrepareError};
use crate::{Case, Scratch, TargetGrid, VolumeCache};

/// An image on the grid of a task: which voxels of the stored image it is made of.
#[derive(Clone, Copy, Debug)]
pub struct ZoomedImage {
    zoom: Zoom,
    stored_shape: [usize; 3],
    spacing: Spacing,
    /// `true` if stored values are truncated to whole numbers: TotalSegmentator does that with the values of a
    /// box.
    is_cut: bool,
}

impl ZoomedImage {
    /// Zooms a stored image, or a box of it, to a spacing in millimetres along depth, height and width of the
    /// canonical orientation, or at its own spacing.
    pub fn new(stored: &Geometry, within: Option<VoxelBox>, spacing: Option<Spacing>) -> ZoomedImage {
        let (canonical, reorientation) = stored.canonical();
        // nibabel, which TotalSegmentator reads images with, has spacings in f32.
        let own = Spacing(canonical.spacing().0.map(|length| f64::from(length as f32)));
        let covered = within.unwrap_or(VoxelBox::whole(stored.shape()));
        let zoom = Zoom::new(covered, reorientation, own, spacing.unwrap_or(own));
        ZoomedImage {
            zoom,
            stored_shape: stored.shape(),
            spacing: spacing.unwrap_or(own),
            is_cut: within.is_some(),
        }
    }

    /// Its shape (depth, height, width).
    pub fn shape(&self) -> [usize; 3] {
        self.zoom.shape()
    }

    /// Its spacing, in millimetres.
    pub fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// The map from its voxels back to the voxels of the stored image.
    pub fn grid(&self) -> TargetGrid {
        TargetGrid::zoomed(self.stored_shape, self.zoom, VoxelBox::whole(self.zoom.shape()))
    }

    /// Its grid: with its spacing, but wherever in the world, as no network looks at that.
    ///
    /// # Errors
    /// If its voxels cannot be numbered.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(self.shape(), Affine::from_spacing(self.spacing))
    }

    /// Writes the image of a case of one channel as `.nii` in f32, plane by plane. What is free of `budget` may hold the decoded image
    /// meanwhile; if that is too little, a compressed one is decompressed into a file without a name beside `to`, and its regions are read
    /// from there.
    ///
    /// # Errors
    /// If a file cannot be read or written, the case has several channels or another shape, the budget has no room for a plane and
    /// [`PREPARED_SCRATCH`], or `stop` is set; nothing is left then.
    pub fn write(
        &self,
        case: &Case,
        to: &Path,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<(), PrepareError> {
        let [image] = case.images.as_slice() else {
            return Err(PrepareError::Channels { found: case.images.len(), expected: 1 });
        };
        let [depth, height, width] = self.shape();
        let mut plane = Mapped::<f32>::zeroed(budget, "a plane of an image", height * width)?;
        let mut scratch = Scratch::new(budget, PREPARED_SCRATCH)?;
        let decoded = StoredVolume::reserves(VolumeFile::open(&image.path)?.stored_bytes());
        let room = decoded.filter(|decoded| *decoded <= budget.free()).unwrap_or(Bytes::ZERO);
        let cache = VolumeCache::new(budget.part("cache", room).map_err(MapError::from)?).spilling_beside(to);
        let mut source = ZoomedSource::open(case, self.zoom, self.stored_shape, self.is_cut, &cache, stop)?;
        let mut writer = VolumeWriter::create(to, &self.geometry()?, 1, ElementType::F32, None)?;
        for d in 0..depth {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Stopped);
            }
            let of_grid = VoxelBox { start: [d, 0, 0], shape: [1, height, width] };
            let part = Part { of_grid, in_window: [0; 3] };
            source.pull(0, part, &mut plane, of_grid.shape, &mut scratch)?;
            writer.write_planes(bytemuck::cast_slice(&plane))?;
        }
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelFile, Reading};
    use plimsoll_volume::Reorientation;

    #[test]
    fn a_box_becomes_a_file_in_the_canonical_orientation_with_whole_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::new(Bytes::mib(32));
        let canonical = Geometry::new([2, 3, 4], Affine::from_spacing(Spacing([3.0, 2.0, 1.5]))).unwrap();
        // Stored with the depth last and reversed.
        let stored =
            Reorientation::new([1, 2, 0], [false, false, true]).unwrap().inverse().geometry(&canonical);
        let path = folder.path().join("image.nii.gz");
        let mut writer = VolumeWriter::create(&path, &stored, 1, ElementType::F32, None).unwrap();
        let values: Vec<f32> = (0..24).map(|value| value as f32 + 0.75).collect();
        writer.write_planes(bytemuck::cast_slice(&values)).unwrap();
        writer.finish().unwrap();
        let case = Case {
            id: "case".into(),
            images: vec![ChannelFile { path, index: 0 }],
            label: None,
            reading: Reading::default(),
        };
        let stored_shape = stored.shape();
        let within =
            VoxelBox { start: [1, 0, 0], shape: [stored_shape[0] - 1, stored_shape[1], stored_shape[2]] };
        let image = ZoomedImage::new(&stored, Some(within), None);
        let to = folder.path().join("seen.nii");
        image.write(&case, &to, &budget, &AtomicBool::new(false)).unwrap();
        let seen = StoredVolume::read(&to, &budget, "test").unwrap();
        assert_eq!(seen.geometry().shape(), image.shape());
        assert_eq!(seen.geometry().spacing().0, [3.0, 2.0, 1.5]);
        let found: Vec<f32> = bytemuck::pod_collect_to_vec(seen.bytes());
        let grid = image.grid();
        let [_, height, width] = image.shape();
        for index in 0..24 {
            let at = [
                index / (stored_shape[1] * stored_shape[2]),
                index / stored_shape[2] % stored_shape[1],
                index % stored_shape[2],
            ];
            let mut place = [0; 3];
            let mut is_covered = true;
            for axis in 0..3 {
                match grid.place(axis, at[axis]) {
                    Some(found) => place[grid.axis_of(axis).0] = found as usize,
                    None => is_covered = false,
                }
            }
            assert_eq!(is_covered, at[0] >= 1);
            if is_covered {
                assert_eq!(found[(place[0] * height + place[1]) * width + place[2]], index as f32);
            }
        }
        // No output of a refused image is left.
        let none = folder.path().join("none.nii");
        assert!(image.write(&case, &none, &Budget::new(Bytes::mib(1)), &AtomicBool::new(false)).is_err());
        assert!(!none.exists());
    }
}
