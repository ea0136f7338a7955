//! A box of voxels inside a grid.

use serde::{Deserialize, Serialize};

/// A box of voxels: those with `start[a] <= index[a] < start[a] + shape[a]` along each axis (depth, height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VoxelBox {
    /// The first voxel.
    pub start: [usize; 3],
    /// The number of voxels along each axis; the box is empty if one is 0.
    pub shape: [usize; 3],
}

impl VoxelBox {
    /// All voxels of a grid of this shape.
    pub fn whole(shape: [usize; 3]) -> VoxelBox {
        VoxelBox { start: [0; 3], shape }
    }

    /// The voxels from `start` up to, not including, `end`; empty along an axis where `end` is not after `start`.
    pub fn between(start: [usize; 3], end: [usize; 3]) -> VoxelBox {
        VoxelBox { start, shape: std::array::from_fn(|axis| end[axis].saturating_sub(start[axis])) }
    }

    /// One past the last voxel, or `None` if that overflows.
    pub fn end(&self) -> Option<[usize; 3]> {
        let [depth, height, width] =
            std::array::from_fn(|axis| self.start[axis].checked_add(self.shape[axis]));
        Some([depth?, height?, width?])
    }

    /// The number of voxels, or `None` if that overflows.
    pub fn voxel_count(&self) -> Option<usize> {
        self.shape[0].checked_mul(self.shape[1])?.checked_mul(self.shape[2])
    }

    /// Returns `true` if the box has no voxels.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns `true` if the box lies within a grid of this shape.
    pub fn is_within(&self, shape: [usize; 3]) -> bool {
        VoxelBox::whole(shape).contains(self)
    }

    /// Returns `true` if every voxel of `other` is in this box, and its start is not outside either.
    pub fn contains(&self, other: &VoxelBox) -> bool {
        let (Some(end), Some(other_end)) = (self.end(), other.end()) else { return false };
        (0..3).all(|axis| self.start[axis] <= other.start[axis] && other_end[axis] <= end[axis])
    }

    /// Returns `true` if the voxel `index` is in this box.
    pub fn contains_voxel(&self, index: [usize; 3]) -> bool {
        (0..3).all(|axis| index[axis].checked_sub(self.start[axis]).is_some_and(|at| at < self.shape[axis]))
    }

    /// The smallest box around both.
    pub fn around(&self, other: &VoxelBox) -> VoxelBox {
        let end = |of: &VoxelBox, axis: usize| of.start[axis].saturating_add(of.shape[axis]);
        VoxelBox::between(
            std::array::from_fn(|axis| self.start[axis].min(other.start[axis])),
            std::array::from_fn(|axis| end(self, axis).max(end(other, axis))),
        )
    }

    /// The intersection of both boxes, or `None` if it is empty (or an end overflows).
    pub fn intersect(&self, other: &VoxelBox) -> Option<VoxelBox> {
        let (end, other_end) = (self.end()?, other.end()?);
        let start = std::array::from_fn(|axis| self.start[axis].max(other.start[axis]));
        let both = VoxelBox::between(start, std::array::from_fn(|axis| end[axis].min(other_end[axis])));
        (!both.is_empty()).then_some(both)
    }
}
