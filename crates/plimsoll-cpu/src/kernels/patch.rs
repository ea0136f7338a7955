//! The part of a source that some positions of a convolution read, gathered into scratch.
//!
//! Borders are filled with zeroes, storage is widened to f32, normalisation and activation are applied if the source is read
//! through a load, and along the width the columns are sorted by their phase modulo the step, so that the positions of a tap
//! are always neighbours: `[block][plane][row][phase][column][lanes]`.

use super::geometry::TapGrid;
use crate::kernel::Ptr;
use crate::simd::{Bf16, Element, LANES, Simd};

/// The shape of gathered patches of a convolution.
#[derive(Clone, Debug)]
pub(crate) struct PatchShape {
    /// Positions gathered at a time along depth and height; all of the width.
    pub(crate) chunk: [usize; 2],
    planes: usize,
    rows: usize,
    /// Columns of one phase.
    columns: usize,
    /// Floats of a column: sixteen lanes of features; the channels of an image, filled up.
    pub(crate) lanes: usize,
    step: [usize; 3],
    low: [isize; 3],
    span: [usize; 3],
    source: [usize; 3],
}

impl PatchShape {
    /// For chunks of some positions along depth and height.
    pub(crate) fn new(grid: &TapGrid, chunk: [usize; 2], lanes: usize) -> PatchShape {
        let extent = |axis: usize| (chunk[axis] - 1) * grid.step[axis] + grid.span[axis] + 1;
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

    /// Where a tap's source is, against that of the position.
    pub(crate) fn tap_offset(&self, shift: [isize; 3]) -> usize {
        let [d, h, w] = [0, 1, 2].map(|axis| (shift[axis] - self.low[axis]) as usize);
        let column = (w % self.step[2]) * self.columns + w / self.step[2];
        d * self.plane() + h * self.row() + column * self.lanes
    }

    /// Whether any tap of any position reads a plane (or row) of the patch.
    fn is_read(&self, axis: usize, at: usize) -> bool {
        at % self.step[axis] <= self.span[axis]
    }

    /// Every row that is read: its place in the patch, and the row of the source, none outside of it.
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

/// How one block of channels of a source is read: y ↦ lrelu(a · y + b), or as it is.
#[derive(Clone, Copy)]
pub(crate) struct BlockNorm {
    /// Mean and reciprocal standard deviation of the first sample, `[2][16]`.
    pub(crate) statistics: Ptr<f32>,
    /// From one sample to the next.
    pub(crate) statistics_stride: usize,
    /// Scale and shift, `[16]` each.
    pub(crate) affine: Option<(Ptr<f32>, Ptr<f32>)>,
    pub(crate) slope: f32,
}

/// One block of sixteen channels of a source.
#[derive(Clone, Copy)]
pub(crate) struct SourceBlock<T> {
    /// The block in the first sample, `[D][H][W][16]`.
    pub(crate) data: Ptr<T>,
    /// Elements from one sample to the next.
    pub(crate) sample_stride: usize,
    pub(crate) norm: Option<BlockNorm>,
}

/// a and b of y ↦ a · y + b.
#[derive(Clone, Copy)]
pub(crate) struct Affine<V> {
    pub(crate) a: V,
    pub(crate) b: V,
    pub(crate) slope: V,
}

impl BlockNorm {
    /// The map of a sample.
    ///
    /// # Safety
    /// As for [`Simd`]; the statistics must be written.
    #[inline(always)]
    pub(crate) unsafe fn affine<S: Simd>(&self, sample: usize) -> Affine<S::V> {
        // SAFETY: the sample is one of the source's, and statistics, scale and shift have sixteen lanes per block.
        unsafe {
            let statistics = self.statistics.add(sample * self.statistics_stride).0;
            let (mean, rstd) = (S::load(statistics), S::load(statistics.add(LANES)));
            let (a, shift) = match self.affine {
                Some((scale, shift)) => (S::mul(rstd, S::load(scale.0)), S::load(shift.0)),
                None => (rstd, S::zero()),
            };
            Affine { a, b: S::sub(shift, S::mul(mean, a)), slope: S::splat(self.slope) }
        }
    }
}

/// How values are changed while they are read. A trait and not a closure, because what is called in the innermost loop must be
/// inlined for the instruction set to reach it.
pub(crate) trait Read<S: Simd, T> {
    /// The value as its reader sees it.
    ///
    /// # Safety
    /// As for [`Simd`].
    unsafe fn read(&self, stored: S::V) -> S::V;
}

/// As they are.
pub(crate) struct AsStored;

impl<S: Simd, T> Read<S, T> for AsStored {
    #[inline(always)]
    unsafe fn read(&self, stored: S::V) -> S::V {
        stored
    }
}

impl<S: Simd, T: Element> Read<S, T> for Affine<S::V> {
    #[inline(always)]
    unsafe fn read(&self, stored: S::V) -> S::V {
        // SAFETY: passed on to the caller.
        unsafe { norm_act::<S, T>(self, stored) }
    }
}

/// The normalised and activated value, as it would be stored.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn norm_act<S: Simd, T: Element>(affine: &Affine<S::V>, y: S::V) -> S::V {
    // SAFETY: passed on to the caller.
    unsafe { T::round::<S>(S::leaky(S::fma(affine.a, y, affine.b), affine.slope)) }
}

impl<T: Element> SourceBlock<T> {
    /// Gathers the patch of one block whose first position is `first` (depth, height).
    ///
    /// # Safety
    /// As for [`Simd`]; `patch` must have room for a block of the shape, and the block must be of the grid's source.
    #[inline(always)]
    pub(crate) unsafe fn gather<S: Simd>(
        &self,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut f32,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            match &self.norm {
                None => self.gather_read::<S, _>(shape, sample, first, patch, &AsStored),
                Some(norm) => {
                    self.gather_read::<S, _>(shape, sample, first, patch, &norm.affine::<S>(sample));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn gather_read<S: Simd, R: Read<S, T>>(
        &self,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut f32,
        read: &R,
    ) {
        let width = shape.source[2];
        for (to, from) in shape.rows_read(first) {
            // SAFETY: rows are inside the source, columns are clipped to it, and the patch is as large as its shape says.
            unsafe {
                let data = self.data.add(sample * self.sample_stride).0.cast_const();
                let from = match from {
                    Some(row) => Some(data.add(row * width * LANES)),
                    None => None,
                };
                row::<S, T, R>(shape, patch.add(to), from, read);
            }
        }
    }

    /// Copies a run of voxels, as their reader sees them, in f32.
    ///
    /// # Safety
    /// As for [`Simd`]; `to` must have room for the voxels, which must be in the block.
    #[inline(always)]
    unsafe fn widen<S: Simd>(&self, sample: usize, voxels: std::ops::Range<usize>, to: *mut f32) {
        // SAFETY: passed on to the caller.
        unsafe {
            match &self.norm {
                None => self.widen_read::<S, _>(sample, voxels, to, &AsStored),
                Some(norm) => self.widen_read::<S, _>(sample, voxels, to, &norm.affine::<S>(sample)),
            }
        }
    }

    #[inline(always)]
    unsafe fn widen_read<S: Simd, R: Read<S, T>>(
        &self,
        sample: usize,
        voxels: std::ops::Range<usize>,
        to: *mut f32,
        read: &R,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            let from = self.data.0.add(sample * self.sample_stride + voxels.start * LANES);
            for i in 0..voxels.len() {
                S::store(to.add(i * LANES), read.read(T::load::<S>(from.add(i * LANES))));
            }
        }
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
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn gather<S: Simd>(
        &self,
        block: usize,
        shape: &PatchShape,
        sample: usize,
        first: [usize; 2],
        patch: *mut f32,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                Blocks::F32(blocks) => blocks[block].gather::<S>(shape, sample, first, patch),
                Blocks::Bf16(blocks) => blocks[block].gather::<S>(shape, sample, first, patch),
            }
        }
    }

    /// Where a block of a sample lies, if readers see it in f32 and as it is stored.
    ///
    /// # Safety
    /// The block and the sample must be of the source.
    #[inline(always)]
    pub(crate) unsafe fn as_f32(&self, block: usize, sample: usize) -> Option<*const f32> {
        match self {
            Blocks::F32(blocks) if blocks[block].norm.is_none() => {
                let block = &blocks[block];
                // SAFETY: passed on to the caller.
                Some(unsafe { block.data.add(sample * block.sample_stride).0.cast_const() })
            }
            _ => None,
        }
    }

    /// [`SourceBlock::widen`] of one of the blocks.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn widen<S: Simd>(
        &self,
        block: usize,
        sample: usize,
        voxels: std::ops::Range<usize>,
        to: *mut f32,
    ) {
        // SAFETY: passed on to the caller.
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

/// Fills one row of a patch.
///
/// # Safety
/// `to` must have room for a row of the shape; `from` must be a row of the source.
#[inline(always)]
unsafe fn row<S: Simd, T: Element, R: Read<S, T>>(
    shape: &PatchShape,
    to: *mut f32,
    from: Option<*const T>,
    read: &R,
) {
    let (step, columns, width) = (shape.step[2], shape.columns, shape.source[2] as isize);
    for phase in 0..step {
        // Column c of a phase is at the place c · step + phase + low of the source; those inside are `inside`.
        let place = |column: usize| (column * step + phase) as isize + shape.low[2];
        // SAFETY: columns are those of the phase, places are checked against the width.
        unsafe {
            let to = to.add(phase * columns * LANES);
            let Some(from) = from else {
                for column in 0..columns {
                    S::store(to.add(column * LANES), S::zero());
                }
                continue;
            };
            let first = (0..columns).find(|column| place(*column) >= 0).unwrap_or(columns);
            let end = (first..columns).rev().find(|column| place(*column) < width).map_or(first, |c| c + 1);
            for column in 0..first {
                S::store(to.add(column * LANES), S::zero());
            }
            for column in first..end {
                let v = T::load::<S>(from.add(place(column) as usize * LANES));
                S::store(to.add(column * LANES), read.read(v));
            }
            for column in end..columns {
                S::store(to.add(column * LANES), S::zero());
            }
        }
    }
}

/// An image `[N][C][D][H][W]` as a source: its few channels side by side, filled up with zeroes to `lanes` of the shape.
#[derive(Clone, Copy)]
pub(crate) struct ImageSource {
    pub(crate) data: Ptr<f32>,
    pub(crate) channels: usize,
    pub(crate) voxels: usize,
}

impl ImageSource {
    /// Gathers the patch whose first position is `first` (depth, height).
    ///
    /// # Safety
    /// `patch` must have room for a block of the shape, and the image must be the grid's source.
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
            // SAFETY: the row is inside the source, columns are checked, and the patch is as large as its shape says.
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
