//! Zeroes for the weights that connect lanes of different groups, which a weight gradient sums as it sums all others.

use crate::kernel::{Kernel, Ptr};
use crate::layout::WeightBlocks;
use crate::simd::{LANES, Simd};

/// Sets the weights that connect different groups to zero.
pub(crate) struct ClearCrossGroup {
    /// `[output block][reach][tap][input][16]`, as [`WeightBlocks`] says.
    pub(crate) weights: Ptr<f32>,
    pub(crate) blocks: WeightBlocks,
    pub(crate) taps: usize,
}

impl Kernel for ClearCrossGroup {
    fn tasks(&self) -> usize {
        self.blocks.out_blocks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (blocks, inputs) = (&self.blocks, self.blocks.inputs());
        for (at, lane) in (0..blocks.reach).flat_map(|at| (0..inputs).map(move |lane| (at, lane))) {
            let met = blocks.met_by(task, at, lane);
            for tap in 0..self.taps {
                let place = (((task * blocks.reach + at) * self.taps + tap) * inputs + lane) * LANES;
                // SAFETY: `task` is an output block, `at < reach`, `tap < taps` and `lane < inputs`, and each such input
                // has sixteen weights; each task writes the weights of its output block.
                unsafe {
                    let weights = std::slice::from_raw_parts_mut(self.weights.0.add(place), LANES);
                    weights[..met.start].fill(0.0);
                    weights[met.end..].fill(0.0);
                }
            }
        }
    }
}
