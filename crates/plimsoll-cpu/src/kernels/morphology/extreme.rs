//! The extreme values of cubes: over depth and height straight from memory, over width from a row in scratch.

use super::{Grid, PAD, Rows, around, fill_edges, largest_around, padded};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Rows of a task.
const ROWS: usize = 64;

/// A volume of which the largest values are taken: of `sign` times it.
#[derive(Clone, Copy)]
pub(crate) struct SignedVolume {
    /// `[channel][D][H][W]` of the grid.
    pub(crate) x: Ptr<f32>,
    pub(crate) grid: Grid,
    /// 1, or −1 for the smallest values.
    pub(crate) sign: f32,
}

impl SignedVolume {
    /// Writes to a row in scratch the largest values over neighbouring rows.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; the volume is as the field says, and initialised; channel, depth and
    /// height are of the grid; `to` is valid for writes of [`padded`] floats of its width.
    #[inline(always)]
    pub(super) unsafe fn over_rows<S: Simd>(
        &self,
        channel: usize,
        depth: usize,
        height: usize,
        reach_depth: usize,
        reach_height: usize,
        to: Ptr<f32>,
    ) {
        let [depths, heights, width] = self.grid.extent;
        // SAFETY: `around` yields depths and heights of the grid, and no more than `width − w` floats of a row are read at
        // `w`. `w` is a multiple of sixteen below the width, so sixteen floats behind the padding are inside of `to`.
        unsafe {
            let sign = S::splat(self.sign);
            for w in (0..width).step_by(LANES) {
                let count = LANES.min(width - w);
                let mut top = S::splat(f32::NEG_INFINITY);
                for d in around(depth, reach_depth, depths) {
                    for h in around(height, reach_height, heights) {
                        let row = self.x.0.add(self.grid.row(channel, d, h) + w);
                        top = S::max(top, S::mul(sign, S::load_first(row, count)));
                    }
                }
                S::store(to.0.add(PAD + w), top);
            }
            fill_edges(to, width, f32::NEG_INFINITY);
        }
    }
}

/// The extreme value of the cube around each voxel.
pub(crate) struct BoxExtremes {
    pub(crate) source: SignedVolume,
    /// At most [`PAD`].
    pub(crate) radius: usize,
    /// Like the volume.
    pub(crate) result: Ptr<f32>,
    /// Per thread: a row of [`padded`] floats.
    pub(crate) scratch: Ptr<f32>,
}

impl BoxExtremes {
    /// Floats of scratch per thread.
    pub(crate) fn per_thread(width: usize) -> usize {
        padded(width)
    }
}

impl Kernel for BoxExtremes {
    fn tasks(&self) -> usize {
        self.source.grid.row_tasks(ROWS)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let grid = self.source.grid;
        let width = grid.extent[2];
        let Rows { channel, depth, rows } = grid.rows(task, ROWS);
        // SAFETY: scratch has a row for `thread`, and rows are the grid's, since `task < tasks`; tasks write disjoint
        // ones.
        unsafe {
            let row = self.scratch.add(thread * padded(width));
            let sign = S::splat(self.source.sign);
            for height in rows {
                self.source.over_rows::<S>(channel, depth, height, self.radius, self.radius, row);
                let to = self.result.0.add(grid.row(channel, depth, height));
                for w in (0..width).step_by(LANES) {
                    let top = S::mul(sign, largest_around::<S>(row, w, self.radius));
                    S::store_first(to.add(w), top, LANES.min(width - w));
                }
            }
        }
    }
}

/// The extreme value, times the sign, of the square of height and width around each voxel of one channel.
pub(crate) struct PlaneExtremes {
    pub(crate) source: SignedVolume,
    /// One of the volume's.
    pub(crate) channel: usize,
    /// At most [`PAD`].
    pub(crate) radius: usize,
    /// `[D][H][W]`
    pub(crate) result: Ptr<f32>,
    /// Per thread: a row of [`padded`] floats.
    pub(crate) scratch: Ptr<f32>,
}

impl Kernel for PlaneExtremes {
    fn tasks(&self) -> usize {
        Grid { channels: 1, ..self.source.grid }.row_tasks(ROWS)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let grid = self.source.grid;
        let width = grid.extent[2];
        let Rows { depth, rows, .. } = grid.rows(task, ROWS);
        // SAFETY: scratch has a row for `thread`, and rows are the grid's, since `task < tasks`; tasks write disjoint
        // ones.
        unsafe {
            let row = self.scratch.add(thread * padded(width));
            for height in rows {
                self.source.over_rows::<S>(self.channel, depth, height, 0, self.radius, row);
                let to = self.result.0.add(grid.row(0, depth, height));
                for w in (0..width).step_by(LANES) {
                    let top = largest_around::<S>(row, w, self.radius);
                    S::store_first(to.add(w), top, LANES.min(width - w));
                }
            }
        }
    }
}
