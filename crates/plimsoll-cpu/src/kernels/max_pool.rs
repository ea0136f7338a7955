//! The largest voxel of each window of features, and the gradient that goes to it.

use super::geometry::places;
use plimsoll_parallel::each;
use std::ops::Range;

use plimsoll_graph::ops::MaxPool as Op;

use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Windows over one block of channels.
#[derive(Clone, Copy)]
pub(crate) struct PoolWindows {
    pub(crate) op: Op,
    /// Extent of what is pooled.
    pub(crate) input: [usize; 3],
    /// The number of windows, as [`Op::output`] says.
    pub(crate) output: [usize; 3],
}

impl PoolWindows {
    #[inline]
    pub(crate) fn voxels(&self) -> usize {
        self.input.iter().product()
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.output.iter().product()
    }

    /// The voxels of a window, the first first.
    #[inline]
    fn window(&self, at: [usize; 3]) -> impl Iterator<Item = usize> {
        let along = |axis: usize| self.op.places(axis, at[axis], self.input[axis]);
        let (z, y, x) = (along(0), along(1), along(2));
        let [_, height, width] = self.input;
        places([z.len(), y.len(), x.len()])
            .map(move |[a, b, c]| ((z.start + a) * height + y.start + b) * width + x.start + c)
    }

    /// Lane by lane, the largest voxel of a window; what is no number is larger than any.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. `block` is aligned and valid for reads of [`PoolWindows::voxels`] · 16 elements,
    /// which are initialised, and `at` is below the output's extents.
    #[inline(always)]
    unsafe fn largest<S: Simd, T: Element>(&self, block: *const T, at: [usize; 3]) -> S::V {
        // SAFETY: places are below the input's extents, so each voxel is one of the block.
        unsafe {
            let infinity = S::splat(f32::INFINITY);
            let mut largest = S::splat(f32::NEG_INFINITY);
            for voxel in self.window(at) {
                let value = T::load::<S>(block.add(voxel * LANES));
                let larger = S::where_less(largest, value, value, largest);
                // Comparisons with what is no number are false; a sum with it is none either.
                let unbounded = S::where_less(largest, infinity, value, S::add(value, largest));
                largest = S::where_less(value, infinity, larger, unbounded);
            }
            largest
        }
    }

    /// Lane by lane, the position of the largest voxel of a window among the voxels of the block, the first of several.
    ///
    /// # Safety
    /// The contract is the one of [`PoolWindows::largest`].
    #[inline(always)]
    unsafe fn place_of_largest<S: Simd, T: Element>(&self, block: *const T, at: [usize; 3]) -> [u32; LANES] {
        let [z, y, x] = each([0, 1, 2], |axis| self.op.places(axis, at[axis], self.input[axis]).start);
        let first = ((z * self.input[1] + y) * self.input[2] + x) as u32;
        let (mut largest, mut place) = ([f32::NEG_INFINITY; LANES], [first; LANES]);
        for voxel in self.window(at) {
            // SAFETY: places are below the input's extents, so the voxel is one of the block.
            let values = unsafe { S::to_array(T::load::<S>(block.add(voxel * LANES))) };
            for lane in 0..LANES {
                let (value, known) = (values[lane], largest[lane]);
                // Without branches, so that lanes are compared at once.
                let is_larger = (value > known) | (value.is_nan() & !known.is_nan());
                largest[lane] = if is_larger { value } else { known };
                place[lane] = if is_larger { voxel as u32 } else { place[lane] };
            }
        }
        place
    }
}

/// z = the largest voxel of each window.
pub(crate) struct MaxPool<T> {
    pub(crate) windows: PoolWindows,
    /// Blocks of channels of all samples.
    pub(crate) blocks: usize,
    /// `[block][voxel][16]`
    pub(crate) data: Ptr<T>,
    /// `[block][window][16]`
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for MaxPool<T> {
    fn tasks(&self) -> usize {
        self.blocks * self.windows.output[0] * self.windows.output[1]
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let [depth, height, width] = self.windows.output;
        let (block, row) = (task / (depth * height), task % (depth * height));
        for w in 0..width {
            // SAFETY: `task < tasks`, so the block is one of both buffers, and the window one of the output's; each task writes
            // a row of its own.
            unsafe {
                let data = self.data.0.add(block * self.windows.voxels() * LANES);
                let largest = self.windows.largest::<S, T>(data, [row / height, row % height, w]);
                let window = block * self.windows.count() + row * width + w;
                T::store::<S>(self.result.0.add(window * LANES), largest);
            }
        }
    }
}

/// dx = Σ dz of the windows whose first largest voxel it is.
pub(crate) struct MaxPoolGrad<T> {
    pub(crate) windows: PoolWindows,
    /// Blocks of channels of all samples.
    pub(crate) blocks: usize,
    /// The gradient of z, `[block][window][16]`.
    pub(crate) upstream: Ptr<T>,
    /// `[block][voxel][16]`
    pub(crate) data: Ptr<T>,
    /// Per thread `[window][16]`: the place of the largest voxel of each window.
    pub(crate) from: Ptr<u32>,
    /// `[block][voxel][16]`
    pub(crate) result: Ptr<T>,
}

impl<T> MaxPoolGrad<T> {
    /// The windows along an axis that take a place.
    #[inline]
    fn windows_of(&self, axis: usize, place: usize) -> Range<usize> {
        let window = self.windows.op.window;
        let (kernel, stride) = (window.kernel[axis], window.stride[axis]);
        let padded = place + window.padding[axis];
        let first = (padded + 1).saturating_sub(kernel).div_ceil(stride);
        first..(padded / stride + 1).min(self.windows.output[axis])
    }
}

impl<T: Element> Kernel for MaxPoolGrad<T> {
    fn tasks(&self) -> usize {
        self.blocks
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let (voxels, count) = (self.windows.voxels(), self.windows.count());
        let [_, height, width] = self.windows.output;
        // SAFETY: `task` is a block of all buffers, and each writes its own; windows and voxels are below their numbers, and
        // the thread has a part of the scratch.
        unsafe {
            let from = self.from.0.add(thread * count * LANES);
            let data = self.data.0.add(task * voxels * LANES);
            for (window, at) in places(self.windows.output).enumerate() {
                let places = self.windows.place_of_largest::<S, T>(data, at);
                std::ptr::copy_nonoverlapping(places.as_ptr(), from.add(window * LANES), LANES);
            }
            let upstream = self.upstream.0.add(task * count * LANES);
            for (voxel, at) in places(self.windows.input).enumerate() {
                let mut sum = [0.0f32; LANES];
                for d in self.windows_of(0, at[0]) {
                    for h in self.windows_of(1, at[1]) {
                        for w in self.windows_of(2, at[2]) {
                            let window = ((d * height + h) * width + w) * LANES;
                            for (lane, sum) in sum.iter_mut().enumerate() {
                                let is_it = *from.add(window + lane) == voxel as u32;
                                let gradient = (*upstream.add(window + lane)).to_f32();
                                *sum += if is_it { gradient } else { 0.0 };
                            }
                        }
                    }
                }
                let to = self.result.0.add((task * voxels + voxel) * LANES);
                T::store::<S>(to, S::load(sum.as_ptr()));
            }
        }
    }
}
