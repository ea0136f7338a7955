//! A plane of zeroes in front of features, and its removal.

use super::Rows;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// A grid, and the longer one with a plane in front along some axes.
#[derive(Clone, Copy)]
pub(crate) struct PaddedGrid {
    /// Blocks of all samples.
    pub(crate) blocks: usize,
    pub(crate) inner: [usize; 3],
    pub(crate) padded: [usize; 3],
}

impl PaddedGrid {
    fn inner(&self) -> Rows {
        Rows { blocks: self.blocks, extent: self.inner }
    }

    fn padded(&self) -> Rows {
        Rows { blocks: self.blocks, extent: self.padded }
    }

    /// Planes in front along an axis.
    #[inline]
    fn front(&self, axis: usize) -> usize {
        self.padded[axis] - self.inner[axis]
    }
}

/// A volume with planes of zeroes in front.
pub(crate) struct PadFront<T> {
    pub(crate) grid: PaddedGrid,
    /// `[block of a sample][voxel][16]` of the inner grid.
    pub(crate) source: Ptr<T>,
    /// The same of the padded grid.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for PadFront<T> {
    fn tasks(&self) -> usize {
        self.grid.padded().tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let grid = &self.grid;
        let (inner, padded) = (grid.inner(), grid.padded());
        let (front, top, left) = (grid.front(0), grid.front(1), grid.front(2));
        for (block, d, h) in padded.in_task(task) {
            let to = padded.start(block, d, h);
            let is_inside = d >= front && h >= top;
            let zeroes = if is_inside { left } else { grid.padded[2] };
            // SAFETY: rows of a task are the padded grid's, of its width, and the inner row lies one plane and row before where there is
            // a plane in front; each task writes rows of its own.
            unsafe {
                for w in 0..zeroes {
                    T::store::<S>(self.result.0.add((to + w) * LANES), S::zero());
                }
                if is_inside {
                    let from = inner.start(block, d - front, h - top);
                    for w in 0..grid.inner[2] {
                        let value = T::load::<S>(self.source.0.add((from + w) * LANES));
                        T::store::<S>(self.result.0.add((to + left + w) * LANES), value);
                    }
                }
            }
        }
    }
}

/// A volume without its planes in front.
pub(crate) struct PadFrontGrad<T> {
    pub(crate) grid: PaddedGrid,
    /// `[block of a sample][voxel][16]` of the padded grid.
    pub(crate) upstream: Ptr<T>,
    /// The same of the inner grid.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for PadFrontGrad<T> {
    fn tasks(&self) -> usize {
        self.grid.inner().tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let grid = &self.grid;
        let (inner, padded) = (grid.inner(), grid.padded());
        for (block, d, h) in inner.in_task(task) {
            let to = inner.start(block, d, h);
            let from = padded.start(block, d + grid.front(0), h + grid.front(1)) + grid.front(2);
            for w in 0..grid.inner[2] {
                // SAFETY: rows of a task are the inner grid's, each of which lies in the padded one behind the planes in front; each
                // task writes rows of its own.
                unsafe {
                    let value = T::load::<S>(self.upstream.0.add((from + w) * LANES));
                    T::store::<S>(self.result.0.add((to + w) * LANES), value);
                }
            }
        }
    }
}
