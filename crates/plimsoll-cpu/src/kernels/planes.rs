//! A number for each channel of each sample, and all voxels of that channel: sums, factors, shares.

use plimsoll_parallel::pairs;

use super::lane_sums::{PART, in_turn, part, total_of};
use super::patch::{Affine, BlockNorm, norm_act};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd, exp::exp};

/// Voxels of a task that writes voxels.
const CHUNK: usize = 4096;
/// Voxels that are summed in f32 before they are added to a sum in f64.
const SUMMED: usize = 1024;

/// The division of a map: blocks of channels of all samples, and voxels.
#[derive(Clone, Copy)]
pub(crate) struct Planes {
    pub(crate) blocks: usize,
    pub(crate) voxels: usize,
}

impl Planes {
    /// Parts that the voxels of a block are summed in.
    pub(crate) fn parts(&self) -> usize {
        self.voxels.div_ceil(PART)
    }

    pub(super) fn chunks(&self) -> usize {
        self.blocks * self.voxels.div_ceil(CHUNK)
    }

    /// The block and the voxels of a chunk.
    #[inline]
    pub(super) fn chunk(&self, task: usize) -> (usize, std::ops::Range<usize>) {
        let chunks = self.voxels.div_ceil(CHUNK);
        let first = task % chunks * CHUNK;
        (task / chunks, first..self.voxels.min(first + CHUNK))
    }
}

/// A volume, as it is stored or normalised on the way in.
pub(crate) struct PlaneSource<T> {
    /// `[block][voxel][16]`
    pub(crate) data: Ptr<T>,
    /// One per block of channels of a sample; none where it is read as it is.
    pub(crate) norms: Vec<BlockNorm>,
}

impl<T: Element> PlaneSource<T> {
    /// The normalisation of a block, if it has one.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `block` is one of all samples'; statistics, scale and shift are as [`BlockNorm`]
    /// says, and initialised.
    #[inline(always)]
    unsafe fn affine<S: Simd>(&self, block: usize) -> Option<Affine<S::V>> {
        let blocks = self.norms.len().max(1);
        // SAFETY: a block of all samples' is of one of the samples that the statistics have a pair for.
        self.norms.get(block % blocks).map(|norm| unsafe { norm.affine::<S>(block / blocks) })
    }

    /// The voxel at `place`, with the constants of its block.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; sixteen elements from `place` on are a voxel of the data, and initialised.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, affine: &Option<Affine<S::V>>, place: usize) -> S::V {
        // SAFETY: the data has a voxel at `place`, as this function's contract says.
        unsafe {
            let value = T::load::<S>(self.data.0.add(place));
            match affine {
                Some(affine) => norm_act::<S, T>(affine, value),
                None => value,
            }
        }
    }
}

/// The sums of each channel of each sample over the voxels of a part, or of its products with another volume, for
/// [`SumLanes`](super::lane_sums::SumLanes) to add up.
pub(crate) struct PlaneSums<T> {
    pub(crate) planes: Planes,
    pub(crate) source: PlaneSource<T>,
    /// The volume it is multiplied by, `[block][voxel][16]`, if any.
    pub(crate) other: Option<Ptr<T>>,
    /// The result, `[block][part][16]`, with [`Planes::parts`] parts.
    pub(crate) partial: Ptr<f64>,
}

impl<T: Element> Kernel for PlaneSums<T> {
    fn tasks(&self) -> usize {
        self.planes.blocks * self.planes.parts()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let voxels = self.planes.voxels;
        let parts = self.planes.parts();
        let (block, part) = (task / parts, part(voxels, task % parts));
        // SAFETY: `task < tasks`, so the block is one of the buffers'.
        let affine = unsafe { self.source.affine::<S>(block) };
        let mut total = [0.0f64; LANES];
        for first in part.clone().step_by(SUMMED) {
            // SAFETY: the block is one of the buffers', and voxels are below their number.
            let sum = unsafe {
                let mut sums = [S::zero(); 4];
                in_turn(
                    first..part.end.min(first + SUMMED),
                    &mut sums,
                    #[inline(always)]
                    |voxel, sum| {
                        let place = (block * voxels + voxel) * LANES;
                        let value = self.source.load::<S>(&affine, place);
                        *sum = match self.other {
                            Some(other) => S::fma(value, T::load::<S>(other.0.add(place)), *sum),
                            None => S::add(*sum, value),
                        };
                    },
                );
                S::to_array(total_of::<S>(sums))
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

/// The summand of a scaled map.
#[derive(Clone, Copy)]
pub(crate) enum Summand<T> {
    None,
    /// A map, `[block][voxel][16]`, which the result may alias.
    Map(Ptr<T>),
    /// Numbers, `[block][16]`, times a factor, for all voxels.
    Plane(Ptr<f32>, f32),
}

/// Each voxel times the number of its channel and sample, plus a summand, then a leaky ReLU.
pub(crate) struct PlaneScale<T> {
    pub(crate) planes: Planes,
    pub(crate) source: PlaneSource<T>,
    /// `[block][16]`
    pub(crate) factors: Ptr<f32>,
    pub(crate) summand: Summand<T>,
    /// The slope of the leaky ReLU; 1 leaves the sum unchanged.
    pub(crate) slope: f32,
    /// Like the source's data, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> PlaneScale<T> {
    /// Writes some voxels of a block, each finished by `finish` from its scaled value and its place. Values are rounded as if
    /// each were stored.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; the block and the voxels belong to the task, and `finish` may be called
    /// for them.
    #[inline(always)]
    unsafe fn write<S: Simd>(
        &self,
        block: usize,
        voxels: std::ops::Range<usize>,
        finish: impl Fn(S::V, usize) -> S::V,
    ) {
        // SAFETY: the block and its voxels are the planes', as this function's contract says.
        unsafe {
            let affine = self.source.affine::<S>(block);
            let factors = S::load(self.factors.0.add(block * LANES));
            for voxel in voxels {
                let place = (block * self.planes.voxels + voxel) * LANES;
                let value = S::mul(self.source.load::<S>(&affine, place), factors);
                T::store::<S>(self.result.0.add(place), finish(value, place));
            }
        }
    }
}

impl<T: Element> Kernel for PlaneScale<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        // SAFETY: `task < tasks`, so the block and its voxels are the planes'; tasks write disjoint voxels, each after it is read.
        // Places belong to voxels of the block, which maps have, and numbers have sixteen lanes for each block.
        unsafe {
            let slope = S::splat(self.slope);
            match self.summand {
                Summand::None => self.write::<S>(
                    block,
                    voxels,
                    #[inline(always)]
                    |value, _| value,
                ),
                Summand::Map(map) => self.write::<S>(
                    block,
                    voxels,
                    #[inline(always)]
                    |value, place| {
                        let sum = S::add(T::round::<S>(value), T::load::<S>(map.0.add(place)));
                        S::leaky(T::round::<S>(sum), slope)
                    },
                ),
                Summand::Plane(numbers, factor) => {
                    let number = S::mul(S::load(numbers.0.add(block * LANES)), S::splat(factor));
                    let number = T::round::<S>(number);
                    self.write::<S>(
                        block,
                        voxels,
                        #[inline(always)]
                        |value, _| S::leaky(T::round::<S>(S::add(T::round::<S>(value), number)), slope),
                    );
                }
            }
        }
    }
}

/// A share of the number of its channel and sample for each voxel.
pub(crate) struct PlaneFill<T> {
    pub(crate) planes: Planes,
    /// `[block][16]`
    pub(crate) numbers: Ptr<f32>,
    pub(crate) factor: f32,
    /// `[block][voxel][16]`
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for PlaneFill<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        // SAFETY: `task < tasks`, so the block and its voxels are the planes'; tasks write disjoint voxels.
        unsafe {
            let value = S::mul(S::load(self.numbers.0.add(block * LANES)), S::splat(self.factor));
            for voxel in voxels {
                T::store::<S>(self.result.0.add((block * self.planes.voxels + voxel) * LANES), value);
            }
        }
    }
}

/// The logistic function of features. What fills up a block stays zero, where the function is ½.
pub(crate) struct Logistic<T> {
    pub(crate) planes: Planes,
    /// The channels of one sample.
    pub(crate) channels: usize,
    /// `[block][voxel][16]`
    pub(crate) data: Ptr<T>,
    /// Like the data, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for Logistic<T> {
    fn tasks(&self) -> usize {
        self.planes.chunks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, voxels) = self.planes.chunk(task);
        let first = block % self.channels.div_ceil(LANES) * LANES;
        let filled = LANES.min(self.channels - first);
        for voxel in voxels {
            // SAFETY: `task < tasks`, so the block and its voxels are the planes'; tasks write disjoint voxels, each after it is
            // read.
            unsafe {
                let place = (block * self.planes.voxels + voxel) * LANES;
                let mut x = S::to_array(T::load::<S>(self.data.0.add(place)));
                x.iter_mut().for_each(|x| *x = -*x);
                let mut result = [0.0f32; LANES];
                for (result, e) in pairs(result.iter_mut(), exp(&x)).take(filled) {
                    *result = 1.0 / (1.0 + e);
                }
                T::store::<S>(self.result.0.add(place), S::load(result.as_ptr()));
            }
        }
    }
}
