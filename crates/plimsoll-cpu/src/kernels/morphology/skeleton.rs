//! A step of a soft skeleton, and its gradient. The dilation is not stored but computed row by row.

use plimsoll_graph::ops::Union;

use super::extreme::SignedVolume;
use super::{Rows, largest_around, padded};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Rows of a task.
const ROWS: usize = 64;

/// The operands of a step, volumes of one grid.
#[derive(Clone, Copy)]
pub(crate) struct SkeletonTerm {
    pub(crate) union: Union,
    /// `[channel][D][H][W]`
    pub(crate) x: Ptr<f32>,
    /// The erosion of x, and the grid of all.
    pub(crate) eroded: SignedVolume,
    /// The skeleton so far, like x.
    pub(crate) skeleton: Option<Ptr<f32>>,
    /// Per thread: a row of [`padded`] floats.
    pub(crate) scratch: Ptr<f32>,
}

impl SkeletonTerm {
    /// Floats of scratch per thread.
    pub(crate) fn per_thread(width: usize) -> usize {
        padded(width)
    }

    /// The skeleton so far, and what the opening removes, below zero where that is nothing.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `row` is what [`SkeletonTerm::prepare`] has written for the row at
    /// `place`, whose voxels from the multiple of sixteen `w` on are at least `count`, at most sixteen.
    #[inline(always)]
    unsafe fn at<S: Simd>(&self, row: Ptr<f32>, place: usize, w: usize, count: usize) -> (S::V, S::V) {
        // SAFETY: the volumes have `count` voxels at `place + w`, and the row in scratch is padded, as this function's
        // contract says.
        unsafe {
            let x = S::load_first(self.x.0.add(place + w), count);
            let removed = S::sub(x, largest_around::<S>(row, w, 1));
            let skeleton = match self.skeleton {
                Some(skeleton) => S::load_first(skeleton.0.add(place + w), count),
                None => S::zero(),
            };
            (skeleton, removed)
        }
    }

    /// The growth of the skeleton, which is added if it is above zero.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`.
    #[inline(always)]
    unsafe fn growth<S: Simd>(&self, skeleton: S::V, removed: S::V) -> S::V {
        // SAFETY: the machine has the instruction set, as this function's contract says.
        unsafe {
            match self.union {
                Union::Probabilistic => S::sub(removed, S::mul(skeleton, removed)),
                Union::Maximum => S::sub(removed, skeleton),
            }
        }
    }

    /// Writes the dilation along depth and height to the row in scratch; returns the row's place.
    ///
    /// # Safety
    /// [`SignedVolume::over_rows`]'s contract for the erosion, the row and `row`.
    #[inline(always)]
    unsafe fn prepare<S: Simd>(&self, channel: usize, depth: usize, height: usize, row: Ptr<f32>) -> usize {
        // SAFETY: this function's contract includes the contract of the call.
        unsafe { self.eroded.over_rows::<S>(channel, depth, height, 1, 1, row) };
        self.eroded.grid.row(channel, depth, height)
    }
}

/// The step.
pub(crate) struct SkeletonSteps {
    pub(crate) term: SkeletonTerm,
    /// Like x; it may alias x or the skeleton so far.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for SkeletonSteps {
    fn tasks(&self) -> usize {
        self.term.eroded.grid.row_tasks(ROWS)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let grid = self.term.eroded.grid;
        let width = grid.extent[2];
        let Rows { channel, depth, rows } = grid.rows(task, ROWS);
        // SAFETY: scratch has a row for `thread`, and rows are the grid's, since `task < tasks`. Tasks write disjoint
        // rows, each element after it is read.
        unsafe {
            let row = self.term.scratch.add(thread * padded(width));
            for height in rows {
                let place = self.term.prepare::<S>(channel, depth, height, row);
                for w in (0..width).step_by(LANES) {
                    let count = LANES.min(width - w);
                    let (skeleton, removed) = self.term.at::<S>(row, place, w, count);
                    let growth = self.term.growth::<S>(skeleton, S::max(removed, S::zero()));
                    let grown = S::add(skeleton, S::max(growth, S::zero()));
                    S::store_first(self.result.0.add(place + w), grown, count);
                }
            }
        }
    }
}

/// The gradients of x and of the skeleton so far.
pub(crate) struct SkeletonSlopes {
    pub(crate) term: SkeletonTerm,
    /// Like x.
    pub(crate) upstream: Ptr<f32>,
    /// Like x; each result may alias the upstream gradient, x or the skeleton.
    pub(crate) by_x: Ptr<f32>,
    pub(crate) by_skeleton: Option<Ptr<f32>>,
}

impl Kernel for SkeletonSlopes {
    fn tasks(&self) -> usize {
        self.term.eroded.grid.row_tasks(ROWS)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let grid = self.term.eroded.grid;
        let width = grid.extent[2];
        let Rows { channel, depth, rows } = grid.rows(task, ROWS);
        // SAFETY: scratch has a row for `thread`, and rows are the grid's, since `task < tasks`. Tasks write disjoint
        // rows; of each sixteen elements all operands are read before a result is written.
        unsafe {
            let row = self.term.scratch.add(thread * padded(width));
            let (zero, one) = (S::zero(), S::splat(1.0));
            for height in rows {
                let place = self.term.prepare::<S>(channel, depth, height, row);
                for w in (0..width).step_by(LANES) {
                    let count = LANES.min(width - w);
                    let (skeleton, difference) = self.term.at::<S>(row, place, w, count);
                    let g = S::load_first(self.upstream.0.add(place + w), count);
                    let removed = S::max(difference, zero);
                    let growth = self.term.growth::<S>(skeleton, removed);
                    let (by_removed, by_skeleton) = match self.term.union {
                        Union::Probabilistic => (S::sub(one, skeleton), S::sub(one, removed)),
                        Union::Maximum => (one, zero),
                    };
                    let by_removed = S::where_positive(growth, S::mul(g, by_removed), zero);
                    let by_x = S::where_positive(difference, by_removed, zero);
                    S::store_first(self.by_x.0.add(place + w), by_x, count);
                    if let Some(result) = self.by_skeleton {
                        let by_skeleton = S::where_positive(growth, S::mul(g, by_skeleton), g);
                        S::store_first(result.0.add(place + w), by_skeleton, count);
                    }
                }
            }
        }
    }
}
