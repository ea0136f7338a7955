//! Sums over voxels in parts: each part by a task of its own, and the parts of a lane in order.

use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Voxels of a part: few enough for many threads to share a volume, enough for a part to take longer than being handed out.
pub(crate) const PART: usize = 16 << 10;

/// The voxels of each of the parts that `voxels` voxels are divided into.
pub(crate) fn part(voxels: usize, part: usize) -> std::ops::Range<usize> {
    part * PART..voxels.min((part + 1) * PART)
}

/// Calls `each` with the numbers of a range and, in turn, one of some sums that are taken side by side, so that additions need not wait for each
/// other. Sums stay in registers while each has a place that is known when compiling; what is left of the range works on a copy.
#[inline(always)]
pub(crate) fn in_turn<T: Copy, const N: usize>(
    range: std::ops::Range<usize>,
    sums: &mut [T; N],
    each: impl Fn(usize, &mut T),
) {
    let whole = range.start + range.len() / N * N;
    for first in (range.start..whole).step_by(N) {
        for (turn, sum) in sums.iter_mut().enumerate() {
            each(first + turn, sum);
        }
    }
    let mut rest = *sums;
    for (number, sum) in (whole..range.end).zip(&mut rest) {
        each(number, sum);
    }
    *sums = rest;
}

/// Adds up the parts of the sums of each lane, in order.
pub(crate) struct SumLanes {
    /// `[block][part][16]`
    pub(crate) partial: Ptr<f64>,
    pub(crate) blocks: usize,
    pub(crate) parts: usize,
    /// What the sums are multiplied by.
    pub(crate) factor: f64,
    /// `[block][16]`
    pub(crate) result: Ptr<f32>,
}

impl Kernel for SumLanes {
    fn tasks(&self) -> usize {
        self.blocks
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        for lane in 0..LANES {
            // SAFETY: `task` is a block, which has `parts` parts of sixteen sums and sixteen results, which no other task
            // writes.
            unsafe {
                let first = self.partial.0.add(task * self.parts * LANES + lane);
                let sum: f64 = (0..self.parts).map(|part| *first.add(part * LANES)).sum();
                *self.result.0.add(task * LANES + lane) = (sum * self.factor) as f32;
            }
        }
    }
}
