//! The gradient of box extremes.
//!
//! The largest value of a cube is the maximum along depth of the maxima along height of the maxima along width; among
//! equal values, the first along each axis is the first of the cube. So gradients are propagated axis by axis: a voxel
//! takes the gradients of all windows along the axis in which it is the first of the largest. Nothing is scattered, and
//! the order of sums does not depend on threads.

use super::extreme::SignedVolume;
use super::{Grid, PAD, Rows, copy_row, fill_edges, largest_around, padded};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Rows of a task.
const ROWS: usize = 16;

/// The gradient of the box extremes of one channel.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) source: SignedVolume,
    /// One of the source's.
    pub(crate) channel: usize,
    /// 1 or 2.
    pub(crate) radius: usize,
    /// `[D][H][W]` of the channel, as [`PlaneExtremes`](super::extreme::PlaneExtremes) writes them.
    pub(crate) planes: Ptr<f32>,
    /// Like the source, `[channel][D][H][W]`.
    pub(crate) upstream: Ptr<f32>,
    pub(crate) factor: f32,
    /// The addend, of the shape of the source; the result may alias it.
    pub(crate) known: Option<Ptr<f32>>,
    /// Like the source.
    pub(crate) result: Ptr<f32>,
    /// Per thread: [`Spread::per_thread`] floats, which are the rows of [`Buffers`].
    pub(crate) scratch: Ptr<f32>,
}

/// Rows in scratch, each of [`padded`] floats.
#[derive(Clone, Copy)]
struct Buffers {
    /// −∞, the value of places out of bounds.
    none: Ptr<f32>,
    /// Zero, the gradient of places out of bounds.
    zero: Ptr<f32>,
    x: Ptr<f32>,
    /// The gradient of the largest along width, of one row.
    by_width: Ptr<f32>,
    /// The largest along width, from 2 · radius rows before the task's to as many behind.
    largest: Ptr<f32>,
    /// The gradient of the largest along height and width, from radius rows before the task's to as many behind.
    by_height: Ptr<f32>,
}

impl Spread {
    /// Floats of scratch per thread.
    pub(crate) fn per_thread(width: usize, radius: usize) -> usize {
        (4 + 2 * ROWS + 6 * radius) * padded(width)
    }

    /// The thread's rows.
    ///
    /// # Safety
    /// Scratch has a part for `thread`.
    #[inline(always)]
    unsafe fn buffers(&self, thread: usize) -> Buffers {
        let width = self.source.grid.extent[2];
        let row = padded(width);
        // SAFETY: `per_thread` is 4 + (ROWS + 4 · radius) + (ROWS + 2 · radius) rows, in the order of the fields.
        unsafe {
            let first = self.scratch.add(thread * Spread::per_thread(width, self.radius));
            Buffers {
                none: first,
                zero: first.add(row),
                x: first.add(2 * row),
                by_width: first.add(3 * row),
                largest: first.add(4 * row),
                by_height: first.add((4 + ROWS + 4 * self.radius) * row),
            }
        }
    }

    /// A task for the radius `R`.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel, whose radius is `R`, at most 2.
    #[inline(always)]
    unsafe fn work<S: Simd, const R: usize>(&self, task: usize, thread: usize) {
        let grid = self.source.grid;
        let [depths, heights, width] = grid.extent;
        let Rows { depth, rows, .. } = grid.rows(task, ROWS);
        let row = padded(width);
        // SAFETY: scratch has a part for `thread`; of `largest` and `by_height` the task takes as many rows as it has of
        // its own, at most `ROWS`, and 4 R or 2 R more. Rows of volumes are below `heights`: those out of bounds are
        // replaced by rows in scratch. Tasks write disjoint rows of the result.
        unsafe {
            let buffers = self.buffers(thread);
            std::slice::from_raw_parts_mut(buffers.none.0, row).fill(f32::NEG_INFINITY);
            std::slice::from_raw_parts_mut(buffers.zero.0, row).fill(0.0);
            for i in 0..rows.len() + 4 * R {
                let to = buffers.largest.add(i * row);
                match (rows.start + i).checked_sub(2 * R).filter(|height| *height < heights) {
                    Some(height) => {
                        let from = self.source.x.0.add(grid.row(self.channel, depth, height));
                        copy_row::<S>(from, width, self.source.sign, f32::NEG_INFINITY, buffers.x);
                        for w in (0..width).step_by(LANES) {
                            S::store(to.0.add(PAD + w), largest_around::<S>(buffers.x, w, R));
                        }
                    }
                    None => std::slice::from_raw_parts_mut(to.0, row).fill(f32::NEG_INFINITY),
                }
            }
            for i in 0..rows.len() + 2 * R {
                let to = buffers.by_height.add(i * row);
                match (rows.start + i).checked_sub(R).filter(|height| *height < heights) {
                    Some(height) => self.along_depth::<S, R>(depth, height, depths, &buffers, to),
                    None => std::slice::from_raw_parts_mut(to.0, row).fill(0.0),
                }
            }
            for (i, height) in rows.enumerate() {
                for w in (0..width).step_by(LANES) {
                    let (mut a, mut g) = ([S::zero(); 9], [S::zero(); 5]);
                    for t in 0..=4 * R {
                        a[t] = S::load(buffers.largest.0.add((i + t) * row + PAD + w));
                    }
                    for k in 0..=2 * R {
                        g[k] = S::load(buffers.by_height.0.add((i + k) * row + PAD + w));
                    }
                    S::store(buffers.by_width.0.add(PAD + w), claim::<S, R>(&a, &g));
                }
                fill_edges(buffers.by_width, width, 0.0);
                self.along_width::<S, R>(depth, height, &buffers);
            }
        }
    }

    /// Writes to a row in scratch what the voxels of a row claim along the depth.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel, whose radius is `R`; depth and height are of the grid, `buffers` are
    /// this thread's, with `none` and `zero` initialised, and `to` is valid for writes of [`padded`] floats.
    #[inline(always)]
    unsafe fn along_depth<S: Simd, const R: usize>(
        &self,
        depth: usize,
        height: usize,
        depths: usize,
        buffers: &Buffers,
        to: Ptr<f32>,
    ) {
        let grid = self.source.grid;
        let width = grid.extent[2];
        let (mut largest, mut upstream) = ([buffers.none.0; 9], [buffers.zero.0; 5]);
        // SAFETY: rows of volumes are below `depths`, and no more than `width − w` floats of them are read at `w`; those in
        // scratch are longer than that.
        unsafe {
            for t in 0..=4 * R {
                if let Some(d) = (depth + t).checked_sub(2 * R).filter(|d| *d < depths) {
                    largest[t] = self.planes.0.add(grid.row(0, d, height));
                }
            }
            for k in 0..=2 * R {
                if let Some(d) = (depth + k).checked_sub(R).filter(|d| *d < depths) {
                    upstream[k] = self.upstream.0.add(grid.row(self.channel, d, height));
                }
            }
            for w in (0..width).step_by(LANES) {
                let count = LANES.min(width - w);
                let (mut a, mut g) = ([S::zero(); 9], [S::zero(); 5]);
                for t in 0..=4 * R {
                    a[t] = S::load_first(largest[t].add(w), count);
                }
                for k in 0..=2 * R {
                    g[k] = S::load_first(upstream[k].add(w), count);
                }
                S::store(to.0.add(PAD + w), claim::<S, R>(&a, &g));
            }
        }
    }

    /// Writes a row of the result: what its voxels claim along the width of `by_width`.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel, whose radius is `R`; depth and height are of the grid and of the
    /// task, and `buffers` are this thread's, with `by_width` initialised.
    #[inline(always)]
    unsafe fn along_width<S: Simd, const R: usize>(&self, depth: usize, height: usize, buffers: &Buffers) {
        let grid = self.source.grid;
        let width = grid.extent[2];
        let place = grid.row(self.channel, depth, height);
        // SAFETY: a row in scratch has `PAD` floats on either side, and a window reaches 2 R at most; no more than `width −
        // w` floats of a row of a volume are touched at `w`.
        unsafe {
            let from = self.source.x.0.add(place);
            copy_row::<S>(from, width, self.source.sign, f32::NEG_INFINITY, buffers.x);
            for w in (0..width).step_by(LANES) {
                let count = LANES.min(width - w);
                let (mut a, mut g) = ([S::zero(); 9], [S::zero(); 5]);
                for t in 0..=4 * R {
                    a[t] = S::load(buffers.x.0.add(PAD + w + t - 2 * R));
                }
                for k in 0..=2 * R {
                    g[k] = S::load(buffers.by_width.0.add(PAD + w + k - R));
                }
                let mut dx = S::mul(S::splat(self.factor), claim::<S, R>(&a, &g));
                if let Some(known) = self.known {
                    dx = S::add(dx, S::load_first(known.0.add(place + w), count));
                }
                S::store_first(self.result.0.add(place + w), dx, count);
            }
        }
    }
}

/// The sum of the gradients `g` of the windows around the places −R..=R of which the place in the middle is the first
/// largest. `a` are the values at −2R..=2R.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn claim<S: Simd, const R: usize>(a: &[S::V; 9], g: &[S::V; 5]) -> S::V {
    // SAFETY: the machine has the instruction set, as this function's contract says; indices are checked.
    unsafe {
        let here = a[2 * R];
        // `before[n]` is the largest of the n voxels before.
        let mut before = [S::splat(f32::NEG_INFINITY); 5];
        for n in 1..=2 * R {
            before[n] = S::max(before[n - 1], a[2 * R - n]);
        }
        let mut behind = S::splat(f32::NEG_INFINITY);
        let mut sum = S::zero();
        for k in 0..=2 * R {
            if k > 0 {
                behind = S::max(behind, a[2 * R + k]);
            }
            let not_behind = S::where_less(here, behind, S::zero(), g[k]);
            sum = S::add(sum, S::where_less(before[2 * R - k], here, not_behind, S::zero()));
        }
        sum
    }
}

impl Kernel for Spread {
    fn tasks(&self) -> usize {
        Grid { channels: 1, ..self.source.grid }.row_tasks(ROWS)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        // SAFETY: this function's contract includes the contract of `work`, which has the kernel's radius.
        unsafe {
            match self.radius {
                1 => self.work::<S, 1>(task, thread),
                2 => self.work::<S, 2>(task, thread),
                radius => unreachable!("no windows of radius {radius}"),
            }
        }
    }
}
