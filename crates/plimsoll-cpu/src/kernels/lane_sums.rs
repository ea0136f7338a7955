//! Sums over voxels in parts: each part by a task of its own, and the parts of a lane in order.

use std::ops::Range;

use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Voxels of a part: few enough for many threads to share a volume, enough for a part to take longer than being handed out.
pub(crate) const PART: usize = 16 << 10;

/// The voxels of each of the parts that `voxels` voxels are divided into.
#[inline]
pub(crate) fn part(voxels: usize, part: usize) -> Range<usize> {
    part * PART..voxels.min((part + 1) * PART)
}

/// Calls `each` with the numbers of a range and one of several independent sums, in rotation, so that additions need
/// not wait for each other. Sums stay in registers while the index of each is known at compile time; the rest of the
/// range works on a copy.
///
/// A closure that calls [`Simd`] must be `#[inline(always)]`: compiled as a function of its own it lacks the instruction set of its kernel, and
/// each of its operations becomes a call.
#[inline(always)]
pub(crate) fn in_turn<T: Copy, const N: usize>(
    range: Range<usize>,
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

/// The total of four sums that were taken in rotation.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(crate) unsafe fn total_of<S: Simd>(sums: [S::V; 4]) -> S::V {
    // SAFETY: the machine has the instruction set, as this function's contract says.
    unsafe { S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])) }
}

/// Adds up the parts of the sums of each lane, in order.
pub(crate) struct SumLanes {
    /// `[block][part][16]`
    pub(crate) partial: Ptr<f64>,
    pub(crate) blocks: usize,
    pub(crate) parts: usize,
    /// The factor of the sums.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_a_range_goes_to_the_sum_whose_turn_it_is() {
        for count in 0..10usize {
            // Of each sum, its numbers as bits.
            let mut sums = [0u32; 4];
            in_turn(8..8 + count, &mut sums, |number, sum| *sum |= 1 << number);
            for (turn, sum) in sums.into_iter().enumerate() {
                let own = (8 + turn..8 + count).step_by(4).fold(0, |bits, number| bits | 1u32 << number);
                assert_eq!(sum, own, "sum {turn} of {count} numbers");
            }
        }
    }
}
