//! A step of a soft skeleton, and its gradient. The dilation is not stored but made row by row.

use plimsoll_graph::ops::Union;

use super::extreme::Source;
use super::{Rows, largest_around, padded};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Rows of a task.
const ROWS: usize = 64;

/// The operands of a step.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) union: Union,
    pub(crate) x: Ptr<f32>,
    /// The erosion of x, and the grid of all.
    pub(crate) eroded: Source,
    /// The skeleton so far.
    pub(crate) skeleton: Option<Ptr<f32>>,
    /// Per thread a padded row.
    pub(crate) scratch: Ptr<f32>,
}

impl Step {
    /// Floats of scratch per thread.
    pub(crate) fn per_thread(width: usize) -> usize {
        padded(width)
    }

    /// The skeleton so far, and what the opening removes, below zero where that is nothing.
    ///
    /// # Safety
    /// The row in scratch must have the dilation along depth and height.
    #[inline(always)]
    unsafe fn at<S: Simd>(&self, row: Ptr<f32>, place: usize, w: usize, count: usize) -> (S::V, S::V) {
        // SAFETY: passed on to the caller.
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

    /// What is added to the skeleton if it is above zero.
    #[inline(always)]
    unsafe fn growth<S: Simd>(&self, skeleton: S::V, removed: S::V) -> S::V {
        // SAFETY: passed on to the caller.
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
    /// As for the task.
    #[inline(always)]
    unsafe fn prepare<S: Simd>(&self, at: (usize, usize, usize), row: Ptr<f32>) -> usize {
        // SAFETY: passed on to the caller.
        unsafe { self.eroded.over_rows::<S>(at, (1, 1), row) };
        self.eroded.grid.row(at.0, at.1, at.2)
    }
}

/// The step.
pub(crate) struct SkeletonSteps {
    pub(crate) step: Step,
    /// May be in the place of x or of the skeleton so far.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for SkeletonSteps {
    fn tasks(&self) -> usize {
        self.step.eroded.grid.row_tasks(ROWS)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let grid = self.step.eroded.grid;
        let width = grid.extent[2];
        let Rows { channel, depth, rows } = grid.rows(task, ROWS);
        // SAFETY: each thread has a row of its own; tasks write disjoint rows, each element after it is read.
        unsafe {
            let row = self.step.scratch.add(thread * padded(width));
            for height in rows {
                let place = self.step.prepare::<S>((channel, depth, height), row);
                for w in (0..width).step_by(LANES) {
                    let count = LANES.min(width - w);
                    let (skeleton, removed) = self.step.at::<S>(row, place, w, count);
                    let growth = self.step.growth::<S>(skeleton, S::max(removed, S::zero()));
                    let grown = S::add(skeleton, S::max(growth, S::zero()));
                    S::store_first(self.result.0.add(place + w), grown, count);
                }
            }
        }
    }
}

/// The gradients of x and of the skeleton so far.
pub(crate) struct SkeletonSlopes {
    pub(crate) step: Step,
    pub(crate) upstream: Ptr<f32>,
    /// May be in the place of the upstream gradient, x or the skeleton.
    pub(crate) by_x: Ptr<f32>,
    pub(crate) by_skeleton: Option<Ptr<f32>>,
}

impl Kernel for SkeletonSlopes {
    fn tasks(&self) -> usize {
        self.step.eroded.grid.row_tasks(ROWS)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let grid = self.step.eroded.grid;
        let width = grid.extent[2];
        let Rows { channel, depth, rows } = grid.rows(task, ROWS);
        // SAFETY: as for the step; of each sixteen elements all operands are read before a result is written.
        unsafe {
            let row = self.step.scratch.add(thread * padded(width));
            let (zero, one) = (S::zero(), S::splat(1.0));
            for height in rows {
                let place = self.step.prepare::<S>((channel, depth, height), row);
                for w in (0..width).step_by(LANES) {
                    let count = LANES.min(width - w);
                    let (skeleton, difference) = self.step.at::<S>(row, place, w, count);
                    let g = S::load_first(self.upstream.0.add(place + w), count);
                    let removed = S::max(difference, zero);
                    let growth = self.step.growth::<S>(skeleton, removed);
                    let (by_removed, by_skeleton) = match self.step.union {
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
