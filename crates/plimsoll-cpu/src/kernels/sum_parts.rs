//! Partial sums, added up in order.

use super::weight_grad::GradTiling;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Adds up partial sums, in order.
pub(crate) struct SumParts {
    /// `[part][count]`
    pub(crate) partial: Ptr<f32>,
    /// `[count]`
    pub(crate) result: Ptr<f32>,
    pub(crate) parts: usize,
    /// A multiple of sixteen.
    pub(crate) count: usize,
}

impl SumParts {
    /// The sum that follows a [`WeightGrad`](super::weight_grad::WeightGrad), if it has several parts.
    pub(crate) fn new(tiling: &GradTiling, partial: Ptr<f32>, result: Ptr<f32>) -> Option<SumParts> {
        (tiling.parts > 1).then(|| SumParts { partial, result, parts: tiling.parts, count: tiling.weights() })
    }
}

/// Floats of a task.
const SUM_CHUNK: usize = 4096;

impl Kernel for SumParts {
    fn tasks(&self) -> usize {
        self.count.div_ceil(SUM_CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let end = self.count.min((task + 1) * SUM_CHUNK);
        for place in (task * SUM_CHUNK..end).step_by(LANES) {
            // SAFETY: `place` is below `count`, and both are multiples of sixteen, so sixteen floats are there in each
            // part.
            unsafe {
                let mut sum = S::load(self.partial.0.add(place));
                for part in 1..self.parts {
                    sum = S::add(sum, S::load(self.partial.0.add(part * self.count + place)));
                }
                S::store(self.result.0.add(place), sum);
            }
        }
    }
}
