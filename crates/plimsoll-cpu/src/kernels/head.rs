//! Heads: from features to the logits of a few classes, voxel by voxel, and back.
//!
//! Features lie with channels innermost, logits with voxels innermost; between the two, squares of sixteen voxels by
//! sixteen channels are transposed in registers, once for all classes. Rows of logits are far apart, often by a power of two, so that a
//! cache holds the ends of few of them: a class is written for a whole tile of voxels at a time.

use plimsoll_parallel::pairs;
use std::mem::MaybeUninit;

use super::patch::{Affine, SourceBlock, norm_act};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Voxels of a task.
const CHUNK: usize = 2048;
/// Voxels of a part of a sum.
pub(crate) const PART: usize = 4 * CHUNK;
/// Voxels of a tile.
pub(super) const TILE: usize = 128;
/// Squares of sixteen voxels of a tile.
pub(super) const SQUARES: usize = TILE / LANES;
/// Blocks of channels that are transposed once for all classes; those behind them for each group of classes.
const BLOCKS: usize = 4;

/// Calls a function for one group of classes after the other: as many as the registers of `$simd` hold sums, then fewer of what is left.
macro_rules! by_classes {
    ($simd:ty, $classes:expr, $this:ident . $function:ident :: <$s:ty> ($group:ident, $($arguments:expr),*)) => {{
        let classes = $classes;
        let mut $group = 0;
        by_classes!(@ $simd, classes, $group, $this.$function::<$s>($($arguments),*), 8, 7, 6, 5, 4, 3, 2, 1);
    }};
    (@ $simd:ty, $classes:ident, $group:ident, $this:ident . $function:ident :: <$s:ty> $arguments:tt, $($n:literal),*) => {
        $(
            if const { $n <= <$simd as $crate::simd::Simd>::TILE_POSITIONS } {
                while $classes - $group >= $n {
                    by_classes!(# $this.$function::<$s, $n>, $group, $arguments);
                    $group += $n;
                }
            }
        )*
    };
    (# $this:ident . $function:ident :: <$s:ty, $n:literal>, $group:ident, ($($arguments:expr),*)) => {
        $this.$function::<$s, $n>($group, $($arguments),*)
    };
}

pub(super) use by_classes;

/// A block of one sample, and how it is read.
pub(super) struct Reader<V, T> {
    /// `[voxel][16]`
    data: *const T,
    affine: Option<Affine<V>>,
}

impl<V: Copy, T: Element> Reader<V, T> {
    /// # Safety
    /// The machine has the instruction set of `S`; the block's buffers are as its fields say, and `sample` is one of
    /// theirs.
    #[inline(always)]
    pub(super) unsafe fn new<S: Simd<V = V>>(block: &SourceBlock<T>, sample: usize) -> Reader<V, T> {
        // SAFETY: the sample is one of the block's, as this function's contract says, so it begins in the block's buffer.
        unsafe {
            let affine = match &block.norm {
                Some(norm) => Some(norm.affine::<S>(sample)),
                None => None,
            };
            Reader { data: block.data.0.add(sample * block.sample_stride), affine }
        }
    }

    /// A voxel as its reader sees it.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `voxel` is one of the block's, which is valid for reads and initialised.
    #[inline(always)]
    pub(super) unsafe fn voxel<S: Simd<V = V>>(&self, voxel: usize) -> V {
        // SAFETY: the voxel is one of the block's, as this function's contract says, and so has sixteen elements.
        unsafe {
            let stored = T::load::<S>(self.data.add(voxel * LANES));
            match &self.affine {
                Some(affine) => norm_act::<S, T>(affine, stored),
                None => stored,
            }
        }
    }
}

/// Sixteen channels of sixteen voxels, `[channel][voxel]`.
type Square = [[f32; LANES]; LANES];

/// logits\[n,c,v\] = bias\[c\] + Σ weights\[c,i\] · features\[n,i,v\]
pub(crate) struct HeadLogits<T, O = f32> {
    pub(crate) source: Vec<SourceBlock<T>>,
    /// `[class][block][16]`
    pub(crate) weights: Ptr<f32>,
    /// `[class]`
    pub(crate) bias: Option<Ptr<f32>>,
    /// The result, `[sample][class][voxel]`.
    pub(crate) logits: Ptr<O>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) voxels: usize,
}

impl<T: Element, O: Element> Kernel for HeadLogits<T, O> {
    fn tasks(&self) -> usize {
        self.batch * self.voxels.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let chunks = self.voxels.div_ceil(CHUNK);
        let (chunk, sample) = (task % chunks, task / chunks);
        let end = self.voxels.min((chunk + 1) * CHUNK);
        let mut squares = [const { MaybeUninit::<Square>::uninit() }; BLOCKS * SQUARES];
        for first in (chunk * CHUNK..end).step_by(TILE) {
            let count = TILE.min(end - first);
            // SAFETY: voxels of a tile end with the sample, and `task < tasks`, so the sample is below `batch`. There are squares for
            // `BLOCKS` blocks, which are written before they are read.
            unsafe {
                for (b, block) in self.source.iter().enumerate().take(BLOCKS) {
                    for square in 0..count.div_ceil(LANES) {
                        let to = &mut squares[b * SQUARES + square];
                        to.write(transposed::<S, T>(block, sample, first, count, square));
                    }
                }
                by_classes!(
                    S,
                    self.classes,
                    self.group::<S>(group, sample, first, count, squares.as_ptr().cast())
                );
            }
        }
    }
}

/// A square of a block of one sample, of a tile of some voxels.
///
/// # Safety
/// [`Reader::new`]'s contract; `first + count` voxels are in the block, and the square has at least one of them.
#[inline(always)]
unsafe fn transposed<S: Simd, T: Element>(
    block: &SourceBlock<T>,
    sample: usize,
    first: usize,
    count: usize,
    square: usize,
) -> Square {
    let mut columns = [[0.0; LANES]; LANES];
    // SAFETY: voxels that are read are below `first + count`, as this function's contract says; columns have sixteen lanes.
    unsafe {
        let reader = Reader::new::<S>(block, sample);
        let mut rows = [S::zero(); LANES];
        for (i, row) in rows.iter_mut().enumerate().take(count - square * LANES) {
            *row = reader.voxel::<S>(first + square * LANES + i);
        }
        for (column, lanes) in pairs(columns.iter_mut(), S::transpose(rows)) {
            S::store(column.as_mut_ptr(), lanes);
        }
    }
    columns
}

impl<T: Element, O: Element> HeadLogits<T, O> {
    /// `N` classes from `group` on, of a tile of `count` voxels.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `sample < batch`, `first + count <= voxels`, `count <= TILE`, and
    /// `group + N <= classes`. The first [`BLOCKS`] blocks of the source have `[block][SQUARES]` squares.
    #[inline(always)]
    unsafe fn group<S: Simd, const N: usize>(
        &self,
        group: usize,
        sample: usize,
        first: usize,
        count: usize,
        squares: *const Square,
    ) {
        let blocks = self.source.len();
        let mut rows = [const { MaybeUninit::<[O; TILE]>::uninit() }; N];
        // SAFETY: `group + c < classes`, `b < blocks`, and a tile has `count` voxels from `first` on, as this function's contract says.
        // Of each row the squares of these voxels are written, and then `count` numbers read.
        unsafe {
            for square in 0..count.div_ceil(LANES) {
                let mut sums = [S::zero(); N];
                if let Some(bias) = self.bias {
                    for (c, sum) in sums.iter_mut().enumerate() {
                        *sum = S::splat(*bias.0.add(group + c));
                    }
                }
                for b in 0..blocks {
                    let own;
                    let columns = match b < BLOCKS {
                        true => &*squares.add(b * SQUARES + square),
                        false => {
                            own = transposed::<S, T>(&self.source[b], sample, first, count, square);
                            &own
                        }
                    };
                    let weights = self.weights.0.add((group * blocks + b) * LANES);
                    for (channel, column) in columns.iter().enumerate() {
                        let x = S::load(column.as_ptr());
                        for (c, sum) in sums.iter_mut().enumerate() {
                            *sum = S::fma(S::splat(*weights.add(c * blocks * LANES + channel)), x, *sum);
                        }
                    }
                }
                for (row, sum) in pairs(rows.iter_mut(), sums) {
                    O::store::<S>(row.as_mut_ptr().cast::<O>().add(square * LANES), sum);
                }
            }
            for (c, row) in rows.iter().enumerate() {
                let to = self.logits.0.add((sample * self.classes + group + c) * self.voxels + first);
                std::ptr::copy_nonoverlapping(row.as_ptr().cast::<O>(), to, count);
            }
        }
    }
}

/// features\[n,i,v\] = Σ weights\[c,i\] · logits\[n,c,v\], and what they are added to: the gradient of the features.
pub(crate) struct HeadBack<T> {
    /// `[sample][class][voxel]`
    pub(crate) logits: Ptr<f32>,
    /// `[class][block][16]`
    pub(crate) weights: Ptr<f32>,
    /// Like `features`, which may alias it.
    pub(crate) added_to: Option<Ptr<T>>,
    /// The result, `[sample][block][voxel][16]`.
    pub(crate) features: Ptr<T>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) blocks: usize,
    pub(crate) voxels: usize,
    /// Voxels from one block of features to the next: more than `voxels` where these are a part of a sample.
    pub(crate) block_stride: usize,
}

impl<T: Element> Kernel for HeadBack<T> {
    fn tasks(&self) -> usize {
        self.batch * self.voxels.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let chunks = self.voxels.div_ceil(CHUNK);
        let (chunk, sample) = (task % chunks, task / chunks);
        for block in 0..self.blocks {
            for voxel in chunk * CHUNK..self.voxels.min((chunk + 1) * CHUNK) {
                // SAFETY: class, block and voxel are below the extents of the buffers, and so is the sample, since `task <
                // tasks`; tasks write disjoint voxels.
                unsafe {
                    let mut sum = S::zero();
                    for class in 0..self.classes {
                        let g = *self.logits.0.add((sample * self.classes + class) * self.voxels + voxel);
                        let w = S::load(self.weights.0.add((class * self.blocks + block) * LANES));
                        sum = S::fma(w, S::splat(g), sum);
                    }
                    let place = ((sample * self.blocks + block) * self.block_stride + voxel) * LANES;
                    if let Some(added_to) = self.added_to {
                        sum = S::add(T::load::<S>(added_to.0.add(place)), sum);
                    }
                    T::store::<S>(self.features.0.add(place), sum);
                }
            }
        }
    }
}

/// weights\[c,i\] = Σ logits\[n,c,v\] · features\[n,i,v\], in parts that [`SumParts`](super::weight_grad::SumParts) adds
/// up.
pub(crate) struct HeadWeightGrad<T> {
    pub(crate) source: Vec<SourceBlock<T>>,
    /// `[sample][class][voxel]`
    pub(crate) logits: Ptr<f32>,
    /// The result, `[part][class][block][16]`.
    pub(crate) partial: Ptr<f32>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) voxels: usize,
}

impl<T: Element> HeadWeightGrad<T> {
    /// Parts that the sums are divided into.
    pub(crate) fn parts(batch: usize, voxels: usize) -> usize {
        batch * voxels.div_ceil(PART)
    }
}

impl<T: Element> Kernel for HeadWeightGrad<T> {
    fn tasks(&self) -> usize {
        Self::parts(self.batch, self.voxels)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        // SAFETY: this function's contract, and groups end with the classes.
        unsafe { by_classes!(S, self.classes, self.group::<S>(group, task)) }
    }
}

impl<T: Element> HeadWeightGrad<T> {
    /// `N` classes from `group` on.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `group + N <= classes`.
    #[inline(always)]
    unsafe fn group<S: Simd, const N: usize>(&self, group: usize, task: usize) {
        let parts = self.voxels.div_ceil(PART);
        let (part, sample) = (task % parts, task / parts);
        let voxels = part * PART..self.voxels.min((part + 1) * PART);
        let blocks = self.source.len();
        for (b, block) in self.source.iter().enumerate() {
            // SAFETY: `group + c < classes`, `voxel < voxels`, and the sample is below `batch`, since `task < tasks`,
            // the number of parts; tasks write disjoint ones.
            unsafe {
                let reader = Reader::new::<S>(block, sample);
                let mut sums = [S::zero(); N];
                let logits = self.logits.0.add((sample * self.classes + group) * self.voxels);
                for voxel in voxels.clone() {
                    let x = reader.voxel::<S>(voxel);
                    for (c, sum) in sums.iter_mut().enumerate() {
                        *sum = S::fma(S::splat(*logits.add(c * self.voxels + voxel)), x, *sum);
                    }
                }
                for (c, sum) in sums.into_iter().enumerate() {
                    let place = (task * self.classes + group + c) * blocks + b;
                    S::store(self.partial.0.add(place * LANES), sum);
                }
            }
        }
    }
}
