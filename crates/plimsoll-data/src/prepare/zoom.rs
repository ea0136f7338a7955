//! Axes that are zoomed as `scipy.ndimage.zoom` does it by default: the first and the last voxel of an image stay where they are, and
//! the others move in between. Half a voxel at either end is lost so, which is why nothing else here resizes in this way; but models of
//! TotalSegmentator are used to it.

use plimsoll_volume::{Geometry, Reorientation, Spacing, VoxelBox};

use crate::prepare::PrepareError;
use crate::prepare::window::{Part, ReadRegion};

/// How an axis of `from` voxels becomes one of `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ZoomedAxis {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// From each zoomed voxel to the next, in those of the source.
    step: f64,
    /// From each voxel of the source to the next, in zoomed ones.
    back: f64,
    /// Where the first zoomed voxel is among those of the source; 0 where the first voxel stays where it is.
    shift: f64,
}

/// Which voxels a zoomed voxel is made of.
#[derive(Clone, Copy)]
struct Tap {
    voxels: [usize; 2],
    weights: [f64; 2],
}

/// From each voxel of an axis of `to` voxels to the next, in those of one of `from`.
fn scale(from: usize, to: usize) -> f64 {
    match to {
        0 | 1 => 1.0,
        _ => (from - 1) as f64 / (to - 1) as f64,
    }
}

impl ZoomedAxis {
    /// Of an axis with a spacing that is brought to another.
    fn new(from: usize, spacing: f64, target: f64) -> ZoomedAxis {
        // The cast saturates.
        let to = (from as f64 * (spacing / target)).round_ties_even() as usize;
        ZoomedAxis::between(from, to.max(1))
    }

    /// Whose last voxel stays where it is, too.
    fn between(from: usize, to: usize) -> ZoomedAxis {
        ZoomedAxis { from, to, step: scale(from, to), back: scale(to, from), shift: 0.0 }
    }

    /// Of an axis with a spacing that is brought to another just so: the first voxel stays where it is, or the middle of the image does;
    /// the last voxel of the source may lie between the last of the result or beyond them. As `compute_shape_offset` of MONAI.
    fn spaced(from: usize, spacing: f64, target: f64, keeps_first: bool) -> ZoomedAxis {
        // The cast saturates.
        let to = ((from - 1) as f64 * (spacing / target) + 1.0).round_ties_even() as usize;
        let (to, step) = (to.max(1), target / spacing);
        let shift = if keeps_first { 0.0 } else { from as f64 / 2.0 - to as f64 / 2.0 * step };
        ZoomedAxis { from, to, step, back: spacing / target, shift }
    }

    /// The line that leads from zoomed voxels to those of the source: its slope, and where it begins. Beyond the first and the last voxel
    /// of the source these are repeated.
    pub(crate) fn line(self) -> (f64, f64) {
        (self.step, self.shift)
    }

    /// The place of a voxel of the source among zoomed ones, within them.
    pub(crate) fn place(self, voxel: usize) -> f64 {
        ((voxel as f64 - self.shift) * self.back).clamp(0.0, (self.to - 1) as f64)
    }

    /// What a zoomed voxel is made of. SciPy's arithmetic, of which each rounding matters: results are cut to whole numbers.
    fn tap(self, zoomed: usize) -> Tap {
        let last = self.from - 1;
        let at = (zoomed as f64 * self.step + self.shift).clamp(0.0, last as f64);
        let lower = at.floor() as usize;
        let share = 1.0 - (at - lower as f64);
        Tap { voxels: [lower, (lower + 1).min(last)], weights: [share, 1.0 - share] }
    }

    /// The zoomed voxel that is taken for a voxel on the way back.
    pub(crate) fn nearest(self, voxel: usize) -> usize {
        (self.place(voxel) + 0.5).floor() as usize
    }

    /// The voxels that zoomed ones are made of: the first, and the end.
    fn span(self, start: usize, count: usize) -> [usize; 2] {
        let [first, last] = [self.tap(start), self.tap(start + count.max(1) - 1)];
        [first.voxels[0], last.voxels[1] + 1]
    }
}

/// The difference of spacings, in millimetres, and of their ratio from 1, that MONAI takes for none (`AFFINE_TOL`).
const SAME_SPACING: f64 = 1e-3;

/// How far before the first voxel another corner of an image may lie, in voxels of the result (`numpy.allclose` of a number and 0).
const SAME_CORNER: f64 = 1e-8;

/// Whether MONAI's `compute_shape_offset` finds that the first voxel of a grid is before all its corners along the axes of the result. Where
/// axes are tilted, the rounding of an affine in f32 decides: it leaves them a little off right angles, and then the middle of the image
/// stays where it is instead.
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
    /// Whether zoomed values are cut to whole numbers.
    is_cut: bool,
    reorientation: Reorientation,
    /// The part of the stored image that is zoomed.
    covered: VoxelBox,
}

impl Zoom {
    /// Of the part `covered` of a stored image, with a spacing along the canonical axes, to another.
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

    /// Of a stored image, with its axes in the order in which MONAI has them, to a spacing along these (right, anterior, superior); none
    /// where it keeps its own. Spacings that MONAI takes for the same are.
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

    /// How the stored axes became those of the zoomed image.
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

    /// Fills a part of a window `[d][h][w]` of shape `window` with zoomed voxels; `read` fills a region of the stored image. What does
    /// not fit the memory is divided.
    ///
    /// # Errors
    /// If `read` fails, or the memory is too small for one voxel.
    pub(crate) fn pull(
        &self,
        part: Part,
        (out, window): (&mut [f32], [usize; 3]),
        memory: &mut [f32],
        read: &mut ReadRegion<'_>,
    ) -> Result<(), PrepareError> {
        let spans =
            [0, 1, 2].map(|axis| self.axes[axis].span(part.of_grid.start[axis], part.of_grid.shape[axis]));
        let mut region = VoxelBox::whole([0; 3]);
        for (axis, stored) in self.reorientation.source_axis().into_iter().enumerate() {
            let [first, end] = spans[axis];
            let from = if self.reorientation.flip()[axis] { self.axes[axis].from - end } else { first };
            region.start[stored] = self.covered.start[stored] + from;
            region.shape[stored] = end - first;
        }
        let needed = region.voxel_count();
        let Some(values) = needed.and_then(|needed| memory.get_mut(..needed)) else {
            // The smallest part is made of eight voxels.
            let Some(halves) = part.halves() else {
                return Err(PrepareError::Zoom { room: memory.len() });
            };
            return halves
                .into_iter()
                .try_for_each(|half| self.pull(half, (&mut *out, window), memory, read));
        };
        read(region, values)?;
        let [_, rows, columns] = region.shape;
        let strides = [rows * columns, columns, 1];
        let taps = [0, 1, 2].map(|axis| {
            let stride = strides[self.reorientation.source_axis()[axis]];
            let [first, end] = spans[axis];
            let offset = |voxel: usize| {
                let place = if self.reorientation.flip()[axis] { end - 1 - voxel } else { voxel - first };
                place * stride
            };
            let start = part.of_grid.start[axis];
            let tap = |zoomed: usize| {
                let tap = self.axes[axis].tap(start + zoomed);
                Tap { voxels: tap.voxels.map(offset), ..tap }
            };
            (0..part.of_grid.shape[axis]).map(tap).collect::<Vec<Tap>>()
        });
        let [d, h, w] = part.in_window;
        for (plane, of_plane) in taps[0].iter().enumerate() {
            for (row, of_row) in taps[1].iter().enumerate() {
                let line = &mut out[((d + plane) * window[1] + h + row) * window[2] + w..][..taps[2].len()];
                for (value, of_column) in line.iter_mut().zip(&taps[2]) {
                    let zoomed = zoomed(values, [of_plane, of_row, of_column]);
                    *value = if self.is_cut { zoomed.trunc() as f32 } else { zoomed as f32 };
                }
            }
        }
        Ok(())
    }
}

/// The sum over eight voxels in the order of SciPy's, whose first axis is that from left to right: in another order, what is whole in
/// one might be a little less in the other, which cutting makes a difference of one.
fn zoomed(values: &[f32], [plane, row, column]: [&Tap; 3]) -> f64 {
    let mut sum = 0.0;
    for x in 0..2 {
        for y in 0..2 {
            for z in 0..2 {
                let value = f64::from(values[column.voxels[x] + row.voxels[y] + plane.voxels[z]]);
                sum += value * column.weights[x] * row.weights[y] * plane.weights[z];
            }
        }
    }
    sum
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

    #[derive(serde::Deserialize)]
    struct Zoomed {
        shape: [usize; 3],
        spacing: [f64; 3],
        target: [f64; 3],
        image: Vec<f32>,
        zoomed_shape: [usize; 3],
        zoomed: Vec<f32>,
        back: Vec<f32>,
    }

    /// The numbers of `oracles/zoom.py`.
    fn of_scipy() -> Vec<Zoomed> {
        serde_json::from_str(include_str!("../../../../oracles/zoom.json")).unwrap()
    }

    #[test]
    fn zoomed_images_are_those_of_scipy_bit_for_bit_in_whatever_pieces_they_are_pulled() {
        for case in of_scipy() {
            let whole = VoxelBox::whole(case.shape);
            let zoom = Zoom::new(whole, Reorientation::IDENTITY, Spacing(case.spacing), Spacing(case.target));
            assert_eq!(zoom.shape(), case.zoomed_shape);
            let [_, height, width] = case.shape;
            let mut read = |region: VoxelBox, values: &mut [f32]| {
                let mut values = values.iter_mut();
                for d in 0..region.shape[0] {
                    for h in 0..region.shape[1] {
                        for w in 0..region.shape[2] {
                            let [z, y, x] = [d + region.start[0], h + region.start[1], w + region.start[2]];
                            *values.next().unwrap() = case.image[(z * height + y) * width + x];
                        }
                    }
                }
                Ok(())
            };
            for room in [8, 100, 100_000] {
                let mut out = vec![0.0; case.zoomed.len()];
                let part = Part { of_grid: VoxelBox::whole(zoom.shape()), in_window: [0; 3] };
                zoom.pull(part, (&mut out, zoom.shape()), &mut vec![0.0; room], &mut read).unwrap();
                assert_eq!(out, case.zoomed);
            }
            let part = Part { of_grid: VoxelBox::whole(zoom.shape()), in_window: [0; 3] };
            let too_small =
                zoom.pull(part, (&mut vec![0.0; case.zoomed.len()], zoom.shape()), &mut [0.0; 7], &mut read);
            assert!(matches!(too_small, Err(PrepareError::Zoom { room: 7 })));
        }
    }

    #[test]
    fn labels_go_back_as_in_scipy() {
        for case in of_scipy() {
            let zoom = Zoom::new(
                VoxelBox::whole(case.shape),
                Reorientation::IDENTITY,
                Spacing(case.spacing),
                Spacing(case.target),
            );
            let [_, zoomed_height, zoomed_width] = zoom.shape();
            let [_, height, width] = case.shape;
            for (index, expected) in case.back.iter().enumerate() {
                let voxel = [index / (height * width), index / width % height, index % width];
                let [d, h, w] = [0, 1, 2].map(|axis| zoom.axes[axis].nearest(voxel[axis]));
                let label = case.zoomed[(d * zoomed_height + h) * zoomed_width + w].rem_euclid(117.0);
                assert_eq!(label, *expected, "{voxel:?}");
            }
        }
    }
}
