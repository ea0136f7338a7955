//! Grey morphology, row by row, sixteen voxels at a time.
//!
//! A row that is read with offsets along the width is copied into scratch first, with [`PAD`] elements around it that lose
//! every comparison, so that windows need no cases at the border.

pub(crate) mod cross;
mod cross_spread;
pub(crate) mod extreme;
pub(crate) mod reduce;
pub(crate) mod skeleton;
pub(crate) mod spread;

use crate::kernel::Ptr;
use crate::simd::{LANES, Simd};

/// Padding before a row in scratch; there is at least as much behind it.
pub(super) const PAD: usize = LANES;

/// Elements of a row in scratch.
pub(crate) fn padded(width: usize) -> usize {
    width.next_multiple_of(LANES) + 2 * PAD
}

/// Channels of all samples, one after the other, each `[D][H][W]`.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) channels: usize,
    pub(crate) extent: [usize; 3],
}

/// Some rows of a plane.
pub(super) struct Rows {
    pub(super) channel: usize,
    pub(super) depth: usize,
    pub(super) rows: std::ops::Range<usize>,
}

impl Grid {
    /// The place of a row's first voxel.
    pub(super) fn row(&self, channel: usize, depth: usize, height: usize) -> usize {
        ((channel * self.extent[0] + depth) * self.extent[1] + height) * self.extent[2]
    }

    /// Tasks of at most `rows` rows of one plane each.
    pub(super) fn row_tasks(&self, rows: usize) -> usize {
        self.channels * self.extent[0] * self.extent[1].div_ceil(rows)
    }

    /// The rows of a task.
    #[inline]
    pub(super) fn rows(&self, task: usize, rows: usize) -> Rows {
        let [depth, height, _] = self.extent;
        let blocks = height.div_ceil(rows);
        let (plane, first) = (task / blocks, task % blocks * rows);
        Rows { channel: plane / depth, depth: plane % depth, rows: first..height.min(first + rows) }
    }
}

/// The places around `at` that are in bounds.
#[inline]
pub(super) fn around(at: usize, reach: usize, extent: usize) -> std::ops::Range<usize> {
    at.saturating_sub(reach)..extent.min(at + reach + 1)
}

/// Sets the padding around a row in scratch.
///
/// # Safety
/// `row` is valid for writes of [`padded`]`(width)` floats.
#[inline(always)]
pub(super) unsafe fn fill_edges(row: Ptr<f32>, width: usize, value: f32) {
    // SAFETY: `padded(width)` is at least `PAD + width`, and the row is as long, as this function's contract says.
    unsafe {
        std::slice::from_raw_parts_mut(row.0, PAD).fill(value);
        let behind = PAD + width;
        std::slice::from_raw_parts_mut(row.0.add(behind), padded(width) - behind).fill(value);
    }
}

/// Copies a row, times `sign`, into scratch, with `edge` around it.
///
/// # Safety
/// The machine has the instruction set of `S`; `from` is valid for reads of `width` floats, `to` for writes of
/// [`padded`]`(width)`.
#[inline(always)]
pub(super) unsafe fn copy_row<S: Simd>(from: *const f32, width: usize, sign: f32, edge: f32, to: Ptr<f32>) {
    // SAFETY: no more than `width − w` floats are read at `w < width`; `w` is a multiple of sixteen, so sixteen behind it
    // and the padding are inside of the row in scratch.
    unsafe {
        for w in (0..width).step_by(LANES) {
            let x = S::load_first(from.add(w), LANES.min(width - w));
            S::store(to.0.add(PAD + w), S::mul(S::splat(sign), x));
        }
        fill_edges(to, width, edge);
    }
}

/// The largest of a window of a row in scratch.
///
/// # Safety
/// The machine has the instruction set of `S`; `row` is valid for reads of [`padded`]`(width)` floats, of a width that the
/// multiple of sixteen `w` is below; `reach` is at most [`PAD`].
#[inline(always)]
pub(super) unsafe fn largest_around<S: Simd>(row: Ptr<f32>, w: usize, reach: usize) -> S::V {
    // SAFETY: there are `PAD` floats before the row and as many behind its last sixteen, and `reach` is not more.
    unsafe {
        let at = row.0.add(PAD + w);
        let mut top = S::load(at);
        for step in 1..=reach {
            top = S::max(top, S::max(S::load(at.sub(step)), S::load(at.add(step))));
        }
        top
    }
}
