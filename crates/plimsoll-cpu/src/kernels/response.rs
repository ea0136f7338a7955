//! Global response normalisation, and its gradient: sums over the voxels of each channel of a sample, the numbers that follow from them, and
//! a pass over all voxels.

use plimsoll_graph::ops::{ChannelSums, SampleResponse};
use plimsoll_parallel::pairs;

use super::lane_sums::{in_turn, part, total_of};
use super::planes::Planes;
use crate::kernel::{Kernel, Ptr};
use crate::layout::blocks;
use crate::simd::{Element, LANES, Simd};

/// Sums of a part of a block: Σ x², Σ dz · x and Σ dz.
const SUMS: usize = 3;
/// Voxels that are summed in f32 before they are added to a sum in f64.
const SUMMED: usize = 1024;

/// The sums of each channel of each sample over the voxels of a part.
pub(crate) struct ResponseSums<T> {
    pub(crate) planes: Planes,
    /// `[block][voxel][16]`
    pub(crate) x: Ptr<T>,
    /// The gradient dz of the result, of the same shape; without it the sums that need it are 0.
    pub(crate) upstream: Option<Ptr<T>>,
    /// The result, `[block][part][3][16]`, with [`Planes::parts`] parts.
    pub(crate) partial: Ptr<f64>,
}

impl<T> ResponseSums<T> {
    /// Numbers of the partial sums.
    pub(crate) fn partial(planes: Planes) -> usize {
        planes.blocks * planes.parts() * SUMS * LANES
    }
}

impl<T: Element> Kernel for ResponseSums<T> {
    fn tasks(&self) -> usize {
        self.planes.blocks * self.planes.parts()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (voxels, parts) = (self.planes.voxels, self.planes.parts());
        let (block, part) = (task / parts, part(voxels, task % parts));
        let mut totals = [[0.0f64; LANES]; SUMS];
        for first in part.clone().step_by(SUMMED) {
            let range = first..part.end.min(first + SUMMED);
            // SAFETY: `task < tasks`, so the block is one of the buffers', and voxels are below their number.
            let sums = unsafe {
                let mut sums = [[S::zero(); SUMS]; 4];
                in_turn(
                    range,
                    &mut sums,
                    #[inline(always)]
                    |voxel, [squares, products, gradients]| {
                        let place = (block * voxels + voxel) * LANES;
                        let x = T::load::<S>(self.x.0.add(place));
                        *squares = S::fma(x, x, *squares);
                        if let Some(upstream) = self.upstream {
                            let dz = T::load::<S>(upstream.0.add(place));
                            *products = S::fma(x, dz, *products);
                            *gradients = S::add(*gradients, dz);
                        }
                    },
                );
                let [a, b, c, d] = sums;
                [
                    S::to_array(total_of::<S>([a[0], b[0], c[0], d[0]])),
                    S::to_array(total_of::<S>([a[1], b[1], c[1], d[1]])),
                    S::to_array(total_of::<S>([a[2], b[2], c[2], d[2]])),
                ]
            };
            for (totals, sums) in pairs(totals.iter_mut(), sums) {
                for (total, sum) in pairs(totals.iter_mut(), sums) {
                    *total += f64::from(sum);
                }
            }
        }
        for (which, total) in totals.iter().enumerate() {
            for (lane, total) in total.iter().enumerate() {
                // SAFETY: the result has three times sixteen lanes for each part of each block; each task writes its own.
                unsafe { *self.partial.0.add((task * SUMS + which) * LANES + lane) = *total };
            }
        }
    }
}

/// The results of the gradient that have a number for each channel.
#[derive(Clone, Copy)]
pub(crate) struct OfChannels {
    /// dγ, `[block of a sample][16]`.
    pub(crate) scale: Ptr<f32>,
    /// dβ, the same.
    pub(crate) shift: Ptr<f32>,
}

/// The numbers that voxels are multiplied by, from the sums. One task: there are few.
pub(crate) struct ResponseNumbers {
    pub(crate) planes: Planes,
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) epsilon: f32,
    /// `[block][part][3][16]`
    pub(crate) partial: Ptr<f64>,
    /// γ, `[block of a sample][16]`.
    pub(crate) scale: Ptr<f32>,
    /// The result: 1 + γ n, `[block][16]`.
    pub(crate) factors: Ptr<f32>,
    /// The result: factors of x in the gradient, `[block][16]`.
    pub(crate) slopes: Ptr<f32>,
    /// Results of the gradient.
    pub(crate) of_channels: Option<OfChannels>,
}

impl ResponseNumbers {
    /// One of the sums of a channel of a sample.
    ///
    /// # Safety
    /// The sample and the channel are below theirs; the partial sums are as the field says, and initialised.
    unsafe fn sum(&self, sample: usize, channel: usize, which: usize) -> f64 {
        let parts = self.planes.parts();
        let block = sample * blocks(self.channels) + channel / LANES;
        let of_part = |part: usize| ((block * parts + part) * SUMS + which) * LANES + channel % LANES;
        // SAFETY: the block is one of the planes', which have three times sixteen sums for each of `parts` parts.
        (0..parts).map(|part| unsafe { *self.partial.0.add(of_part(part)) }).sum()
    }

    /// The sums of a channel of a sample.
    ///
    /// # Safety
    /// The contract is the one of [`ResponseNumbers::sum`], with γ as its field says, and initialised.
    unsafe fn sums(&self, sample: usize, channel: usize) -> ChannelSums {
        // SAFETY: this function's contract includes the contract of the calls; γ has a number for each channel.
        unsafe {
            ChannelSums {
                squares: self.sum(sample, channel, 0),
                products: self.sum(sample, channel, 1),
                scale: f64::from(*self.scale.0.add(channel)),
            }
        }
    }
}

impl Kernel for ResponseNumbers {
    fn tasks(&self) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, _task: usize, _thread: usize) {
        let lanes = blocks(self.channels) * LANES;
        // SAFETY: samples and channels are below theirs; numbers have sixteen lanes for each block of each sample, and results of
        // channels for each block of one.
        unsafe {
            if let Some(OfChannels { scale, shift }) = self.of_channels {
                scale.0.write_bytes(0, lanes);
                shift.0.write_bytes(0, lanes);
            }
            self.factors.0.write_bytes(0, self.batch * lanes);
            self.slopes.0.write_bytes(0, self.batch * lanes);
            for sample in 0..self.batch {
                let all = (0..self.channels).map(|channel| self.sums(sample, channel));
                let shared = SampleResponse::new(all, self.epsilon);
                for channel in 0..self.channels {
                    let sums = self.sums(sample, channel);
                    let response = shared.of(sums);
                    *self.factors.0.add(sample * lanes + channel) = response.factor as f32;
                    *self.slopes.0.add(sample * lanes + channel) = response.slope as f32;
                    if let Some(OfChannels { scale, shift }) = self.of_channels {
                        *scale.0.add(channel) += (sums.products * response.relative) as f32;
                        *shift.0.add(channel) += self.sum(sample, channel, 2) as f32;
                    }
                }
            }
        }
    }
}

/// The addend of a map times its factors.
#[derive(Clone, Copy)]
pub(crate) enum Addend<T> {
    /// β, `[block of a sample][16]`.
    Shift(Ptr<f32>),
    /// Another map, `[block][voxel][16]`, times numbers, `[block][16]`. The result may alias the map.
    Map(Ptr<T>, Ptr<f32>),
}

/// Each voxel times the number of its channel and sample, and an addend.
pub(crate) struct ResponseApply<T> {
    pub(crate) planes: Planes,
    /// Blocks of a sample.
    pub(crate) of_sample: usize,
    /// `[block][voxel][16]`
    pub(crate) map: Ptr<T>,
    /// `[block][16]`
    pub(crate) factors: Ptr<f32>,
    pub(crate) addend: Addend<T>,
    /// Like the map, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for ResponseApply<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        // SAFETY: `task < tasks`, so the block and its voxels are the planes'; tasks write disjoint voxels, each after it is read.
        // Numbers have sixteen lanes for each block.
        unsafe {
            let factors = S::load(self.factors.0.add(block * LANES));
            let (numbers, other) = match self.addend {
                Addend::Shift(shift) => (S::load(shift.0.add(block % self.of_sample * LANES)), None),
                Addend::Map(map, numbers) => (S::load(numbers.0.add(block * LANES)), Some(map)),
            };
            for voxel in voxels {
                let place = (block * self.planes.voxels + voxel) * LANES;
                let value = T::load::<S>(self.map.0.add(place));
                let addend = match other {
                    Some(other) => S::mul(T::load::<S>(other.0.add(place)), numbers),
                    None => numbers,
                };
                T::store::<S>(self.result.0.add(place), S::fma(value, factors, addend));
            }
        }
    }
}
