//! Transposed weights, with inputs as outputs and outputs as inputs, for transposed convolutions.

use plimsoll_parallel::pairs;

use crate::kernel::{Kernel, Ptr};
use crate::layout::{Lanes, WeightBlocks};
use crate::simd::{LANES, Simd};

/// Transposes weights between features, both `[output block][reach][tap][input][16]` as their [`WeightBlocks`] say.
pub(crate) struct TransposeWeights {
    pub(crate) weights: Ptr<f32>,
    pub(crate) blocks: WeightBlocks,
    /// The result.
    pub(crate) transposed: Ptr<f32>,
    /// The layout of the transposed weights, whose outputs are the computed inputs.
    pub(crate) transposed_blocks: WeightBlocks,
    /// The first block of inputs that is wanted.
    pub(crate) first: usize,
    pub(crate) taps: usize,
}

impl Kernel for TransposeWeights {
    fn tasks(&self) -> usize {
        self.transposed_blocks.out_blocks() * self.transposed_blocks.reach
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (blocks, transposed) = (&self.blocks, &self.transposed_blocks);
        let (wanted, at) = (task / transposed.reach, task % transposed.reach);
        let tap = blocks.tap();
        // Otherwise the pairs of one would differ from the pairs of the other.
        assert_eq!(tap, transposed.tap(), "weights between features have as many inputs either way");
        // SAFETY: both buffers have `taps` · `tap` weights for each pair of blocks: `task` is one of the result's, and
        // `pair` one of the weights'. Tasks write disjoint pairs.
        unsafe {
            let to = std::slice::from_raw_parts_mut(
                self.transposed.0.add(task * self.taps * tap),
                self.taps * tap,
            );
            let Some(pair) = blocks.pair(transposed.first[wanted] + at, self.first + wanted) else {
                to.fill(0.0);
                return;
            };
            let from =
                std::slice::from_raw_parts(self.weights.0.add(pair * self.taps * tap), self.taps * tap);
            for (from, to) in from.chunks_exact(tap).zip(to.chunks_exact_mut(tap)) {
                match blocks.lanes {
                    Lanes::Own(width) => transpose_groups(from, to, width),
                    _ => transpose_square::<S>(from, to),
                }
            }
        }
    }
}

/// From `[16 in][16 out]` to `[16 out][16 in]`.
///
/// # Safety
/// The machine has the instruction set of `S`.
///
/// # Panics
/// Panics if one of them is not such a square.
#[inline(always)]
unsafe fn transpose_square<S: Simd>(from: &[f32], to: &mut [f32]) {
    assert_eq!((from.len(), to.len()), (LANES * LANES, LANES * LANES), "a square of sixteen by sixteen");
    // SAFETY: both have sixteen rows of sixteen, as was checked; the machine has the instruction set, as this function's contract says.
    unsafe {
        let mut rows = [S::zero(); LANES];
        for (row, from) in pairs(rows.iter_mut(), from.chunks_exact(LANES)) {
            *row = S::load(from.as_ptr());
        }
        for (row, to) in pairs(S::transpose(rows), to.chunks_exact_mut(LANES)) {
            S::store(to.as_mut_ptr(), row);
        }
    }
}

/// From `[in of a group][16 out]` to `[out of a group][16 in]`.
#[inline(always)]
fn transpose_groups(from: &[f32], to: &mut [f32], width: usize) {
    for (i, o) in (0..width).flat_map(|i| (0..LANES).map(move |o| (i, o))) {
        to[o % width * LANES + o / width * width + i] = from[i * LANES + o];
    }
}
