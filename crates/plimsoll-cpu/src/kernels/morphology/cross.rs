//! The smallest of a voxel and its neighbours along each axis, and its gradient.

use super::{Grid, PAD, Rows, copy_row, padded};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Rows of a task.
const ROWS: usize = 64;
/// Planes of a task of the gradient.
const PLANES: usize = 8;

/// The erosion.
pub(crate) struct CrossErosions {
    pub(crate) grid: Grid,
    pub(crate) x: Ptr<f32>,
    pub(crate) result: Ptr<f32>,
    /// Per thread a padded row.
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
        // SAFETY: each thread has a row of its own; tasks write disjoint rows. A row that is not there is replaced by the one
        // in the middle.
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

/// The gradient of the erosion. A task owns some rows of some planes of the result, and adds up what comes from the voxels in
/// and around them, always in the order of the voxels.
pub(crate) struct CrossSpread {
    pub(crate) grid: Grid,
    pub(crate) x: Ptr<f32>,
    pub(crate) upstream: Ptr<f32>,
    /// What is added to; may be in the result's place.
    pub(crate) known: Option<Ptr<f32>>,
    pub(crate) result: Ptr<f32>,
    /// Per thread three padded rows.
    pub(crate) scratch: Ptr<f32>,
}

impl CrossSpread {
    /// Floats of scratch per thread.
    pub(crate) fn per_thread(width: usize) -> usize {
        3 * padded(width)
    }

    fn blocks(&self) -> [usize; 2] {
        [self.grid.extent[0].div_ceil(PLANES), self.grid.extent[1].div_ceil(ROWS)]
    }
}

/// What a window along an axis gives to its first, middle and last voxel: all to the first that is the smallest.
#[inline(always)]
unsafe fn split<S: Simd>(least: S::V, first: S::V, middle: S::V, g: S::V) -> [S::V; 3] {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let to_first = S::where_less(least, first, S::zero(), g);
        let left = S::sub(g, to_first);
        let to_middle = S::where_less(least, middle, S::zero(), left);
        [to_first, to_middle, S::sub(left, to_middle)]
    }
}

/// The part of `g` that goes to the second of two windows: all where it is smaller, half where they are equal.
#[inline(always)]
unsafe fn share<S: Simd>(first: S::V, second: S::V, g: S::V) -> S::V {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let half = S::mul(g, S::splat(0.5));
        S::where_less(second, first, g, S::where_less(first, second, S::zero(), half))
    }
}

/// Adds to a row in memory, if it is wanted.
#[inline(always)]
unsafe fn add_to<S: Simd>(row: Option<*mut f32>, w: usize, count: usize, v: S::V) {
    if let Some(row) = row {
        // SAFETY: passed on to the caller.
        unsafe {
            let at = row.add(w);
            S::store_first(at, S::add(S::load_first(at, count), v), count);
        }
    }
}

impl Kernel for CrossSpread {
    fn tasks(&self) -> usize {
        let [planes, rows] = self.blocks();
        self.grid.channels * planes * rows
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let [depths, heights, width] = self.grid.extent;
        let [plane_blocks, row_blocks] = self.blocks();
        let (block, first_row) = (task / row_blocks, task % row_blocks * ROWS);
        let (channel, first_plane) = (block / plane_blocks, block % plane_blocks * PLANES);
        let planes = first_plane..depths.min(first_plane + PLANES);
        let rows = first_row..heights.min(first_row + ROWS);
        let length = padded(width);
        // SAFETY: each thread has rows of its own; tasks write disjoint rows of the result, which no task reads from other
        // operands. Rows outside are replaced by one in scratch.
        unsafe {
            let centre = self.scratch.add(thread * Self::per_thread(width));
            let (far, sideways) = (centre.add(length), centre.add(2 * length));
            std::slice::from_raw_parts_mut(far.0, length).fill(f32::INFINITY);
            for d in planes.clone() {
                let place = self.grid.row(channel, d, rows.start);
                let (to, count) = (self.result.0.add(place), rows.len() * width);
                match self.known {
                    None => std::slice::from_raw_parts_mut(to, count).fill(0.0),
                    Some(known) if known.0 == self.result.0 => {}
                    Some(known) => std::ptr::copy_nonoverlapping(known.0.add(place), to, count),
                }
            }
            for d in first_plane.saturating_sub(1)..depths.min(planes.end + 1) {
                for h in first_row.saturating_sub(1)..heights.min(rows.end + 1) {
                    // A row of the result, if it is this task's.
                    let owned = |d: Option<usize>, h: Option<usize>| match (d, h) {
                        (Some(d), Some(h)) if planes.contains(&d) && rows.contains(&h) => {
                            Some(self.result.0.add(self.grid.row(channel, d, h)))
                        }
                        _ => None,
                    };
                    let inside = |d: Option<usize>, h: Option<usize>| match (d, h) {
                        (Some(d), Some(h)) if d < depths && h < heights => {
                            self.x.0.add(self.grid.row(channel, d, h)).cast_const()
                        }
                        _ => far.0.cast_const(),
                    };
                    let (before, above) = (d.checked_sub(1), h.checked_sub(1));
                    let (here, there, beyond, below) = (Some(d), Some(h), Some(d + 1), Some(h + 1));
                    let (to_before, to_beyond) = (owned(before, there), owned(beyond, there));
                    let (to_above, to_below) = (owned(here, above), owned(here, below));
                    let to_here = owned(here, there);
                    let any = to_before.or(to_beyond).or(to_above).or(to_below).or(to_here);
                    if any.is_none() {
                        continue;
                    }
                    let (x_before, x_beyond) = (inside(before, there), inside(beyond, there));
                    let (x_above, x_below) = (inside(here, above), inside(here, below));
                    copy_row::<S>(inside(here, there), width, 1.0, f32::INFINITY, centre);
                    std::slice::from_raw_parts_mut(sideways.0, length).fill(0.0);
                    let upstream = self.upstream.0.add(self.grid.row(channel, d, h));
                    for w in (0..width).step_by(LANES) {
                        let count = LANES.min(width - w);
                        let at = centre.0.add(PAD + w);
                        let x = S::load(at);
                        let (left, right) = (S::load(at.sub(1)), S::load(at.add(1)));
                        let front = S::load_first(x_before.add(w), count);
                        let back = S::load_first(x_beyond.add(w), count);
                        let top = S::load_first(x_above.add(w), count);
                        let bottom = S::load_first(x_below.add(w), count);
                        let along_depth = S::min(x, S::min(front, back));
                        let along_height = S::min(x, S::min(top, bottom));
                        let along_width = S::min(x, S::min(left, right));
                        let g = S::load_first(upstream.add(w), count);
                        let mut least = along_height;
                        if depths > 1 {
                            least = S::min(least, along_depth);
                        }
                        let by_width = share::<S>(least, along_width, g);
                        let mut by_height = S::sub(g, by_width);
                        let mut to_x = S::zero();
                        if depths > 1 {
                            let both = by_height;
                            by_height = share::<S>(along_depth, along_height, both);
                            let by_depth = S::sub(both, by_height);
                            let [first, middle, last] = split::<S>(along_depth, front, x, by_depth);
                            add_to::<S>(to_before, w, count, first);
                            add_to::<S>(to_beyond, w, count, last);
                            to_x = middle;
                        }
                        let [first, middle, last] = split::<S>(along_height, top, x, by_height);
                        add_to::<S>(to_above, w, count, first);
                        add_to::<S>(to_below, w, count, last);
                        to_x = S::add(to_x, middle);
                        let [first, middle, last] = split::<S>(along_width, left, x, by_width);
                        let to = sideways.0.add(PAD + w);
                        S::store(to.sub(1), S::add(S::load(to.sub(1)), first));
                        S::store(to, S::add(S::load(to), S::add(to_x, middle)));
                        S::store(to.add(1), S::add(S::load(to.add(1)), last));
                    }
                    for w in (0..width).step_by(LANES) {
                        let sum = S::load(sideways.0.add(PAD + w));
                        add_to::<S>(to_here, w, LANES.min(width - w), sum);
                    }
                }
            }
        }
    }
}
