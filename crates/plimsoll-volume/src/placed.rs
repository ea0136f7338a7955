//! A segmentation that has a part of its image's grid, read as if it had all of it.
//!
//! 3D Slicer crops files to the box that has all segments. Voxels beyond it are background.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes};

use crate::source::{Opened, VoxelSource};
use crate::{Geometry, IndexFolder, VolumeError};

/// The most that a voxel may be beside a voxel of the image's grid, as a share of a voxel: origins are written with few digits.
const TOLERANCE: f64 = 0.02;

/// Voxels of a box of a grid, in that grid.
struct Placed {
    inner: Box<dyn VoxelSource>,
    /// The first voxel of the box, and its shape.
    start: [usize; 3],
    shape: [usize; 3],
    /// The shape of the grid.
    whole: [usize; 3],
    /// Bytes of a voxel.
    size: usize,
}

/// An opened label map on a grid that it is a part of: voxels beyond it are 0. One that is not a part of the grid stays as it is.
pub(crate) fn placed_on(opened: Opened, grid: &Geometry) -> Opened {
    let own = opened.layout.geometry;
    if own.shape() == grid.shape() || opened.layout.channels != 1 {
        return opened;
    }
    let Some(start) = start_in(&own, grid) else { return opened };
    let size = opened.layout.element_type.size();
    let Some(bytes) = crate::layout::bytes_of(&grid.shape(), opened.layout.element_type) else {
        return opened;
    };
    let inner = opened.source;
    let source = Box::new(Placed { inner, start, shape: own.shape(), whole: grid.shape(), size });
    let layout = crate::layout::Layout { geometry: *grid, bytes, ..opened.layout };
    Opened { layout, source, ..opened }
}

/// The voxel of a grid where another begins whose voxels are at voxels of the first, or would be if it were continued; `None` if they are
/// not.
fn offset_in(part: &Geometry, grid: &Geometry) -> Option<[f64; 3]> {
    let voxel = |index: [f64; 3]| grid.world_to_voxel(part.voxel_to_world(index));
    let start = voxel([0.0; 3]).map(f64::round);
    let is_at = |index: [usize; 3]| {
        let found = voxel(index.map(|at| at as f64));
        (0..3).all(|axis| (found[axis] - start[axis] - index[axis] as f64).abs() <= TOLERANCE)
    };
    let shape = part.shape();
    let mut corners = vec![[0; 3]];
    for axis in 0..3 {
        let mut corner = [0; 3];
        corner[axis] = shape[axis] - 1;
        corners.push(corner);
    }
    corners.into_iter().all(is_at).then_some(start)
}

/// The voxel of a grid where a part of it begins; none if it is no part of it.
fn start_in(part: &Geometry, grid: &Geometry) -> Option<[usize; 3]> {
    let start = offset_in(part, grid)?;
    let shape = part.shape();
    let is_within = (0..3)
        .all(|axis| start[axis] >= 0.0 && start[axis] + shape[axis] as f64 <= grid.shape()[axis] as f64);
    // Within the grid, so that no cast saturates.
    is_within.then(|| start.map(|at| at as usize))
}

impl Geometry {
    /// The smallest grid that has all voxels of two; `None` if voxels of one are not at voxels of the other continued, or no grid can have as
    /// many.
    pub fn union(&self, other: &Geometry) -> Option<Geometry> {
        let start = offset_in(other, self)?;
        let (own, others) =
            (self.shape().map(|length| length as f64), other.shape().map(|length| length as f64));
        let low = start.map(|at| at.min(0.0));
        let shape: [f64; 3] =
            std::array::from_fn(|axis| own[axis].max(start[axis] + others[axis]) - low[axis]);
        let origin = self.voxel_to_world(low);
        let mut affine = *self.affine();
        for (row, at) in affine.0.iter_mut().zip(origin) {
            row[3] = at;
        }
        // A length beyond all numbers saturates, and no grid has it.
        Geometry::new(shape.map(|length| length as usize), affine).ok()
    }
}

impl VoxelSource for Placed {
    fn read(&mut self, channel: usize, first: usize, bytes: &mut [u8]) -> Result<(), VolumeError> {
        bytes.fill(0);
        let [_, height, width] = self.whole;
        let count = bytes.len() / self.size;
        let mut at = first;
        // Row by row of the grid, of which the box has a part or nothing.
        while at < first + count {
            let [z, y, x] = [at / (height * width), at / width % height, at % width];
            let row_end = (at + width - x).min(first + count);
            if let Some(z) = z.checked_sub(self.start[0]).filter(|z| *z < self.shape[0])
                && let Some(y) = y.checked_sub(self.start[1]).filter(|y| *y < self.shape[1])
            {
                let (from, to) =
                    (x.max(self.start[2]), (x + row_end - at).min(self.start[2] + self.shape[2]));
                if from < to {
                    let inside = (z * self.shape[1] + y) * self.shape[2] + from - self.start[2];
                    let place = at - first + from - x;
                    let part = &mut bytes[place * self.size..(place + to - from) * self.size];
                    self.inner.read(channel, inside, part)?;
                }
            }
            at = row_end;
        }
        Ok(())
    }

    fn decoding_bytes(&self) -> Bytes {
        self.inner.decoding_bytes()
    }

    fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        self.inner.decode(budget)
    }

    fn is_compressed(&self) -> bool {
        self.inner.is_compressed()
    }

    fn is_random_access(&self) -> bool {
        self.inner.is_random_access()
    }

    fn frame_of_reference(&self) -> Option<&str> {
        self.inner.frame_of_reference()
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }

    fn can_be_indexed(&self) -> bool {
        self.inner.can_be_indexed()
    }

    fn index_in(&mut self, folder: &IndexFolder) {
        self.inner.index_in(folder);
    }

    fn find_points(&mut self, stop: &AtomicBool) -> Result<(), VolumeError> {
        self.inner.find_points(stop)
    }

    fn decompress_beside(&mut self, beside: &Path, stop: &AtomicBool) -> Result<(), VolumeError> {
        self.inner.decompress_beside(beside, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Affine;

    #[test]
    fn the_union_of_two_parts_of_a_grid_has_the_voxels_of_both() {
        let grid = |shape, origin: [f64; 3]| {
            let row = |axis: usize, steps: [f64; 3]| [steps[0], steps[1], steps[2], origin[axis]];
            Geometry::new(
                shape,
                Affine([row(0, [0.0, 0.0, 2.0]), row(1, [0.0, -1.0, 0.0]), row(2, [3.0, 0.0, 0.0])]),
            )
            .unwrap()
        };
        let (one, other) = (grid([2, 4, 5], [0.0; 3]), grid([3, 2, 2], [-4.0, -3.0, 3.0]));
        let both = one.union(&other).unwrap();
        assert_eq!((both.shape(), both.voxel_to_world([0.0; 3])), ([4, 5, 7], [-4.0, 0.0, 0.0]));
        assert_eq!(other.union(&one).unwrap(), both);
        assert_eq!(one.union(&grid([1, 1, 1], [1.0, 0.0, 0.0])), None);
    }
}
