//! Weights as direct kernels read them.

use super::SQUARE;
use crate::kernel::{DotKernel, Ptr};
use crate::simd::dot::{Dot, PAIR, PAIRS};
use crate::simd::{LANES, Simd};

/// Packs weights between features in pairs of inputs.
pub(crate) struct PackWeights {
    /// `[pair of blocks][tap][16 inputs][16 outputs]`
    pub(crate) weights: Ptr<f32>,
    /// The result, `[pair of blocks][tap]` squares of [`Dot::store_weights`].
    pub(crate) packed: Ptr<u16>,
    /// The number of pairs of an output block and an input block.
    pub(crate) pairs: usize,
    pub(crate) taps: usize,
}

impl DotKernel for PackWeights {
    fn tasks(&self) -> usize {
        self.pairs
    }

    #[inline(always)]
    unsafe fn task<D: Dot>(&self, task: usize, _thread: usize) {
        for square in task * self.taps..(task + 1) * self.taps {
            for pair in 0..PAIRS {
                // SAFETY: both buffers have a square of sixteen by sixteen for each tap of each pair of blocks, and `pair` is one of
                // its eight pairs of rows. Tasks write disjoint squares.
                unsafe {
                    let from = self.weights.0.add(square * LANES * LANES + pair * PAIR * LANES);
                    let to = self.packed.0.add(square * SQUARE);
                    D::store_weights(to, pair, [D::S::load(from), D::S::load(from.add(LANES))]);
                }
            }
        }
    }
}
