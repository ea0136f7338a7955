//! Weights turned round: from `[out block][in block][tap][16 in][16 out]` to `[in block][out block][tap][16 out][16 in]`, for
//! convolutions that run backwards.

use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

pub(crate) struct TransposeWeights {
    pub(crate) weights: Ptr<f32>,
    pub(crate) turned: Ptr<f32>,
    pub(crate) out_blocks: usize,
    /// Blocks of all sources.
    pub(crate) in_blocks: usize,
    /// The blocks that are wanted.
    pub(crate) wanted: std::ops::Range<usize>,
    pub(crate) taps: usize,
}

impl TransposeWeights {
    /// Floats of the turned weights.
    pub(crate) fn count(wanted: usize, out_blocks: usize, taps: usize) -> usize {
        wanted * out_blocks * taps * LANES * LANES
    }
}

impl Kernel for TransposeWeights {
    fn tasks(&self) -> usize {
        self.wanted.len() * self.out_blocks
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (wanted, output) = (task / self.out_blocks, task % self.out_blocks);
        let pair = self.taps * LANES * LANES;
        // SAFETY: both buffers have a square of sixteen by sixteen for each pair of blocks and tap; tasks write disjoint pairs.
        unsafe {
            let from = self.weights.0.add((output * self.in_blocks + self.wanted.start + wanted) * pair);
            let to = self.turned.0.add(task * pair);
            for tap in 0..self.taps {
                let from = std::slice::from_raw_parts(from.add(tap * LANES * LANES), LANES * LANES);
                let to = std::slice::from_raw_parts_mut(to.add(tap * LANES * LANES), LANES * LANES);
                for i in 0..LANES {
                    for o in 0..LANES {
                        to[o * LANES + i] = from[i * LANES + o];
                    }
                }
            }
        }
    }
}
