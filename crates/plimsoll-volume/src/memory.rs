//! Images that callers have in memory, as files that no folder has.
//!
//! Everything that reads images reads files, by regions and from several threads. An image in memory is copied once into a
//! [`MemoryFile`], and is read there like any other.

use std::io;
use std::path::Path;

use plimsoll_disk::MemoryFile;
use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};

use crate::nifti::NiftiHeader;
use crate::{ElementType, Geometry};

/// An image in a file of memory, which exists as long as this.
#[derive(Debug)]
pub struct MemoryVolume {
    file: MemoryFile,
    _held: Reservation,
}

/// Why an image could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum MemoryVolumeError {
    /// The budget has no room for the copy.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// The buffer is not as long as the grid asks for.
    #[error("an image of shape {shape:?} in {} takes {} bytes, but the buffer has {found}", element.name(), one_of(*needed))]
    Length {
        /// Depth, height, width.
        shape: [usize; 3],
        /// The type of a stored voxel.
        element: ElementType,
        /// Bytes of such an image; none if they do not fit the address space.
        needed: Option<usize>,
        /// Bytes that were given.
        found: usize,
    },
    /// The system refused.
    #[error("an image in memory cannot be copied: {0}")]
    Io(#[from] io::Error),
}

fn one_of(needed: Option<usize>) -> String {
    needed.map_or_else(|| "more than the address space has".into(), |bytes| bytes.to_string())
}

impl MemoryVolume {
    /// Bytes that [`new`](Self::new) reserves for an image; none if they do not fit the address space.
    pub fn reserves(geometry: &Geometry, element: ElementType) -> Option<Bytes> {
        const HEADER_AND_PAGE: usize = 8192;
        let bytes = geometry.voxel_count().checked_mul(element.size())?.checked_add(HEADER_AND_PAGE)?;
        u64::try_from(bytes).ok().map(Bytes)
    }

    /// Copies an image of one channel, `[depth][height][width]` in this machine's byte order. Its position is kept as NIfTI keeps it, in
    /// single precision.
    ///
    /// # Errors
    /// Returns an error if `voxels` does not have the length of the grid, the budget has no room, or the system
    /// refuses.
    pub fn new(
        geometry: &Geometry,
        element: ElementType,
        voxels: &[u8],
        budget: &Budget,
    ) -> Result<MemoryVolume, MemoryVolumeError> {
        let needed = geometry.voxel_count().checked_mul(element.size());
        let reserves = MemoryVolume::reserves(geometry, element).filter(|_| needed == Some(voxels.len()));
        let Some(bytes) = reserves else {
            let (shape, found) = (geometry.shape(), voxels.len());
            return Err(MemoryVolumeError::Length { shape, element, needed, found });
        };
        let _held = budget.reserve("image", bytes)?;
        let mut file = MemoryFile::create("plimsoll-image")?;
        file.write_all(&NiftiHeader::for_geometry(geometry, 1, element).encode(None))?;
        file.write_all(voxels)?;
        Ok(MemoryVolume { file, _held })
    }

    /// The path by which this process reads it.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Affine, Spacing, VolumeFile, VoxelBox};

    #[test]
    fn an_image_in_memory_is_read_like_a_file_and_its_bytes_are_reserved() {
        let budget = Budget::new(Bytes::mib(1));
        let affine = Affine::from_spacing(Spacing([3.0, 1.5, 0.5]));
        let geometry = Geometry::new([2, 3, 4], affine).unwrap();
        let voxels: Vec<i16> = (-12..12).collect();
        let volume =
            MemoryVolume::new(&geometry, ElementType::I16, bytemuck::cast_slice(&voxels), &budget).unwrap();
        assert_eq!(budget.used(), MemoryVolume::reserves(&geometry, ElementType::I16).unwrap());
        let mut file = VolumeFile::open(volume.path()).unwrap();
        let mut other = VolumeFile::open(volume.path()).unwrap();
        assert_eq!(file.geometry(), &geometry);
        assert_eq!(file.stated_spacing(), Spacing([3.0, 1.5, 0.5]));
        let (mut found, mut last) = ([0.0; 24], [0.0; 1]);
        file.region_f32(0, VoxelBox::whole([2, 3, 4]), &mut found).unwrap();
        other.region_f32(0, VoxelBox { start: [1, 2, 3], shape: [1; 3] }, &mut last).unwrap();
        assert_eq!(found.map(|value| value as i16).to_vec(), voxels);
        assert_eq!(last, [11.0]);
        drop(volume);
        assert_eq!(budget.used(), Bytes::ZERO);
    }

    #[test]
    fn a_buffer_of_another_length_and_a_limit_that_is_too_low_are_refused() {
        let geometry = Geometry::new([64; 3], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
        let voxels = vec![0; 64 * 64 * 64];
        let short = MemoryVolume::new(&geometry, ElementType::F32, &voxels, &Budget::new(Bytes::mib(8)));
        let text = short.unwrap_err().to_string();
        assert!(text.contains("1048576") && text.contains("262144"), "{text}");
        let low = MemoryVolume::new(&geometry, ElementType::U8, &voxels, &Budget::new(Bytes(1000)));
        assert!(matches!(low, Err(MemoryVolumeError::OverBudget(_))));
    }
}
