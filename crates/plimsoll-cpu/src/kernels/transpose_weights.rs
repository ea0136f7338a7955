//! Weights turned round, from outputs of inputs to inputs of outputs, for convolutions that run backwards.

use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};
use crate::weight_blocks::{Lanes, WeightBlocks};

pub(crate) struct TransposeWeights {
    pub(crate) weights: Ptr<f32>,
    pub(crate) blocks: WeightBlocks,
    pub(crate) turned: Ptr<f32>,
    /// Of the turned weights, whose outputs are the inputs that are wanted.
    pub(crate) turned_blocks: WeightBlocks,
    /// The first block of inputs that is wanted.
    pub(crate) first: usize,
    pub(crate) taps: usize,
}

impl Kernel for TransposeWeights {
    fn tasks(&self) -> usize {
        self.turned_blocks.out_blocks() * self.turned_blocks.reach
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (blocks, turned) = (&self.blocks, &self.turned_blocks);
        let (wanted, at) = (task / turned.reach, task % turned.reach);
        let tap = blocks.tap();
        // SAFETY: both buffers have as many weights for each pair of blocks and tap; tasks write disjoint pairs.
        unsafe {
            let to =
                std::slice::from_raw_parts_mut(self.turned.0.add(task * self.taps * tap), self.taps * tap);
            let Some(pair) = blocks.pair(turned.first[wanted] + at, self.first + wanted) else {
                to.fill(0.0);
                return;
            };
            let from =
                std::slice::from_raw_parts(self.weights.0.add(pair * self.taps * tap), self.taps * tap);
            for (from, to) in from.chunks_exact(tap).zip(to.chunks_exact_mut(tap)) {
                match blocks.lanes {
                    Lanes::Own(width) => turn_groups(from, to, width),
                    _ => turn_square(from, to),
                }
            }
        }
    }
}

/// From `[16 in][16 out]` to `[16 out][16 in]`.
#[inline(always)]
fn turn_square(from: &[f32], to: &mut [f32]) {
    for i in 0..LANES {
        for o in 0..LANES {
            to[o * LANES + i] = from[i * LANES + o];
        }
    }
}

/// From `[in of a group][16 out]` to `[out of a group][16 in]`.
#[inline(always)]
fn turn_groups(from: &[f32], to: &mut [f32], width: usize) {
    for (i, o) in (0..width).flat_map(|i| (0..LANES).map(move |o| (i, o))) {
        to[o % width * LANES + o / width * width + i] = from[i * LANES + o];
    }
}
