//! Leaky ReLU whose slope is in memory, and its gradients.

use super::lane_sums::part;
use super::planes::Planes;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Voxels that are summed in f32 before they are added to a sum in f64.
const SUMMED: usize = 1024;

/// Each element, or the slope times it where it is not positive.
pub(crate) struct Prelu<T> {
    /// Blocks of all samples.
    pub(crate) planes: Planes,
    /// `[block][voxel][16]`
    pub(crate) x: Ptr<T>,
    pub(crate) slope: Ptr<f32>,
    /// Like x, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for Prelu<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        // SAFETY: `task < tasks`, so the block and its voxels are the planes'; tasks write disjoint voxels, each after it is read. There is
        // one slope.
        unsafe {
            let slope = S::splat(*self.slope.0);
            for voxel in voxels {
                let place = (block * self.planes.voxels + voxel) * LANES;
                let x = T::load::<S>(self.x.0.add(place));
                T::store::<S>(self.result.0.add(place), S::leaky(x, slope));
            }
        }
    }
}

/// The gradient of the operand of a [`Prelu`], and the sums of a part of it that the gradient of the slope is made of.
pub(crate) struct PreluGrad<T> {
    /// Blocks of all samples.
    pub(crate) planes: Planes,
    /// The gradient of the result, `[block][voxel][16]`.
    pub(crate) upstream: Ptr<T>,
    /// The operand, the same.
    pub(crate) x: Ptr<T>,
    pub(crate) slope: Ptr<f32>,
    /// The gradient of the operand. It may alias the gradient of the result, or the operand.
    pub(crate) result: Ptr<T>,
    /// Σ g · min(x, 0), `[block][part]` with [`Planes::parts`] parts.
    pub(crate) partial: Ptr<f64>,
}

impl<T> PreluGrad<T> {
    /// The number of partial sums.
    pub(crate) fn partial(planes: Planes) -> usize {
        planes.blocks * planes.parts()
    }
}

impl<T: Element> Kernel for PreluGrad<T> {
    fn tasks(&self) -> usize {
        Self::partial(self.planes)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (voxels, parts) = (self.planes.voxels, self.planes.parts());
        let (block, part) = (task / parts, part(voxels, task % parts));
        let mut total = 0.0f64;
        for first in part.clone().step_by(SUMMED) {
            // SAFETY: `task < tasks`, so the block is one of the buffers', and voxels are below their number; tasks write disjoint voxels, each
            // after it is read. There is one slope.
            let sums = unsafe {
                let (slope, mut sums) = (S::splat(*self.slope.0), S::zero());
                for voxel in first..part.end.min(first + SUMMED) {
                    let place = (block * voxels + voxel) * LANES;
                    let g = T::load::<S>(self.upstream.0.add(place));
                    let x = T::load::<S>(self.x.0.add(place));
                    sums = S::fma(g, S::min(x, S::zero()), sums);
                    T::store::<S>(self.result.0.add(place), S::where_positive(x, g, S::mul(g, slope)));
                }
                S::to_array(sums)
            };
            total += sums.iter().map(|sum| f64::from(*sum)).sum::<f64>();
        }
        // SAFETY: there is a sum for each part of each block; each task writes its own.
        unsafe { *self.partial.0.add(task) = total };
    }
}

/// The gradient of a slope from its parts. One task: there are few.
pub(crate) struct SlopeSum {
    /// The number of partial sums.
    pub(crate) parts: usize,
    pub(crate) partial: Ptr<f64>,
    /// The sum, then zeroes: `[16]`.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for SlopeSum {
    fn tasks(&self) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, _task: usize, _thread: usize) {
        // SAFETY: there are `parts` sums, and the result has sixteen numbers.
        unsafe {
            let sum = (0..self.parts).map(|part| *self.partial.0.add(part)).sum::<f64>();
            self.result.0.write_bytes(0, LANES);
            *self.result.0 = sum as f32;
        }
    }
}
