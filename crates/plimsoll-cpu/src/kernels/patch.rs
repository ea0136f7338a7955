//! The part of a source that some positions of a convolution read, gathered into scratch.
//!
//! Borders are zero, storage is widened to f32, normalisation and activation are applied if the source is read through a
//! load, and along the width the columns are sorted by their phase modulo the step, so that the positions of a tap are
//! always neighbours: `[block][plane][row][phase][column][lanes]`.

mod block;
mod operands;

pub(crate) use block::{Affine, BlockConstants, BlockNorm, SourceBlock, norm_act};
pub(crate) use operands::operand_value;

use plimsoll_parallel::each;
use std::ops::Range;

use super::geometry::TapGrid;
use crate::kernel::Ptr;
use crate::simd::{Bf16, LANES, Simd};

/// The shape of gathered patches of a convolution.
#[derive(Clone, Debug)]
pub(crate) struct PatchShape {
    /// Positions gathered at a time along depth and height; all of the width.
    pub(crate) chunk: [usize; 2],
    planes: usize,
    rows: usize,
    /// Columns of one phase.
    columns: usize,
    /// Floats of a column: sixteen lanes of features; the channels of an image, padded.
    pub(crate) lanes: usize,
    step: [usize; 3],
    /// Stored voxels from one position to the next along each axis: the step, or the fewer voxels that a position reads.
    pitch: [usize; 3],
    low: [isize; 3],
    source: [usize; 3],
    /// Planes and rows of the source from one that is stored to the next, and the first one, for a phase of a dilated convolution.
    spacing: [usize; 2],
    start: [usize; 2],
    /// `true` if the position at each place reads the source's voxel at that place, and no other.
    is_pointwise: bool,
}

impl PatchShape {
    /// For chunks of some positions along depth and height.
    pub(crate) fn new(grid: &TapGrid, chunk: [usize; 2], lanes: usize) -> PatchShape {
        let pitch = each([0, 1, 2], |axis| grid.step[axis].min(grid.span[axis] + 1));
        let extent = |axis: usize| (chunk[axis] - 1) * pitch[axis] + grid.span[axis] + 1;
        // A transposed convolution with padding of its result has positions beyond the end of its source.
        let are_voxels =
            grid.positions.iter().zip(grid.source).all(|(positions, source)| *positions <= source);
        let reads_one = grid.step == [1; 3] && grid.span == [0; 3] && grid.low == [0; 3];
        PatchShape {
            chunk,
            planes: extent(0),
            rows: extent(1),
            columns: grid.positions[2] + grid.span[2] / grid.step[2],
            lanes,
            step: grid.step,
            pitch,
            low: grid.low,
            source: grid.source,
            spacing: grid.spacing,
            start: [0; 2],
            is_pointwise: are_voxels && reads_one,
        }
    }

    /// The same for the phase of an [interleaved](TapGrid::is_interleaved) grid whose first result is `start`.
    pub(crate) fn of_phase(&self, start: [usize; 3]) -> PatchShape {
        PatchShape { start: [start[0], start[1]], ..self.clone() }
    }

    /// Floats of a row.
    pub(crate) fn row(&self) -> usize {
        self.pitch[2] * self.columns * self.lanes
    }

    /// Floats of a plane.
    pub(crate) fn plane(&self) -> usize {
        self.rows * self.row()
    }

    /// Floats of one block of channels.
    pub(crate) fn block(&self) -> usize {
        self.planes * self.plane()
    }

    /// Floats from one position to the next along depth and height.
    pub(crate) fn position_strides(&self) -> [usize; 2] {
        [self.pitch[0] * self.plane(), self.pitch[1] * self.row()]
    }

    /// Floats from one position to the next along depth and height in a stored block of the source, if the position at
    /// each place reads the voxel at that place and no other.
    pub(crate) fn source_strides(&self) -> Option<[usize; 2]> {
        let [_, height, width] = self.source;
        self.is_pointwise.then_some([height * width * LANES, width * LANES])
    }

    /// Floats of one stored block of the source.
    pub(crate) fn stored_block(&self) -> usize {
        self.source.iter().product::<usize>() * LANES
    }

    /// The place of a tap's source relative to the position's.
    pub(crate) fn tap_offset(&self, shift: [isize; 3]) -> usize {
        let [d, h, w] = each([0, 1, 2], |axis| (shift[axis] - self.low[axis]) as usize);
        let column = (w % self.step[2]) * self.columns + w / self.step[2];
        d * self.plane() + h * self.row() + column * self.lanes
    }

    /// The phases along the width whose columns are stored: those that positions read.
    fn phases(&self) -> usize {
        self.pitch[2]
    }

    /// The voxel of the source, relative to the first position's, that the `at`-th stored plane or row holds.
    #[inline(always)]
    fn stored(&self, axis: usize, at: usize) -> usize {
        at / self.pitch[axis] * self.step[axis] + at % self.pitch[axis]
    }

    /// The plane or row of the source that the `at`-th stored one of a chunk from the position `first` on holds.
    #[inline(always)]
    fn source_at(&self, axis: usize, first: usize, at: usize) -> isize {
        let place = (first * self.step[axis] + self.stored(axis, at)) as isize + self.low[axis];
        place * self.spacing[axis] as isize + self.start[axis] as isize
    }

    /// Every stored row: its place in the patch, and the row of the source, or nothing if that is out of bounds.
    #[inline(always)]
    fn rows_read(&self, first: [usize; 2]) -> impl Iterator<Item = (usize, Option<usize>)> {
        let [depth, height, _] = self.source;
        (0..self.planes).flat_map(move |plane| {
            let d = self.source_at(0, first[0], plane);
            (0..self.rows).map(move |row| {
                let h = self.source_at(1, first[1], row);
                let inside = d >= 0 && (d as usize) < depth && h >= 0 && (h as usize) < height;
                let from = inside.then(|| d as usize * height + h as usize);
                (plane * self.plane() + row * self.row(), from)
            })
        })
    }
}

/// Blocks of a sample at equal distances.
pub(crate) struct BlockRun {
    /// The first block.
    pub(crate) start: *const f32,
    /// Floats from one block to the next; 0 for a single block.
    pub(crate) stride: usize,
}

/// The blocks of one or several sources, in order, as they are stored.
pub(crate) enum Blocks {
    F32(Vec<SourceBlock<f32>>),
    Bf16(Vec<SourceBlock<Bf16>>),
}

impl Blocks {
    /// [`SourceBlock::gather`] of one of the blocks.
    ///
    /// # Safety
    /// [`SourceBlock::gather`]'s contract, for that block.
    #[inline(always)]
    pub(crate) unsafe fn gather<S: Simd>(
        &self,
        block: usize,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut f32,
    ) {
        // SAFETY: this function's contract includes the contract of the call; the index is checked.
        unsafe {
            match self {
                Blocks::F32(blocks) => blocks[block].gather::<S>(shape, sample, first, patch),
                Blocks::Bf16(blocks) => blocks[block].gather::<S>(shape, sample, first, patch),
            }
        }
    }

    /// The address of a block of a sample, if readers see it in f32 and as it is stored.
    ///
    /// # Safety
    /// The block's buffer is as [`SourceBlock::data`] says, and `sample` is one of its samples.
    #[inline(always)]
    pub(crate) unsafe fn as_f32(&self, block: usize, sample: usize) -> Option<*const f32> {
        match self {
            Blocks::F32(blocks) if blocks[block].norm.is_none() => {
                let block = &blocks[block];
                // SAFETY: the sample is one of the block's, as this function's contract says, so it begins in its buffer.
                Some(unsafe { block.data.add(sample * block.sample_stride).0.cast_const() })
            }
            _ => None,
        }
    }

    /// The addresses of a range of blocks of a sample, if all of them are f32 that readers use as stored, and lie at
    /// ascending, equal distances.
    ///
    /// # Safety
    /// [`Blocks::as_f32`]'s contract, for each of the blocks. All of them lie in one allocation.
    #[inline(always)]
    pub(crate) unsafe fn run_of_f32(&self, blocks: Range<usize>, sample: usize) -> Option<BlockRun> {
        // SAFETY: blocks beyond the last one are a panic; for the others, this function's contract includes the contract of the call.
        let at = |block: usize| unsafe { self.as_f32(block, sample) };
        let start = at(blocks.start)?;
        let stride = match blocks.len() {
            1 => 0,
            _ => start.addr().abs_diff(at(blocks.start + 1)?.addr()) / size_of::<f32>(),
        };
        let is_at = |(i, block): (usize, usize)| at(block) == Some(start.wrapping_add(i * stride));
        blocks.enumerate().all(is_at).then_some(BlockRun { start, stride })
    }

    /// [`SourceBlock::widen`] of one of the blocks.
    ///
    /// # Safety
    /// [`SourceBlock::widen`]'s contract, for that block.
    #[inline(always)]
    pub(crate) unsafe fn widen<S: Simd>(
        &self,
        block: usize,
        sample: usize,
        voxels: Range<usize>,
        to: *mut f32,
    ) {
        // SAFETY: this function's contract includes the contract of the call; the index is checked.
        unsafe {
            match self {
                Blocks::F32(blocks) => blocks[block].widen::<S>(sample, voxels, to),
                Blocks::Bf16(blocks) => blocks[block].widen::<S>(sample, voxels, to),
            }
        }
    }
}

/// The source of a convolution.
pub(crate) enum Source {
    /// Blocks of features.
    Features(Blocks),
    /// An image.
    Image(ImageSource),
}

/// An image as a source: its few channels side by side, padded with zeroes to `lanes` of the shape.
#[derive(Clone, Copy)]
pub(crate) struct ImageSource {
    /// `[sample][channel][voxel]`
    pub(crate) data: Ptr<f32>,
    pub(crate) channels: usize,
    pub(crate) voxels: usize,
}

impl ImageSource {
    /// Gathers the patch whose first position is `first` (depth, height).
    ///
    /// # Safety
    /// The image is as its fields say, with the extent of the shape's source, and initialised; `sample` is one of its
    /// samples. `patch` is valid for writes of [`PatchShape::block`] floats.
    #[inline(always)]
    pub(crate) unsafe fn gather(
        &self,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut f32,
    ) {
        let width = shape.source[2] as isize;
        let (step, columns, lanes) = (shape.step[2], shape.columns, shape.lanes);
        for (to, from) in shape.rows_read(first) {
            // SAFETY: `rows_read` yields rows of the source and places of rows below `PatchShape::block`; lanes are below
            // those of the shape and the channels of the image, and columns are checked against the width.
            unsafe {
                let to = patch.add(to);
                to.write_bytes(0, shape.row());
                let Some(from) = from else { continue };
                for lane in 0..self.channels.min(lanes) {
                    let plane = (sample * self.channels + lane) * self.voxels;
                    let from = self.data.0.add(plane + from * shape.source[2]);
                    for phase in 0..shape.phases() {
                        for column in 0..columns {
                            let place = (column * step + phase) as isize + shape.low[2];
                            if place >= 0 && place < width {
                                *to.add((phase * columns + column) * lanes + lane) =
                                    *from.add(place as usize);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::Window;

    use super::*;

    /// The voxels that the taps of a position read, by the definition of a [`TapGrid`]; empty if a tap is out of bounds.
    fn reads(grid: &TapGrid, position: [usize; 3]) -> Vec<[usize; 3]> {
        let place = |shift: [isize; 3]| {
            let at = [0, 1, 2].map(|axis| (position[axis] * grid.step[axis]).checked_add_signed(shift[axis]));
            let [Some(d), Some(h), Some(w)] = at else { return None };
            [d, h, w].iter().zip(grid.source).all(|(at, extent)| *at < extent).then_some([d, h, w])
        };
        let taps = grid.phases.iter().flat_map(|phase| &phase.taps);
        taps.map(|tap| place(tap.shift)).collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// `true` if all taps of each position read the voxel at the position's own place.
    fn reads_itself(grid: &TapGrid) -> bool {
        let [depth, height, width] = grid.positions;
        (0..depth * height * width).all(|at| {
            let position = [at / (height * width), at / width % height, at % width];
            let read = reads(grid, position);
            !read.is_empty() && read.iter().all(|voxel| *voxel == position)
        })
    }

    const SOURCE: [usize; 3] = [4, 5, 3];

    /// Grids of a kernel along one axis and none along the others: a convolution, and transposed ones to each extent that
    /// may have had this source.
    fn grids(axis: usize, kernel: usize, stride: usize, padding: usize) -> Vec<TapGrid> {
        let along = |value, others| std::array::from_fn(|a| if a == axis { value } else { others });
        let window = Window::new(along(kernel, 1), along(stride, 1), along(padding, 0));
        let result = |extent: usize| std::array::from_fn(|a| if a == axis { extent } else { SOURCE[a] });
        let padded = (SOURCE[axis] + 2 * padding).checked_sub(kernel);
        let convolution = padded
            .map(|padded| TapGrid::convolution(&window, SOURCE, result(padded / stride + 1)))
            .into_iter();
        let least = (SOURCE[axis] - 1) * stride + kernel;
        let transposed = (least..least + stride)
            .filter_map(|extent| extent.checked_sub(2 * padding))
            .map(|extent| TapGrid::transposed(&window, SOURCE, result(extent)));
        convolution.chain(transposed).collect()
    }

    #[test]
    fn a_source_is_read_in_place_only_if_each_position_reads_its_own_voxel() {
        for (axis, kernel, stride, padding) in (0..3).flat_map(|axis| {
            (1..=3).flat_map(move |k| (1..=3).flat_map(move |s| (0..=1).map(move |p| (axis, k, s, p))))
        }) {
            for grid in grids(axis, kernel, stride, padding) {
                let strides = PatchShape::new(&grid, [2, 2], LANES).source_strides();
                let Some(strides) = strides else { continue };
                assert!(reads_itself(&grid), "{grid:?}");
                assert_eq!(strides, [5 * 3 * LANES, 3 * LANES]);
            }
        }
    }

    #[test]
    fn pointwise_convolutions_and_transposed_ones_of_blocks_are_read_in_place() {
        for axis in 0..3 {
            let in_place = |kernel, stride| {
                let grids = grids(axis, kernel, stride, 0);
                grids.iter().map(grid_is_in_place).collect::<Vec<_>>()
            };
            assert_eq!(in_place(1, 1), [true, true], "axis {axis}");
            // A convolution of blocks reads several voxels; its transpose reads one. A longer result has no other source.
            assert_eq!(in_place(2, 2), [false, true, false], "axis {axis}");
        }
    }

    fn grid_is_in_place(grid: &TapGrid) -> bool {
        PatchShape::new(grid, [2, 2], LANES).source_strides().is_some()
    }
}
