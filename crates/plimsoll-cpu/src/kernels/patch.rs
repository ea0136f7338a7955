//! The part of a source that some positions of a convolution read, gathered into scratch.
//!
//! Borders are zero, storage is widened to f32, normalisation and activation are applied if the source is read through a
//! load, and along the width the columns are sorted by their phase modulo the step, so that the positions of a tap are
//! always neighbours: `[block][plane][row][phase][column][lanes]`.

mod block;
mod operands;

pub(crate) use block::{Affine, BlockNorm, SourceBlock, norm_act};
pub(crate) use operands::operand_value;

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
    low: [isize; 3],
    span: [usize; 3],
    source: [usize; 3],
    /// Whether each position is a voxel of the source, and reads that one alone.
    is_pointwise: bool,
}

impl PatchShape {
    /// For chunks of some positions along depth and height.
    pub(crate) fn new(grid: &TapGrid, chunk: [usize; 2], lanes: usize) -> PatchShape {
        let extent = |axis: usize| (chunk[axis] - 1) * grid.step[axis] + grid.span[axis] + 1;
        // A transposed convolution may have positions behind the end of its source.
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
            low: grid.low,
            span: grid.span,
            source: grid.source,
            is_pointwise: are_voxels && reads_one,
        }
    }

    /// Floats of a row.
    pub(crate) fn row(&self) -> usize {
        self.step[2] * self.columns * self.lanes
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
        [self.step[0] * self.plane(), self.step[1] * self.row()]
    }

    /// Floats of features from one position to the next along depth and height in the source itself, if each position is a voxel of
    /// it and reads that one alone.
    pub(crate) fn source_strides(&self) -> Option<[usize; 2]> {
        let [_, height, width] = self.source;
        self.is_pointwise.then_some([height * width * LANES, width * LANES])
    }

    /// Where a tap's source is, relative to that of the position.
    pub(crate) fn tap_offset(&self, shift: [isize; 3]) -> usize {
        let [d, h, w] = [0, 1, 2].map(|axis| (shift[axis] - self.low[axis]) as usize);
        let column = (w % self.step[2]) * self.columns + w / self.step[2];
        d * self.plane() + h * self.row() + column * self.lanes
    }

    /// Whether any tap of any position reads a plane (or row) of the patch.
    fn is_read(&self, axis: usize, at: usize) -> bool {
        at % self.step[axis] <= self.span[axis]
    }

    /// Every row that is read: its place in the patch, and the row of the source, or nothing if that is out of bounds.
    #[inline(always)]
    fn rows_read(&self, first: [usize; 2]) -> impl Iterator<Item = (usize, Option<usize>)> {
        let [depth, height, _] = self.source;
        let planes = (0..self.planes).filter(move |plane| self.is_read(0, *plane));
        planes.flat_map(move |plane| {
            let d = (first[0] * self.step[0] + plane) as isize + self.low[0];
            let rows = (0..self.rows).filter(move |row| self.is_read(1, *row));
            rows.map(move |row| {
                let h = (first[1] * self.step[1] + row) as isize + self.low[1];
                let inside = d >= 0 && (d as usize) < depth && h >= 0 && (h as usize) < height;
                let from = inside.then(|| d as usize * height + h as usize);
                (plane * self.plane() + row * self.row(), from)
            })
        })
    }
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
        // SAFETY: this function's contract is that of the call; the index is checked.
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

    /// The address of the first of `count` blocks of a sample and the floats from one to the next, if readers see all of them in f32 and as
    /// they are stored, at equal distances.
    ///
    /// # Safety
    /// The blocks' buffers are as [`SourceBlock::data`] says, and `sample` is one of their samples.
    #[inline(always)]
    pub(crate) unsafe fn run_of_f32(
        &self,
        first: usize,
        count: usize,
        sample: usize,
    ) -> Option<(*const f32, usize)> {
        // SAFETY: this function's contract is that of each call.
        let at = |block: usize| unsafe { self.as_f32(first + block, sample) };
        let start = at(0)?;
        let stride = match count {
            1 => 0,
            _ => (at(1)? as usize).checked_sub(start as usize)? / size_of::<f32>(),
        };
        (2..count)
            .all(|block| at(block) == Some(start.wrapping_add(block * stride)))
            .then_some((start, stride))
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
        voxels: std::ops::Range<usize>,
        to: *mut f32,
    ) {
        // SAFETY: this function's contract is that of the call; the index is checked.
        unsafe {
            match self {
                Blocks::F32(blocks) => blocks[block].widen::<S>(sample, voxels, to),
                Blocks::Bf16(blocks) => blocks[block].widen::<S>(sample, voxels, to),
            }
        }
    }
}

/// What is convolved.
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
                    for phase in 0..step {
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
