//! The grid that patches are cropped from: an image at the target spacing, in the canonical orientation. The image is
//! never computed; the grid only maps its voxels to the stored image.

use plimsoll_volume::{Geometry, Reorientation, Spacing, VoxelBox, VoxelMap};
use serde::{Deserialize, Serialize};

use crate::TargetSpacing;

/// The shape of an image at another spacing: rounded to the nearest integer (ties to even), as nnU-Net's
/// `compute_new_shape`, but at least one voxel.
pub fn resampled_shape(shape: [usize; 3], spacing: Spacing, target: Spacing) -> [usize; 3] {
    std::array::from_fn(|axis| {
        let voxels = spacing.0[axis] / target.0[axis] * shape[axis] as f64;
        // The cast saturates.
        (voxels.round_ties_even() as usize).max(1)
    })
}

/// The shape and spacing of every patch of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchGrid {
    /// The voxels of a patch along (depth, height, width), in the canonical orientation.
    pub patch: [usize; 3],
    /// Their spacing.
    pub spacing: TargetSpacing,
}

impl PatchGrid {
    /// The voxels of a patch, or `None` if that overflows.
    pub fn voxels(&self) -> Option<usize> {
        VoxelBox::whole(self.patch).voxel_count()
    }

    /// The axis perpendicular to the plane that patches are rotated in: the one with the coarsest spacing, if the patch
    /// is more than three times as long along another; `None` if patches are rotated in 3D. This is nnU-Net's rule for
    /// 2D augmentation. Slices are rotated only in their plane.
    pub(crate) fn plane_axis(&self) -> Option<usize> {
        let spacing = match self.spacing {
            TargetSpacing::InPlane(_) => return Some(0),
            TargetSpacing::Volume(Spacing(lengths)) => lengths,
        };
        let coarsest =
            (0..3).fold(0, |worst, axis| if spacing[axis] > spacing[worst] { axis } else { worst });
        let longest = self.patch.into_iter().fold(0, usize::max);
        (longest > 3 * self.patch[coarsest]).then_some(coarsest)
    }
}

/// The grid of an image at the target spacing in the canonical orientation, and its map to the stored voxels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetGrid {
    stored_shape: [usize; 3],
    shape: [usize; 3],
    reorientation: Reorientation,
    to_stored: VoxelMap,
}

impl TargetGrid {
    /// The grid of an image stored as `stored`, at `spacing`. It occupies the same box as the stored grid with a whole
    /// number of voxels (see [`resampled_shape`]), like resizing an array, so its spacing is `spacing` up to that
    /// rounding.
    pub fn new(stored: &Geometry, spacing: impl Into<TargetSpacing>) -> TargetGrid {
        let (canonical, reorientation) = stored.canonical();
        let target = spacing.into().of(canonical.spacing());
        let shape = resampled_shape(canonical.shape(), canonical.spacing(), target);
        let to_stored =
            VoxelMap::resize(shape, canonical.shape()).then(&reorientation.voxel_map(stored.shape()));
        TargetGrid { stored_shape: stored.shape(), shape, reorientation, to_stored }
    }

    /// The number of voxels along each axis.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The number of voxels of the stored image, in its own order of axes.
    pub fn stored_shape(&self) -> [usize; 3] {
        self.stored_shape
    }

    /// The map from voxels of this grid to stored voxels.
    pub fn to_stored(&self) -> VoxelMap {
        self.to_stored
    }

    /// The map to stored voxels from a window that starts at voxel `start` of this grid, which may be out of bounds.
    pub fn window(&self, start: [i64; 3]) -> VoxelMap {
        VoxelMap::translation(start.map(|at| at as f64)).then(&self.to_stored)
    }

    /// The part of this grid that a box of the stored image covers, rounded outwards.
    pub(crate) fn covering(&self, stored: &VoxelBox) -> VoxelBox {
        let canonical_shape = self.reorientation.shape(self.stored_shape);
        let (start, count) = (
            self.reorientation.source_axis().map(|axis| stored.start[axis]),
            self.reorientation.source_axis().map(|axis| stored.shape[axis]),
        );
        let flip = self.reorientation.flip();
        let mut first = [0; 3];
        let mut end = [0; 3];
        for axis in 0..3 {
            let voxels = canonical_shape[axis];
            let from = if flip[axis] { voxels - start[axis] - count[axis] } else { start[axis] };
            let factor = self.shape[axis] as f64 / voxels as f64;
            first[axis] = ((from as f64 * factor).floor() as usize).min(self.shape[axis] - 1);
            let to = ((from + count[axis]) as f64 * factor).ceil() as usize;
            end[axis] = to.clamp(first[axis] + 1, self.shape[axis]);
        }
        VoxelBox::between(first, end)
    }

    /// The (continuous) index in this grid of a stored voxel.
    pub fn index_of(&self, stored: [usize; 3]) -> [f64; 3] {
        let canonical_shape = self.reorientation.shape(self.stored_shape);
        std::array::from_fn(|axis| {
            let behind = stored[self.reorientation.source_axis()[axis]];
            let voxels = canonical_shape[axis];
            let at = if self.reorientation.flip()[axis] { voxels - 1 - behind } else { behind };
            (at as f64 + 0.5) * self.shape[axis] as f64 / voxels as f64 - 0.5
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_volume::Affine;
    use proptest::prelude::*;

    fn stored(shape: [usize; 3], order: [usize; 3], flip: [bool; 3]) -> Geometry {
        let canonical = Geometry::new(shape, Affine::from_spacing(Spacing([3.0, 1.0, 0.5]))).unwrap();
        Reorientation::new(order, flip).unwrap().geometry(&canonical)
    }

    proptest! {
        #[test]
        fn a_stored_voxel_is_found_where_the_map_leads_from(
            shape in prop::array::uniform3(1usize..9),
            order in Just([0usize, 1, 2]).prop_shuffle(),
            flip: [bool; 3],
            spacing in prop::array::uniform3(0.4..4.0f64),
        ) {
            let geometry = stored(shape, order, flip);
            let grid = TargetGrid::new(&geometry, Spacing(spacing));
            for at in [0.0, 0.3, 0.99] {
                let voxel = geometry.shape().map(|size| (size as f64 * at) as usize);
                let index = grid.index_of(voxel);
                let back = grid.to_stored().apply(index);
                for axis in 0..3 {
                    prop_assert!((back[axis] - voxel[axis] as f64).abs() < 1e-6);
                }
                let covering = grid.covering(&VoxelBox { start: voxel, shape: [1; 3] });
                let end = covering.end().unwrap();
                let canonical_shape = geometry.canonical().0.shape();
                let is_covered = |axis: usize| {
                    // The voxel's box reaches half a voxel to either side.
                    let half = 0.5 * grid.shape()[axis] as f64 / canonical_shape[axis] as f64;
                    covering.start[axis] as f64 - 0.5 <= index[axis] - half + 1e-6
                        && end[axis] as f64 - 0.5 >= index[axis] + half - 1e-6
                };
                prop_assert!((0..3).all(is_covered));
            }
            prop_assert_eq!(grid.covering(&VoxelBox::whole(geometry.shape())), VoxelBox::whole(grid.shape()));
        }
    }

    #[test]
    fn an_image_at_the_target_spacing_is_only_reoriented() {
        let geometry = stored([4, 5, 6], [2, 0, 1], [true, false, true]);
        let grid = TargetGrid::new(&geometry, Spacing([3.0, 1.0, 0.5]));
        assert_eq!(grid.shape(), [4, 5, 6]);
        assert_eq!(grid.to_stored(), geometry.canonical().1.voxel_map(geometry.shape()));
    }

    #[test]
    fn anisotropic_patches_are_rotated_only_in_their_plane() {
        let axis = |patch, spacing| PatchGrid { patch, spacing: Spacing(spacing).into() }.plane_axis();
        assert_eq!(axis([32, 96, 96], [5.0, 1.0, 1.0]), None, "three times is not more than three times");
        assert_eq!(axis([31, 96, 96], [5.0, 1.0, 1.0]), Some(0));
        assert_eq!(axis([96, 96, 16], [1.0, 1.0, 4.0]), Some(2));
        assert_eq!(axis([64, 64, 64], [5.0, 1.0, 1.0]), None);
        assert_eq!(axis([1, 64, 64], [1.0, 1.0, 1.0]), Some(0), "2D is 3D with depth 1");
        let slices = PatchGrid { patch: [1, 2, 2], spacing: TargetSpacing::InPlane([1.0, 9.0]) };
        assert_eq!(slices.plane_axis(), Some(0), "however small a slice is, and whatever its spacing");
    }

    #[test]
    fn slices_are_resampled_in_their_plane_and_are_those_that_were_stored() {
        // 4 × 6 × 8 in the canonical orientation, 3 × 1 × 0.5 mm; stored with the depth last and reversed.
        let geometry = stored([4, 6, 8], [1, 2, 0], [true, false, false]);
        let (canonical, _) = geometry.canonical();
        let grid = TargetGrid::new(&geometry, TargetSpacing::InPlane([2.0, 1.0]));
        assert_eq!((canonical.shape(), grid.shape()), ([4, 6, 8], [4, 3, 4]));
        let [along] =
            [0, 1, 2].into_iter().filter(|axis| grid.to_stored().rows()[*axis][0] != 0.0).collect::<Vec<_>>()
                [..]
        else {
            unreachable!("one stored axis is the depth")
        };
        let places: Vec<f64> =
            (0..4).map(|slice| grid.to_stored().apply([f64::from(slice), 1.0, 1.0])[along]).collect();
        let stored = geometry.shape()[along];
        assert!(stored == 4 && places.iter().all(|place| place.fract() == 0.0), "{places:?}");
    }
}
