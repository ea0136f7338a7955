//! The gradient of the erosion by a cross.
//!
//! The least of a cross is the least of the windows along each axis, of three voxels each. So the gradient of a voxel is
//! shared among the three windows, and within a window it goes to the first voxel that is the smallest. A task owns some
//! rows of some planes of the result, and adds up what comes from the voxels in and around them, always in the order of the
//! voxels.

use std::ops::Range;

use super::{Grid, PAD, copy_row, padded};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Rows of a task.
const ROWS: usize = 64;
/// Planes of a task.
const PLANES: usize = 8;

/// The gradient of the erosion.
pub(crate) struct CrossSpread {
    pub(crate) grid: Grid,
    /// `[channel][D][H][W]`
    pub(crate) x: Ptr<f32>,
    /// Like x.
    pub(crate) upstream: Ptr<f32>,
    /// The addend, of the shape of x; the result may alias it.
    pub(crate) known: Option<Ptr<f32>>,
    /// Like x.
    pub(crate) result: Ptr<f32>,
    /// Per thread: [`CrossSpread::per_thread`] floats, which are the rows of [`Buffers`].
    pub(crate) scratch: Ptr<f32>,
}

/// The rows of the result that a task owns: `rows` of each of `planes`.
struct Owned {
    channel: usize,
    planes: Range<usize>,
    rows: Range<usize>,
}

/// A thread's rows in scratch, each of [`padded`] floats.
#[derive(Clone, Copy)]
struct Buffers {
    /// The row whose gradient is shared out.
    centre: Ptr<f32>,
    /// +∞, the value of rows out of bounds.
    far: Ptr<f32>,
    /// The row's contribution to its own voxels, and to one beyond either end.
    along_width: Ptr<f32>,
}

/// Something for each row that shares a face with a row.
#[derive(Clone, Copy)]
struct Neighbours<T> {
    front: T,
    back: T,
    top: T,
    bottom: T,
}

impl<T> Neighbours<T> {
    #[inline]
    fn map<U>(self, f: impl Fn(T) -> U) -> Neighbours<U> {
        Neighbours { front: f(self.front), back: f(self.back), top: f(self.top), bottom: f(self.bottom) }
    }
}

/// Depth and height of the rows around a row. They may be beyond the last; those before the first are none.
fn neighbours(d: usize, h: usize) -> Neighbours<Option<(usize, usize)>> {
    Neighbours {
        front: d.checked_sub(1).map(|d| (d, h)),
        back: Some((d + 1, h)),
        top: h.checked_sub(1).map(|h| (d, h)),
        bottom: Some((d, h + 1)),
    }
}

/// The rows of the result that a row's gradient goes to, those that the task owns.
struct Targets {
    here: Option<*mut f32>,
    around: Neighbours<Option<*mut f32>>,
}

impl Targets {
    fn any(&self) -> bool {
        let Neighbours { front, back, top, bottom } = self.around;
        self.here.or(front).or(back).or(top).or(bottom).is_some()
    }
}

impl CrossSpread {
    /// Floats of scratch per thread.
    pub(crate) fn per_thread(width: usize) -> usize {
        3 * padded(width)
    }

    fn blocks(&self) -> [usize; 2] {
        [self.grid.extent[0].div_ceil(PLANES), self.grid.extent[1].div_ceil(ROWS)]
    }

    fn owned(&self, task: usize) -> Owned {
        let [depths, heights, _] = self.grid.extent;
        let [plane_blocks, row_blocks] = self.blocks();
        let (block, first_row) = (task / row_blocks, task % row_blocks * ROWS);
        let (channel, first_plane) = (block / plane_blocks, block % plane_blocks * PLANES);
        let planes = first_plane..depths.min(first_plane + PLANES);
        Owned { channel, planes, rows: first_row..heights.min(first_row + ROWS) }
    }

    /// The thread's rows, with `far` filled.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel and this thread.
    #[inline(always)]
    unsafe fn buffers(&self, thread: usize) -> Buffers {
        let width = self.grid.extent[2];
        let length = padded(width);
        // SAFETY: scratch has three rows for the thread.
        unsafe {
            let centre = self.scratch.add(thread * Self::per_thread(width));
            let far = centre.add(length);
            std::slice::from_raw_parts_mut(far.0, length).fill(f32::INFINITY);
            Buffers { centre, far, along_width: centre.add(2 * length) }
        }
    }

    /// Sets the task's rows to what gradients are added to.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel and the task that owns the rows.
    #[inline(always)]
    unsafe fn begin(&self, owned: &Owned) {
        for d in owned.planes.clone() {
            let place = self.grid.row(owned.channel, d, owned.rows.start);
            let count = owned.rows.len() * self.grid.extent[2];
            // SAFETY: the rows of a plane are neighbours in memory, and inside of the grid. If `known` is not the result it
            // does not overlap it.
            unsafe {
                let to = self.result.0.add(place);
                match self.known {
                    None => std::slice::from_raw_parts_mut(to, count).fill(0.0),
                    Some(known) if known.0 == self.result.0 => {}
                    Some(known) => std::ptr::copy_nonoverlapping(known.0.add(place), to, count),
                }
            }
        }
    }

    /// Returns the memory for the gradient of the row at a depth and height.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel and the task that owns the rows.
    #[inline(always)]
    unsafe fn targets(&self, owned: &Owned, d: usize, h: usize) -> Targets {
        let row = |at: Option<(usize, usize)>| match at {
            Some((d, h)) if owned.planes.contains(&d) && owned.rows.contains(&h) => {
                // SAFETY: the rows of a task are inside of the grid, of whose shape the result is.
                Some(unsafe { self.result.0.add(self.grid.row(owned.channel, d, h)) })
            }
            _ => None,
        };
        Targets { here: row(Some((d, h))), around: neighbours(d, h).map(row) }
    }

    /// The rows of x around a row, `far` for those out of bounds.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; the channel is one of the grid's.
    #[inline(always)]
    unsafe fn around(&self, channel: usize, d: usize, h: usize, far: Ptr<f32>) -> Neighbours<*const f32> {
        let [depths, heights, _] = self.grid.extent;
        neighbours(d, h).map(|at| match at {
            Some((d, h)) if d < depths && h < heights => {
                // SAFETY: depth and height are below the bounds of the grid, of whose shape x is.
                unsafe { self.x.0.add(self.grid.row(channel, d, h)).cast_const() }
            }
            _ => far.0.cast_const(),
        })
    }

    /// Adds what a row gives to its targets.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; channel, depth and height are of the grid, `targets` those of the row,
    /// and `buffers` this thread's, with `far` filled.
    #[inline(always)]
    unsafe fn spread_row<S: Simd>(
        &self,
        channel: usize,
        d: usize,
        h: usize,
        targets: &Targets,
        buffers: &Buffers,
    ) {
        let width = self.grid.extent[2];
        let place = self.grid.row(channel, d, h);
        // SAFETY: x and the upstream gradient have a row of `width` floats at `place`, and no more than `width − w` of them
        // are touched at `w`. Buffers are padded rows.
        unsafe {
            copy_row::<S>(self.x.0.add(place), width, 1.0, f32::INFINITY, buffers.centre);
            std::slice::from_raw_parts_mut(buffers.along_width.0, padded(width)).fill(0.0);
            let around = self.around(channel, d, h, buffers.far);
            for w in (0..width).step_by(LANES) {
                let count = LANES.min(width - w);
                let g = S::load_first(self.upstream.0.add(place + w), count);
                self.spread_sixteen::<S>(w, count, g, &around, &targets.around, buffers);
            }
            for w in (0..width).step_by(LANES) {
                let sum = S::load(buffers.along_width.0.add(PAD + w));
                add_to::<S>(targets.here, w, LANES.min(width - w), sum);
            }
        }
    }

    /// Shares out the gradients `g` of `count` voxels of a row, from `w` on.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. `w` is a multiple of sixteen, `count` at most sixteen and `w + count` at
    /// most the width. Rows of `around` are valid for reads and those of `targets` for reads and writes of `width` floats,
    /// and `buffers` are a thread's, with `centre` and `along_width` initialised.
    #[inline(always)]
    unsafe fn spread_sixteen<S: Simd>(
        &self,
        w: usize,
        count: usize,
        g: S::V,
        around: &Neighbours<*const f32>,
        targets: &Neighbours<Option<*mut f32>>,
        buffers: &Buffers,
    ) {
        let deep = self.grid.extent[0] > 1;
        // SAFETY: rows have `count` floats from `w` on, as this function's contract says; padded rows have one more than
        // sixteen on either side of `PAD + w`.
        unsafe {
            let at = buffers.centre.0.add(PAD + w);
            let x = S::load(at);
            let (left, right) = (S::load(at.sub(1)), S::load(at.add(1)));
            let front = S::load_first(around.front.add(w), count);
            let back = S::load_first(around.back.add(w), count);
            let top = S::load_first(around.top.add(w), count);
            let bottom = S::load_first(around.bottom.add(w), count);
            let along_depth = S::min(x, S::min(front, back));
            let along_height = S::min(x, S::min(top, bottom));
            let along_width = S::min(x, S::min(left, right));
            let least = if deep { S::min(along_height, along_depth) } else { along_height };
            let by_width = share::<S>(least, along_width, g);
            let mut by_height = S::sub(g, by_width);
            let mut to_x = S::zero();
            if deep {
                let both = by_height;
                by_height = share::<S>(along_depth, along_height, both);
                let by_depth = S::sub(both, by_height);
                let [first, middle, last] = split::<S>(along_depth, front, x, by_depth);
                add_to::<S>(targets.front, w, count, first);
                add_to::<S>(targets.back, w, count, last);
                to_x = middle;
            }
            let [first, middle, last] = split::<S>(along_height, top, x, by_height);
            add_to::<S>(targets.top, w, count, first);
            add_to::<S>(targets.bottom, w, count, last);
            to_x = S::add(to_x, middle);
            let [first, middle, last] = split::<S>(along_width, left, x, by_width);
            let to = buffers.along_width.0.add(PAD + w);
            S::store(to.sub(1), S::add(S::load(to.sub(1)), first));
            S::store(to, S::add(S::load(to), S::add(to_x, middle)));
            S::store(to.add(1), S::add(S::load(to.add(1)), last));
        }
    }
}

/// Returns the share of a window along an axis for its first, middle and last voxel: the whole for the first that is
/// the smallest.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn split<S: Simd>(least: S::V, first: S::V, middle: S::V, g: S::V) -> [S::V; 3] {
    // SAFETY: the machine has the instruction set, as this function's contract says.
    unsafe {
        let to_first = S::where_less(least, first, S::zero(), g);
        let left = S::sub(g, to_first);
        let to_middle = S::where_less(least, middle, S::zero(), left);
        [to_first, to_middle, S::sub(left, to_middle)]
    }
}

/// The part of `g` that goes to the second of two windows: all where it is smaller, half where they are equal.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn share<S: Simd>(first: S::V, second: S::V, g: S::V) -> S::V {
    // SAFETY: the machine has the instruction set, as this function's contract says.
    unsafe {
        let half = S::mul(g, S::splat(0.5));
        S::where_less(second, first, g, S::where_less(first, second, S::zero(), half))
    }
}

/// Adds to `count` floats of a row, if there is one.
///
/// # Safety
/// The machine has the instruction set of `S`; the row is valid for reads and writes of `w + count` floats, `count <= 16`.
#[inline(always)]
unsafe fn add_to<S: Simd>(row: Option<*mut f32>, w: usize, count: usize, v: S::V) {
    if let Some(row) = row {
        // SAFETY: the row has `count` floats from `w` on, as this function's contract says.
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
        let [depths, heights, _] = self.grid.extent;
        let owned = self.owned(task);
        let (planes, rows) = (&owned.planes, &owned.rows);
        // SAFETY: the functions ask for this kernel's contract, and depths and heights are below the bounds of the grid. Only
        // rows that the task owns are written, and they are read from no other operand.
        unsafe {
            let buffers = self.buffers(thread);
            self.begin(&owned);
            for d in planes.start.saturating_sub(1)..depths.min(planes.end + 1) {
                for h in rows.start.saturating_sub(1)..heights.min(rows.end + 1) {
                    let targets = self.targets(&owned, d, h);
                    if targets.any() {
                        self.spread_row::<S>(owned.channel, d, h, &targets, &buffers);
                    }
                }
            }
        }
    }
}
