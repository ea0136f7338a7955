//! Instance, group and batch normalisation: statistics, the normalised and activated map, and the gradient of both.
//!
//! Sums over a channel's voxels are taken chunk by chunk in f32; the sums of all channels and samples that share their
//! statistics are combined in f64, in order.

mod grad;

use plimsoll_graph::ops::Over;

pub(crate) use self::grad::{NormGrad, NormGradApply, NormGradMeans, NormGradSums};

use super::lane_sums::{in_turn, total_of};
use super::patch::{BlockNorm, norm_act};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Voxels of a chunk.
const CHUNK: usize = 4096;

/// The division of a map: blocks of channels of all samples, and chunks of voxels.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) batch: usize,
    pub(crate) blocks: usize,
    pub(crate) voxels: usize,
}

impl Extent {
    fn chunks(&self) -> usize {
        self.voxels.div_ceil(CHUNK)
    }

    pub(super) fn tasks(&self) -> usize {
        self.batch * self.blocks * self.chunks()
    }

    /// (block of a sample, chunk) of a task.
    pub(super) fn at(&self, task: usize) -> (usize, usize) {
        (task / self.chunks(), task % self.chunks())
    }

    #[inline]
    pub(super) fn voxels_of(&self, chunk: usize) -> std::ops::Range<usize> {
        chunk * CHUNK..self.voxels.min((chunk + 1) * CHUNK)
    }

    /// Floats of two numbers per lane, for each chunk.
    pub(crate) fn partial(&self) -> usize {
        self.tasks() * 2 * LANES
    }

    /// Floats of two numbers per lane, for each block of each sample.
    pub(crate) fn pairs(&self) -> usize {
        self.batch * self.blocks * 2 * LANES
    }
}

/// The channels and samples that share their statistics, and the division of the work on them.
#[derive(Clone, Copy)]
pub(crate) struct Sharing {
    pub(crate) over: Over,
    pub(crate) extent: Extent,
    /// Without those that fill up the last block.
    pub(crate) channels: usize,
}

impl Sharing {
    fn sets(&self) -> usize {
        self.over.sets(self.extent.batch, self.channels)
    }

    /// Sets of a task: a group may have many channels; of others, about a block's.
    fn sets_per_task(&self) -> usize {
        match self.over {
            Over::Group(_) => 1,
            Over::Instance | Over::Batch => LANES,
        }
    }

    /// Tasks that take all sets, and one for the lanes that fill up the last block.
    fn tasks(&self) -> usize {
        self.sets().div_ceil(self.sets_per_task()) + 1
    }

    #[inline]
    fn sets_of(&self, task: usize) -> std::ops::Range<usize> {
        let count = self.sets_per_task();
        (task * count).min(self.sets())..((task + 1) * count).min(self.sets())
    }

    /// (Block of a sample, lane) of the planes of a set, in order.
    #[inline]
    fn planes_of(&self, set: usize) -> impl Iterator<Item = (usize, usize)> {
        let lanes = self.extent.blocks * LANES;
        let planes = self.over.set(set, self.extent.batch, self.channels).planes(lanes);
        planes.map(|plane| (plane / LANES, plane % LANES))
    }

    /// (Block of a sample, lane) of what fills up the last block, for the task that is behind all sets.
    #[inline]
    fn padding_of(&self, task: usize) -> impl Iterator<Item = (usize, usize)> {
        let samples = if task + 1 == self.tasks() { self.extent.batch } else { 0 };
        let (blocks, filled) = (self.extent.blocks, self.channels % LANES);
        let lanes = if filled == 0 { LANES } else { filled }..LANES;
        (0..samples).flat_map(move |sample| lanes.clone().map(move |lane| ((sample + 1) * blocks - 1, lane)))
    }
}

/// Mean and sum of squared deviations of each chunk.
pub(crate) struct ChunkStats<T> {
    pub(crate) extent: Extent,
    /// `[block of a sample][voxel][16]`
    pub(crate) data: Ptr<T>,
    /// The result, `[block of a sample][chunk][2][16]`.
    pub(crate) partial: Ptr<f32>,
}

impl<T: Element> Kernel for ChunkStats<T> {
    fn tasks(&self) -> usize {
        self.extent.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, chunk) = self.extent.at(task);
        let voxels = self.extent.voxels_of(chunk);
        // SAFETY: `task < tasks`, so the block and the chunk are the extent's, and voxels are below `voxels`; each task has
        // a pair of its own.
        unsafe {
            let data = self.data.0.add(block * self.extent.voxels * LANES);
            let count = S::splat(1.0 / voxels.len() as f32);
            let mut sums = [S::zero(); 4];
            in_turn(
                voxels.clone(),
                &mut sums,
                #[inline(always)]
                |voxel, sum| {
                    *sum = S::add(*sum, T::load::<S>(data.add(voxel * LANES)));
                },
            );
            let mean = S::mul(total_of::<S>(sums), count);
            let mut squares = [S::zero(); 4];
            in_turn(
                voxels,
                &mut squares,
                #[inline(always)]
                |voxel, sum| {
                    let deviation = S::sub(T::load::<S>(data.add(voxel * LANES)), mean);
                    *sum = S::fma(deviation, deviation, *sum);
                },
            );
            let to = self.partial.0.add(task * 2 * LANES);
            S::store(to, mean);
            S::store(to.add(LANES), total_of::<S>(squares));
        }
    }
}

/// The shared statistics from the statistics of chunks (Chan, Golub and LeVeque 1979).
pub(crate) struct CombineStats {
    pub(crate) sharing: Sharing,
    /// `[block of a sample][chunk][2][16]`, of [`ChunkStats`].
    pub(crate) partial: Ptr<f32>,
    /// The result, `[block of a sample][2][16]`; zero in lanes that fill up a block.
    pub(crate) statistics: Ptr<f32>,
    /// Over a batch another result, `[block][16]`: variances divided by one less than the number of values.
    pub(crate) variances: Option<Ptr<f32>>,
    pub(crate) epsilon: f32,
}

impl CombineStats {
    /// Mean and reciprocal standard deviation of a set, and the variance divided by one less than the number of values.
    ///
    /// # Safety
    /// `partial` is as the field says, and initialised; `set` is one of the sharing's.
    #[inline(always)]
    unsafe fn set_statistics(&self, set: usize) -> ([f32; 2], f32) {
        let extent = &self.sharing.extent;
        let chunks = extent.chunks();
        let (mut count, mut mean, mut squares) = (0.0f64, 0.0f64, 0.0f64);
        for (block, lane) in self.sharing.planes_of(set) {
            for chunk in 0..chunks {
                // SAFETY: there is a pair for each chunk of each block of a sample, and a set's planes are of those.
                let (chunk_mean, chunk_squares) = unsafe {
                    let pair = self.partial.0.add((block * chunks + chunk) * 2 * LANES + lane);
                    (f64::from(*pair), f64::from(*pair.add(LANES)))
                };
                let more = extent.voxels_of(chunk).len() as f64;
                let (total, shift) = (count + more, chunk_mean - mean);
                mean += shift * more / total;
                squares += chunk_squares + shift * shift * count * more / total;
                count = total;
            }
        }
        let rstd = 1.0 / (squares / count + f64::from(self.epsilon)).sqrt();
        ([mean as f32, rstd as f32], (squares / (count - 1.0)) as f32)
    }
}

impl Kernel for CombineStats {
    fn tasks(&self) -> usize {
        self.sharing.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        // SAFETY: sets of a task are the sharing's; there is a pair of lanes for each block of a sample, which planes and padding
        // are of, and each plane is of one set, so each task writes lanes of its own. Over a batch a set is a channel, and lanes
        // behind the last one fill up its block.
        unsafe {
            for set in self.sharing.sets_of(task) {
                let (pair, variance) = self.set_statistics(set);
                let write = |(block, lane)| write_pair(self.statistics, block, lane, pair);
                self.sharing.planes_of(set).for_each(write);
                if let Some(variances) = self.variances {
                    *variances.0.add(set) = variance;
                }
            }
            for (block, lane) in self.sharing.padding_of(task) {
                write_pair(self.statistics, block, lane, [0.0; 2]);
                if let Some(variances) = self.variances {
                    *variances.0.add(block % self.sharing.extent.blocks * LANES + lane) = 0.0;
                }
            }
        }
    }
}

/// Writes two numbers of a lane of a block.
///
/// # Safety
/// `to` is valid for writes of `[2][16]` floats for each block up to this one, and the lane is below sixteen.
#[inline(always)]
unsafe fn write_pair(to: Ptr<f32>, block: usize, lane: usize, [first, second]: [f32; 2]) {
    // SAFETY: the places are stated in this function's contract.
    unsafe {
        let to = to.0.add(block * 2 * LANES + lane);
        *to = first;
        *to.add(LANES) = second;
    }
}

/// z = lrelu(a · y + b), stored.
pub(crate) struct NormActMap<T> {
    pub(crate) extent: Extent,
    /// `[block of a sample][voxel][16]`
    pub(crate) data: Ptr<T>,
    /// One per block of channels.
    pub(crate) norms: Vec<BlockNorm>,
    /// Like the data, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for NormActMap<T> {
    fn tasks(&self) -> usize {
        self.extent.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, chunk) = self.extent.at(task);
        let (sample, channel_block) = (block / self.extent.blocks, block % self.extent.blocks);
        // SAFETY: `task < tasks`, so the block, its sample and its voxels are the extent's; tasks write disjoint voxels.
        // Where the result aliases the data, each voxel is read before it is written.
        unsafe {
            let affine = self.norms[channel_block].affine::<S>(sample);
            for voxel in self.extent.voxels_of(chunk) {
                let place = (block * self.extent.voxels + voxel) * LANES;
                let z = norm_act::<S, T>(&affine, T::load::<S>(self.data.0.add(place)));
                T::store::<S>(self.result.0.add(place), z);
            }
        }
    }
}
