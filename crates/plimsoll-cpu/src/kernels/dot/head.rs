//! Heads whose products are of bf16: as [`HeadLogits`](crate::kernels::head::HeadLogits), in pairs of channels.

use plimsoll_parallel::pairs;
use std::mem::MaybeUninit;

use crate::kernel::{DotKernel, Ptr};
use crate::kernels::head::{Reader, SQUARES, TILE, by_classes};
use crate::kernels::patch::SourceBlock;
use crate::simd::dot::{Dot, PAIR, PAIRS};
use crate::simd::{Bf16, LANES, Simd};

/// Voxels of a task.
const CHUNK: usize = 2048;
/// Twos of blocks of channels that are transposed once for all classes.
const TWOS: usize = 2;

/// Rounds the weights of a head to operands.
pub(crate) struct PackHeadWeights {
    /// `[class][block][16]`
    pub(crate) weights: Ptr<f32>,
    /// The result, alike.
    pub(crate) packed: Ptr<u16>,
    pub(crate) classes: usize,
    pub(crate) blocks: usize,
}

impl DotKernel for PackHeadWeights {
    fn tasks(&self) -> usize {
        self.classes
    }

    #[inline(always)]
    unsafe fn task<D: Dot>(&self, task: usize, _thread: usize) {
        for block in task * self.blocks..(task + 1) * self.blocks {
            // SAFETY: both buffers have sixteen elements for each block of each class; tasks are classes.
            unsafe {
                let weights = D::S::load(self.weights.0.add(block * LANES));
                D::store_operand(self.packed.0.add(block * LANES), weights);
            }
        }
    }
}

/// Two blocks of channels of sixteen voxels, `[pair][voxel][2]`.
type Square = [[u16; LANES * PAIR]; 2 * PAIRS];

/// logits\[n,c,v\] = Σ weights\[c,i\] · features\[n,i,v\] + bias\[c\]
pub(crate) struct DotHead {
    pub(crate) source: Vec<SourceBlock<Bf16>>,
    /// The weights as packed by [`PackHeadWeights`].
    pub(crate) packed: Ptr<u16>,
    /// `[class]`
    pub(crate) bias: Option<Ptr<f32>>,
    /// The result, `[sample][class][voxel]`.
    pub(crate) logits: Ptr<Bf16>,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) voxels: usize,
}

impl DotKernel for DotHead {
    fn tasks(&self) -> usize {
        self.batch * self.voxels.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<D: Dot>(&self, task: usize, _thread: usize) {
        let chunks = self.voxels.div_ceil(CHUNK);
        let (chunk, sample) = (task % chunks, task / chunks);
        let end = self.voxels.min((chunk + 1) * CHUNK);
        let twos = self.source.len().div_ceil(2);
        let mut squares = [const { MaybeUninit::<Square>::uninit() }; TWOS * SQUARES];
        for first in (chunk * CHUNK..end).step_by(TILE) {
            let count = TILE.min(end - first);
            // SAFETY: voxels of a tile end with the sample, and `task < tasks`, so the sample is below `batch`. There are squares for
            // `TWOS` twos of blocks, which are written before they are read.
            unsafe {
                for two in 0..TWOS.min(twos) {
                    for square in 0..count.div_ceil(LANES) {
                        let to = &mut squares[two * SQUARES + square];
                        to.write(self.transposed::<D>(two, sample, first, count, square));
                    }
                }
                by_classes!(
                    D::S,
                    self.classes,
                    self.group::<D>(group, sample, first, count, squares.as_ptr().cast())
                );
            }
        }
    }
}

impl DotHead {
    /// A square of two blocks, of a tile of some voxels; zeroes for a block that is not there.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel; `sample < batch`, `first + count <= voxels`, and the square has at least one of them.
    #[inline(always)]
    unsafe fn transposed<D: Dot>(
        &self,
        two: usize,
        sample: usize,
        first: usize,
        count: usize,
        square: usize,
    ) -> Square {
        let mut operands = [[0u16; LANES * PAIR]; LANES];
        let mut columns = operands;
        // SAFETY: voxels that are read are below `first + count`; rows and columns have the bits of sixteen lanes, and a row has two
        // blocks of operands.
        unsafe {
            for (half, block) in self.source[2 * two..].iter().take(2).enumerate() {
                let reader = Reader::new::<D::S>(block, sample);
                for (i, row) in operands.iter_mut().enumerate().take(count - square * LANES) {
                    let voxel = reader.voxel::<D::S>(first + square * LANES + i);
                    D::store_operand(row.as_mut_ptr().add(half * LANES), voxel);
                }
            }
            let mut rows = [D::S::zero(); LANES];
            for (row, operands) in pairs(rows.iter_mut(), &operands) {
                *row = D::S::load(operands.as_ptr().cast());
            }
            for (column, lanes) in pairs(columns.iter_mut(), D::S::transpose(rows)) {
                D::S::store(column.as_mut_ptr().cast(), lanes);
            }
        }
        columns
    }

    /// `N` classes from `group` on, of a tile of `count` voxels.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel; `sample < batch`, `first + count <= voxels`, `count <= TILE`, and
    /// `group + N <= classes`. The first [`TWOS`] twos of blocks have `[two][SQUARES]` squares.
    #[inline(always)]
    unsafe fn group<D: Dot, const N: usize>(
        &self,
        group: usize,
        sample: usize,
        first: usize,
        count: usize,
        squares: *const Square,
    ) {
        let blocks = self.source.len();
        let mut rows = [const { MaybeUninit::<[u16; TILE]>::uninit() }; N];
        // SAFETY: `group + c < classes`, pairs belong to blocks that are there, and a tile has `count` voxels from `first` on, as this
        // function's contract says. Of each row the squares of these voxels are written, and then `count` numbers read.
        unsafe {
            for square in 0..count.div_ceil(LANES) {
                let mut sums = [D::S::zero(); N];
                for two in 0..blocks.div_ceil(2) {
                    let own;
                    let columns = match two < TWOS {
                        true => &*squares.add(two * SQUARES + square),
                        false => {
                            own = self.transposed::<D>(two, sample, first, count, square);
                            &own
                        }
                    };
                    let weights = self.packed.0.add((group * blocks + 2 * two) * LANES);
                    let pairs = PAIRS * 2.min(blocks - 2 * two);
                    for (pair, column) in columns.iter().enumerate().take(pairs) {
                        let x = D::load_pairs(column.as_ptr());
                        for (c, sum) in sums.iter_mut().enumerate() {
                            let w = D::splat_pair(weights.add(c * blocks * LANES + pair * PAIR));
                            *sum = D::dot(*sum, x, w);
                        }
                    }
                }
                for (c, (row, sum)) in pairs(rows.iter_mut(), sums).enumerate() {
                    let sum = match self.bias {
                        Some(bias) => D::S::add(sum, D::S::splat(*bias.0.add(group + c))),
                        None => sum,
                    };
                    D::store_operand(row.as_mut_ptr().cast::<u16>().add(square * LANES), sum);
                }
            }
            for (c, row) in rows.iter().enumerate() {
                let to = self.logits.0.add((sample * self.classes + group + c) * self.voxels + first);
                std::ptr::copy_nonoverlapping(row.as_ptr().cast::<Bf16>(), to, count);
            }
        }
    }
}
