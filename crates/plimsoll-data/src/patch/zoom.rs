//! Axes that are zoomed as `scipy.ndimage.zoom` does it by default: the first and the last voxel of an image stay where they are, and
//! the others move in between. Half a voxel at either end is lost so, which is why nothing else here resizes in this way; but models of
//! TotalSegmentator are used to it.

use plimsoll_volume::{Geometry, Reorientation, Spacing, VoxelBox};

/// The map from an axis of `from` voxels to one of `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ZoomedAxis {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The distance from each zoomed voxel to the next, in voxels of the source.
    step: f64,
    /// From each voxel of the source to the next, in zoomed ones.
    back: f64,
    /// The position of the first zoomed voxel among the voxels of the source; 0 if the first voxel stays where it is.
    shift: f64,
}

/// The source voxels of a zoomed voxel, and their weights.
#[derive(Clone, Copy)]
pub(crate) struct Tap {
    pub(crate) voxels: [usize; 2],
    pub(crate) weights: [f64; 2],
}

/// The distance from each voxel of an axis of `to` voxels to the next, in voxels of an axis of `from`.
fn scale(from: usize, to: usize) -> f64 {
    match to {
        0 | 1 => 1.0,
        _ => (from - 1) as f64 / (to - 1) as f64,
    }
}

impl ZoomedAxis {
    /// Resamples an axis from one spacing to another, rounding the number of voxels.
    fn new(from: usize, spacing: f64, target: f64) -> ZoomedAxis {
        // The cast saturates.
        let to = (from as f64 * (spacing / target)).round_ties_even() as usize;
        ZoomedAxis::between(from, to.max(1))
    }

    /// Whose last voxel stays where it is, too.
    fn between(from: usize, to: usize) -> ZoomedAxis {
        ZoomedAxis { from, to, step: scale(from, to), back: scale(to, from), shift: 0.0 }
    }

    /// Resamples an axis to exactly the target spacing, as MONAI's `compute_shape_offset` does: the first voxel
    /// stays where it is, or the middle of the image does; the last voxel of the source may lie between the
    /// last two of the result or beyond them.
    fn spaced(from: usize, spacing: f64, target: f64, keeps_first: bool) -> ZoomedAxis {
        // The cast saturates.
        let to = ((from - 1) as f64 * (spacing / target) + 1.0).round_ties_even() as usize;
        let (to, step) = (to.max(1), target / spacing);
        let shift = if keeps_first { 0.0 } else { from as f64 / 2.0 - to as f64 / 2.0 * step };
        ZoomedAxis { from, to, step, back: spacing / target, shift }
    }

    /// The linear map from zoomed voxels to voxels of the source: its slope and its offset. Beyond the first and the last voxel
    /// of the source these are repeated.
    pub(crate) fn line(self) -> (f64, f64) {
        (self.step, self.shift)
    }

    /// The place of a voxel of the source among zoomed ones, within them.
    pub(crate) fn place(self, voxel: usize) -> f64 {
        ((voxel as f64 - self.shift) * self.back).clamp(0.0, (self.to - 1) as f64)
    }

    /// The source voxels of a zoomed voxel, and their weights. The arithmetic is SciPy's to the last rounding,
    /// since results are truncated to whole numbers.
    pub(crate) fn tap(self, zoomed: usize) -> Tap {
        let last = self.from - 1;
        let at = (zoomed as f64 * self.step + self.shift).clamp(0.0, last as f64);
        let lower = at.floor() as usize;
        let share = 1.0 - (at - lower as f64);
        Tap { voxels: [lower, (lower + 1).min(last)], weights: [share, 1.0 - share] }
    }

    /// The zoomed voxel that gives a stored voxel its value on the way back.
    pub(crate) fn nearest(self, voxel: usize) -> usize {
        (self.place(voxel) + 0.5).floor() as usize
    }

    /// The source voxels of a run of zoomed voxels: the first, and the end.
    pub(crate) fn span(self, start: usize, count: usize) -> [usize; 2] {
        let [first, last] = [self.tap(start), self.tap(start + count.max(1) - 1)];
        [first.voxels[0], last.voxels[1] + 1]
    }
}

/// The difference of spacings, in millimetres, and of their ratio from 1, that MONAI takes for none (`AFFINE_TOL`).
const SAME_SPACING: f64 = 1e-3;

/// The distance by which another corner of an image may precede the first voxel, in voxels of the result
/// (`numpy.allclose` of a number and 0).
const SAME_CORNER: f64 = 1e-8;

/// Returns `true` if MONAI's `compute_shape_offset` finds that the first voxel of a grid precedes all its
/// corners along the axes of the result. For tilted axes the rounding of an affine in f32 decides: it leaves
/// them slightly off right angles, and then the middle of the image stays where it is instead.
fn keeps_first(grid: &Geometry, target: [f64; 3]) -> bool {
    let rows = grid.affine().0;
    let column = |axis: usize| rows.map(|row| row[axis]);
    let product = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let (a, b, c) = (column(0), column(1), column(2));
    // The triangular part of the affine, as its Cholesky factor has it; above the diagonal it is the shear.
    let first = product(a, a).sqrt();
    let (ab, ac) = (product(a, b) / first, product(a, c) / first);
    let second = (product(b, b) - ab * ab).sqrt();
    let bc = (product(b, c) - ab * ac) / second;
    let shape = grid.shape().map(|extent| (extent - 1) as f64);
    let before = [(ab * shape[1]).min(0.0) + (ac * shape[2]).min(0.0), (bc * shape[2]).min(0.0)];
    before.iter().zip(target).all(|(before, target)| before / target >= -SAME_CORNER)
}

/// An image that is zoomed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Zoom {
    /// Depth, height, width of the canonical orientation; or right, anterior, superior.
    pub(crate) axes: [ZoomedAxis; 3],
    /// `true` if zoomed values are truncated to whole numbers.
    pub(crate) is_cut: bool,
    reorientation: Reorientation,
    /// The part of the stored image that is zoomed.
    covered: VoxelBox,
}

impl Zoom {
    /// Zooms the part `covered` of a stored image from a spacing along the canonical axes to another.
    pub(crate) fn new(
        covered: VoxelBox,
        reorientation: Reorientation,
        spacing: Spacing,
        target: Spacing,
    ) -> Zoom {
        let shape = reorientation.shape(covered.shape);
        // nibabel, which TotalSegmentator reads images with, has spacings in f32.
        let spacing = spacing.0.map(|length| f64::from(length as f32));
        let changes = spacing != target.0;
        let axis = |axis: usize| match changes {
            true => ZoomedAxis::new(shape[axis], spacing[axis], target.0[axis]),
            false => ZoomedAxis::between(shape[axis], shape[axis]),
        };
        Zoom { axes: [0, 1, 2].map(axis), is_cut: changes, reorientation, covered }
    }

    /// Zooms a stored image, with its axes in MONAI's order, to a spacing along these (right, anterior,
    /// superior); with `None` it keeps its own. Spacings that MONAI treats as equal are equal.
    pub(crate) fn spaced(stored: &Geometry, reorientation: Reorientation, target: Option<[f64; 3]>) -> Zoom {
        let grid = reorientation.geometry(stored);
        let (own, shape) = (grid.spacing().0, grid.shape());
        let target = target.unwrap_or(own);
        let nearly = |axis: usize| match (own[axis] - target[axis]).abs() <= SAME_SPACING {
            true => own[axis],
            false => target[axis],
        };
        let target = [0, 1, 2].map(nearly);
        let keeps_first = keeps_first(&grid, target);
        let mut axes =
            [0, 1, 2].map(|axis| ZoomedAxis::spaced(shape[axis], own[axis], target[axis], keeps_first));
        let stays = |axis: &ZoomedAxis| {
            axis.to == axis.from
                && (axis.step - 1.0).abs() <= SAME_SPACING
                && axis.shift.abs() <= SAME_SPACING
        };
        if axes.iter().all(stays) {
            axes = axes.map(|axis| ZoomedAxis { step: 1.0, back: 1.0, shift: 0.0, ..axis });
        }
        Zoom { axes, is_cut: false, reorientation, covered: VoxelBox::whole(stored.shape()) }
    }

    /// The permutation and the flips that lead from the stored axes to the axes of the zoomed image.
    pub(crate) fn reorientation(&self) -> Reorientation {
        self.reorientation
    }

    /// The part of the stored image that is zoomed.
    pub(crate) fn covered(&self) -> VoxelBox {
        self.covered
    }

    /// The shape of the zoomed image.
    pub(crate) fn shape(&self) -> [usize; 3] {
        self.axes.map(|axis| axis.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_an_axis_stay_and_the_way_back_takes_the_nearest() {
        let axis = ZoomedAxis::new(5, 3.0, 1.5);
        assert_eq!(axis.to, 10);
        let at = |zoomed: usize| {
            let tap = axis.tap(zoomed);
            tap.voxels[0] as f64 * tap.weights[0] + tap.voxels[1] as f64 * tap.weights[1]
        };
        assert_eq!((at(0), at(9)), (0.0, 4.0));
        assert!((at(4) - 16.0 / 9.0).abs() < 1e-15);
        assert_eq!((0..5).map(|voxel| axis.nearest(voxel)).collect::<Vec<_>>(), [0, 2, 5, 7, 9]);
        // One voxel is all of them.
        assert_eq!(ZoomedAxis::new(1, 1.0, 6.0).to, 1);
        let single = ZoomedAxis::between(4, 1);
        assert_eq!((single.tap(0).voxels[0], single.nearest(3)), (0, 0));
    }

    #[test]
    fn monais_spacing_keeps_the_first_voxel_and_the_spacing() {
        // monai.data.utils.compute_shape_offset([40], diag(0.8, 1), diag(1.5, 1)): round(39 · 0.8 / 1.5 + 1) = round(21.8).
        let axis = ZoomedAxis::spaced(40, 0.8, 1.5, true);
        assert_eq!(axis.to, 22);
        let tap = axis.tap(3);
        assert_eq!(tap.voxels, [5, 6]);
        assert!((tap.weights[1] - 0.625).abs() < 1e-12);
        // Beyond the last voxel it is repeated.
        assert_eq!(axis.tap(21).voxels, [39, 39]);
        assert!((axis.place(6) - 3.2).abs() < 1e-12);
        assert_eq!(axis.place(39), 20.8);
        // Finer than stored: the last stored voxel is before the end.
        let finer = ZoomedAxis::spaced(4, 2.5, 2.0, true);
        assert_eq!((finer.to, finer.place(3)), (5, 3.75));
        // With the middle where it was: 4 / 2 − 5 / 2 · 0.8 = 0.
        assert_eq!(ZoomedAxis::spaced(4, 2.5, 2.0, false).shift, 0.0);
        let middle = ZoomedAxis::spaced(40, 0.8, 1.5, false);
        assert!((middle.shift - (20.0 - 11.0 * 1.875)).abs() < 1e-12 && middle.tap(0).voxels[0] == 0);
    }
}
