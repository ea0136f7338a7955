//! Maps times a factor for each channel, or one for all, and the gradients.

use plimsoll_parallel::pairs;

use super::lane_sums::part;
use super::planes::Planes;
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Voxels that are summed in f32 before they are added to a sum in f64.
const SUMMED: usize = 1024;

/// The factors of a map.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    /// Blocks of a sample.
    pub(crate) of_sample: usize,
    /// `true` if all channels have the first.
    pub(crate) shared: bool,
    /// `[block][16]`, of one block if shared.
    pub(crate) numbers: Ptr<f32>,
}

impl Factors {
    /// The factors of a block of all samples'.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; the numbers are as the field says, and initialised.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, block: usize) -> S::V {
        // SAFETY: there are numbers for each block of a sample, or one for all.
        unsafe {
            match self.shared {
                true => S::splat(*self.numbers.0),
                false => S::load(self.numbers.0.add(block % self.of_sample * LANES)),
            }
        }
    }
}

/// z = γ x
pub(crate) struct ChannelScale<T> {
    /// Blocks of all samples.
    pub(crate) planes: Planes,
    pub(crate) factors: Factors,
    /// `[block][voxel][16]`
    pub(crate) map: Ptr<T>,
    /// Like the map, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for ChannelScale<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        // SAFETY: `task < tasks`, so the block and its voxels are the planes'; tasks write disjoint voxels, each after it is read.
        unsafe {
            let factors = self.factors.load::<S>(block);
            for voxel in voxels {
                let place = (block * self.planes.voxels + voxel) * LANES;
                let value = S::mul(T::load::<S>(self.map.0.add(place)), factors);
                T::store::<S>(self.result.0.add(place), value);
            }
        }
    }
}

/// dx = γ dz, and the sums of dz · x of a part of the voxels.
pub(crate) struct ChannelScaleGrad<T> {
    /// Blocks of all samples.
    pub(crate) planes: Planes,
    pub(crate) factors: Factors,
    /// dz, `[block][voxel][16]`.
    pub(crate) upstream: Ptr<T>,
    /// x, the same.
    pub(crate) map: Ptr<T>,
    /// dx, which may alias either.
    pub(crate) result: Ptr<T>,
    /// `[block][part][16]`, with [`Planes::parts`] parts.
    pub(crate) partial: Ptr<f64>,
}

impl<T> ChannelScaleGrad<T> {
    /// The number of partial sums.
    pub(crate) fn partial(planes: Planes) -> usize {
        planes.blocks * planes.parts() * LANES
    }
}

impl<T: Element> Kernel for ChannelScaleGrad<T> {
    fn tasks(&self) -> usize {
        self.planes.blocks * self.planes.parts()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (voxels, parts) = (self.planes.voxels, self.planes.parts());
        let (block, part) = (task / parts, part(voxels, task % parts));
        let mut total = [0.0f64; LANES];
        for first in part.clone().step_by(SUMMED) {
            // SAFETY: `task < tasks`, so the block is one of the buffers', and voxels are below their number; tasks write disjoint voxels, each
            // after it is read.
            let sums = unsafe {
                let (factors, mut sums) = (self.factors.load::<S>(block), S::zero());
                for voxel in first..part.end.min(first + SUMMED) {
                    let place = (block * voxels + voxel) * LANES;
                    let upstream = T::load::<S>(self.upstream.0.add(place));
                    sums = S::fma(upstream, T::load::<S>(self.map.0.add(place)), sums);
                    T::store::<S>(self.result.0.add(place), S::mul(upstream, factors));
                }
                S::to_array(sums)
            };
            for (total, sum) in pairs(total.iter_mut(), sums) {
                *total += f64::from(sum);
            }
        }
        for (lane, total) in total.into_iter().enumerate() {
            // SAFETY: there are sixteen sums for each part of each block; each task writes its own.
            unsafe { *self.partial.0.add(task * LANES + lane) = total };
        }
    }
}

/// The gradient of the factors from its parts: samples and parts are added in order, and so are channels if there is one factor for all.
pub(crate) struct FactorSums {
    pub(crate) batch: usize,
    /// Blocks of a sample.
    pub(crate) of_sample: usize,
    /// Parts of a block.
    pub(crate) parts: usize,
    pub(crate) shared: bool,
    /// `[sample][block][part][16]`
    pub(crate) partial: Ptr<f64>,
    /// The result, `[block][16]`, of one block if shared, whose other numbers are zeroes.
    pub(crate) result: Ptr<f32>,
}

impl FactorSums {
    /// The sums of a block of a sample's, over all samples.
    ///
    /// # Safety
    /// The block is one of a sample's, and the parts are as the field says, and initialised.
    #[inline(always)]
    unsafe fn block(&self, block: usize) -> [f64; LANES] {
        let mut sums = [0.0f64; LANES];
        for sample in 0..self.batch {
            let first = (sample * self.of_sample + block) * self.parts * LANES;
            for part in 0..self.parts {
                for (lane, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: sample, block, part and lane are within the parts.
                    *sum += unsafe { *self.partial.0.add(first + part * LANES + lane) };
                }
            }
        }
        sums
    }
}

impl Kernel for FactorSums {
    fn tasks(&self) -> usize {
        if self.shared { 1 } else { self.of_sample }
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        // SAFETY: blocks are those of a sample; the result has sixteen numbers for each task.
        unsafe {
            let mut numbers = [0.0f64; LANES];
            match self.shared {
                true => {
                    for block in 0..self.of_sample {
                        numbers[0] += self.block(block).iter().sum::<f64>();
                    }
                }
                false => numbers = self.block(task),
            }
            for (lane, number) in numbers.into_iter().enumerate() {
                *self.result.0.add(task * LANES + lane) = number as f32;
            }
        }
    }
}
