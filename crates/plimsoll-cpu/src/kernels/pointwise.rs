//! Element by element, and sums of a channel.

use plimsoll_parallel::{each, each_index, pairs};

use super::lane_sums::{self, in_turn};
use crate::kernel::{Kernel, Ptr};
use crate::simd::exp::exp;
use crate::simd::normal::normal;
use crate::simd::{Element, LANES, Simd};

/// Elements of a task.
const CHUNK: usize = 1 << 15;

/// A function of two elements ([`Function::Leaky`], [`Function::Elu`] and [`Function::Gelu`] do not read the second).
#[derive(Clone, Copy)]
pub(crate) enum Function {
    /// a + b
    Add,
    /// lrelu(a)
    Leaky(f32),
    /// a · lrelu'(b)
    LeakyGrad(f32),
    /// a, or eᵃ − 1 where it is not positive
    Elu,
    /// a, or a · (b + 1) where b is not positive
    EluGrad,
    /// a Φ(a)
    Gelu,
    /// a · (Φ(b) + b φ(b))
    GeluGrad,
    /// a · b · (1 − b)
    LogisticGrad,
}

/// Sixteen a, or eᵃ − 1 where it is not positive.
#[inline(always)]
fn elu(a: &[f32; LANES]) -> [f32; LANES] {
    let exp = exp(&each(*a, |a| a.min(0.0)));
    each_index(|lane| if a[lane] > 0.0 { a[lane] } else { exp[lane] - 1.0 })
}

/// Sixteen a Φ(a).
#[inline(always)]
fn gelu(a: &[f32; LANES]) -> [f32; LANES] {
    let (distribution, _) = normal(a);
    each_index(|lane| a[lane] * distribution[lane])
}

/// Sixteen a · (Φ(b) + b φ(b)).
#[inline(always)]
fn gelu_grad(a: &[f32; LANES], b: &[f32; LANES]) -> [f32; LANES] {
    let (distribution, density) = normal(b);
    each_index(|lane| a[lane] * (distribution[lane] + b[lane] * density[lane]))
}

/// result = function(a, b), over `count` stored elements each. The result may alias any of the operands.
pub(crate) struct Pointwise<T> {
    pub(crate) function: Function,
    pub(crate) a: Ptr<T>,
    pub(crate) b: Ptr<T>,
    pub(crate) result: Ptr<T>,
    pub(crate) count: usize,
}

impl<T: Element> Kernel for Pointwise<T> {
    fn tasks(&self) -> usize {
        self.count.div_ceil(CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let end = self.count.min((task + 1) * CHUNK);
        let mut place = task * CHUNK;
        // SAFETY: places, and sixteen elements from them on where these are read at a time, are below `count`; tasks write
        // disjoint ones, each after it is read.
        unsafe {
            while place + LANES <= end {
                let a = T::load::<S>(self.a.0.add(place));
                let b = || T::load::<S>(self.b.0.add(place));
                let value = match self.function {
                    Function::Add => S::add(a, b()),
                    Function::Leaky(slope) => S::leaky(a, S::splat(slope)),
                    Function::LeakyGrad(slope) => S::where_positive(b(), a, S::mul(a, S::splat(slope))),
                    Function::Elu => S::load(elu(&S::to_array(a)).as_ptr()),
                    Function::EluGrad => {
                        let z = b();
                        S::where_positive(z, a, S::mul(a, S::add(z, S::splat(1.0))))
                    }
                    Function::Gelu => S::load(gelu(&S::to_array(a)).as_ptr()),
                    Function::GeluGrad => S::load(gelu_grad(&S::to_array(a), &S::to_array(b())).as_ptr()),
                    Function::LogisticGrad => {
                        let s = b();
                        S::mul(S::mul(a, s), S::sub(S::splat(1.0), s))
                    }
                };
                T::store::<S>(self.result.0.add(place), value);
                place += LANES;
            }
            for place in place..end {
                let a = (*self.a.0.add(place)).to_f32();
                let b = || (*self.b.0.add(place)).to_f32();
                let value = match self.function {
                    Function::Add => a + b(),
                    Function::Leaky(slope) => a * if a > 0.0 { 1.0 } else { slope },
                    Function::LeakyGrad(slope) => a * if b() > 0.0 { 1.0 } else { slope },
                    Function::Elu => elu(&[a; LANES])[0],
                    Function::EluGrad => a * if b() > 0.0 { 1.0 } else { b() + 1.0 },
                    Function::Gelu => gelu(&[a; LANES])[0],
                    Function::GeluGrad => gelu_grad(&[a; LANES], &[b(); LANES])[0],
                    Function::LogisticGrad => a * b() * (1.0 - b()),
                };
                *self.result.0.add(place) = T::from_f32(value);
            }
        }
    }
}

/// Voxels that are summed in f32 before they are added to a sum in f64.
const SUMMED_IN_F32: usize = 1024;

/// The sums of each channel of features over samples and the voxels of a part, for [`SumLanes`] to add up.
pub(crate) struct FeatureSums<T> {
    /// `[sample][block][voxel][16]`
    pub(crate) data: Ptr<T>,
    pub(crate) batch: usize,
    pub(crate) blocks: usize,
    pub(crate) voxels: usize,
    /// The result, `[block][part][16]`, with [`FeatureSums::parts`] parts.
    pub(crate) partial: Ptr<f64>,
}

impl<T> FeatureSums<T> {
    /// The number of parts of each block, over the voxels of all samples.
    pub(crate) fn parts(batch: usize, voxels: usize) -> usize {
        batch * voxels.div_ceil(lane_sums::PART)
    }
}

impl<T: Element> Kernel for FeatureSums<T> {
    fn tasks(&self) -> usize {
        self.blocks * Self::parts(self.batch, self.voxels)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let of_sample = self.voxels.div_ceil(lane_sums::PART);
        let (block, part) = (task / (self.batch * of_sample), task % (self.batch * of_sample));
        let (sample, part) = (part / of_sample, lane_sums::part(self.voxels, part % of_sample));
        // SAFETY: `task < tasks`, so the block is below the number of blocks and the sample below that of samples.
        let block = unsafe { self.data.0.add((sample * self.blocks + block) * self.voxels * LANES) };
        let mut total = [0.0f64; LANES];
        for first in part.clone().step_by(SUMMED_IN_F32) {
            // SAFETY: the block has `voxels` voxels of sixteen elements, and parts end there.
            let sum = unsafe {
                let mut sum = S::zero();
                for voxel in first..part.end.min(first + SUMMED_IN_F32) {
                    sum = S::add(sum, T::load::<S>(block.add(voxel * LANES)));
                }
                S::to_array(sum)
            };
            for (total, sum) in pairs(total.iter_mut(), sum) {
                *total += f64::from(sum);
            }
        }
        for (lane, total) in total.into_iter().enumerate() {
            // SAFETY: the result has sixteen lanes for each part of each block; each task writes its own.
            unsafe { *self.partial.0.add(task * LANES + lane) = total };
        }
    }
}

/// The sum of each channel of an image over samples and voxels; zero for the padding lanes of the last block.
pub(crate) struct ImageSums {
    /// `[sample][channel][voxel]`
    pub(crate) data: Ptr<f32>,
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) voxels: usize,
    /// `[block][16]`, of as many blocks as hold the channels.
    pub(crate) result: Ptr<f32>,
}

impl Kernel for ImageSums {
    fn tasks(&self) -> usize {
        self.channels.next_multiple_of(LANES)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let mut total = 0.0f64;
        let samples = if task < self.channels { self.batch } else { 0 };
        for sample in 0..samples {
            // SAFETY: `task` is a channel where there are samples to sum, and a channel has `voxels` voxels.
            unsafe {
                add_plane(
                    self.data.0.add((sample * self.channels + task) * self.voxels),
                    self.voxels,
                    &mut total,
                );
            }
        }
        // SAFETY: tasks are the lanes of whole blocks, which the result has; each task writes its own.
        unsafe { *self.result.0.add(task) = total as f32 };
    }
}

/// Adds the sums of the channels of a part of an image to running ones.
pub(crate) struct RunningSums {
    /// `[channel][voxels]`
    pub(crate) data: Ptr<f32>,
    pub(crate) channels: usize,
    pub(crate) voxels: usize,
    /// `[channel]`, which is added to.
    pub(crate) totals: Ptr<f64>,
}

impl Kernel for RunningSums {
    fn tasks(&self) -> usize {
        self.channels
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        // SAFETY: `task` is a channel, which has `voxels` voxels, and a total of its own.
        unsafe { add_plane(self.data.0.add(task * self.voxels), self.voxels, &mut *self.totals.0.add(task)) };
    }
}

/// Voxels that are summed before they are added to a total, so that a volume may be summed in multiples of it.
const SUMMED: usize = 8192;

/// Adds the voxels of a plane to a total.
///
/// # Safety
/// `plane` is aligned and valid for reads of `voxels` floats, which are initialised.
#[inline(always)]
unsafe fn add_plane(plane: *const f32, voxels: usize, total: &mut f64) {
    for first in (0..voxels).step_by(SUMMED) {
        let mut sums = [0.0f64; LANES];
        in_turn(
            first..voxels.min(first + SUMMED),
            &mut sums,
            #[inline(always)]
            |voxel, sum| {
                // SAFETY: `voxel < voxels`, of which the plane has as many as this function's contract says.
                *sum += f64::from(unsafe { *plane.add(voxel) });
            },
        );
        *total += sums.iter().sum::<f64>();
    }
}
