//! Means over blocks of voxels, and their gradient.

use plimsoll_graph::ops::MeanPool as MeanPoolOp;

use crate::kernel::{Kernel, Ptr};
use crate::simd::Simd;

/// Means of the blocks of a fine volume in a coarse one, or, backwards, shares of a coarse one in a fine one.
pub(crate) struct MeanPool {
    /// `[channel][voxel]` of the fine volume; backwards, of the coarse one.
    pub(crate) source: Ptr<f32>,
    /// `[channel][voxel]` of the other.
    pub(crate) result: Ptr<f32>,
    /// Channels of all samples.
    pub(crate) channels: usize,
    pub(crate) fine: [usize; 3],
    pub(crate) coarse: [usize; 3],
    /// `true` if the fine volume is the result.
    pub(crate) backwards: bool,
}

impl Kernel for MeanPool {
    fn tasks(&self) -> usize {
        self.channels * self.coarse[0]
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (channel, d) = (task / self.coarse[0], task % self.coarse[0]);
        let range = |axis: usize, block: usize| {
            let start = |block: usize| MeanPoolOp::start(block, self.coarse[axis], self.fine[axis]);
            start(block)..start(block + 1)
        };
        let voxels = |extent: [usize; 3]| extent.iter().product::<usize>();
        let (coarse, fine) = (channel * voxels(self.coarse), channel * voxels(self.fine));
        let depths = range(0, d);
        for h in 0..self.coarse[1] {
            let heights = range(1, h);
            for w in 0..self.coarse[2] {
                let widths = range(2, w);
                let share = 1.0 / (depths.len() * heights.len() * widths.len()) as f32;
                let block = coarse + (d * self.coarse[1] + h) * self.coarse[2] + w;
                let mut sum = 0.0;
                for z in depths.clone() {
                    for y in heights.clone() {
                        let row = fine + (z * self.fine[1] + y) * self.fine[2];
                        for x in widths.clone() {
                            // SAFETY: blocks are below the coarse extent, and their ranges end at the fine one; a voxel is
                            // in one block, and a block in one task.
                            unsafe {
                                if self.backwards {
                                    *self.result.0.add(row + x) = share * *self.source.0.add(block);
                                } else {
                                    sum += *self.source.0.add(row + x);
                                }
                            }
                        }
                    }
                }
                if !self.backwards {
                    // SAFETY: the block is below the coarse extent, and in no other task.
                    unsafe { *self.result.0.add(block) = share * sum };
                }
            }
        }
    }
}
