//! The smallest of a voxel and its neighbours along each axis.

pub(crate) use super::cross_spread::CrossSpread;
use super::{Grid, PAD, Rows, copy_row, padded};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Rows of a task.
const ROWS: usize = 64;

/// The erosion.
pub(crate) struct CrossErosions {
    pub(crate) grid: Grid,
    /// `[channel][D][H][W]`
    pub(crate) x: Ptr<f32>,
    /// Like x.
    pub(crate) result: Ptr<f32>,
    /// Per thread: a row of [`padded`] floats.
    pub(crate) scratch: Ptr<f32>,
}

impl CrossErosions {
    /// Floats of scratch per thread.
    pub(crate) fn per_thread(width: usize) -> usize {
        padded(width)
    }
}

impl Kernel for CrossErosions {
    fn tasks(&self) -> usize {
        self.grid.row_tasks(ROWS)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let [depths, heights, width] = self.grid.extent;
        let Rows { channel, depth, rows } = self.grid.rows(task, ROWS);
        // SAFETY: scratch has a row for `thread`, and rows are the grid's, since `task < tasks`: those out of bounds are
        // replaced by the one in the middle. No more than `width − w` floats are touched at `w`; tasks write disjoint rows.
        unsafe {
            let scratch = self.scratch.add(thread * padded(width));
            let row = |d: usize, h: usize| self.x.0.add(self.grid.row(channel, d, h)).cast_const();
            for height in rows {
                let others = [
                    row(depth.saturating_sub(1), height),
                    row((depth + 1).min(depths - 1), height),
                    row(depth, height.saturating_sub(1)),
                    row(depth, (height + 1).min(heights - 1)),
                ];
                copy_row::<S>(row(depth, height), width, 1.0, f32::INFINITY, scratch);
                let to = self.result.0.add(self.grid.row(channel, depth, height));
                for w in (0..width).step_by(LANES) {
                    let count = LANES.min(width - w);
                    let at = scratch.0.add(PAD + w);
                    let mut least = S::min(S::load(at), S::min(S::load(at.sub(1)), S::load(at.add(1))));
                    for i in 0..4 {
                        least = S::min(least, S::load_first(others[i].add(w), count));
                    }
                    S::store_first(to.add(w), least, count);
                }
            }
        }
    }
}
