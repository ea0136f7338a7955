//! Instance, group and batch normalisation: statistics, the normalised and activated map, and the gradient of both.
//!
//! Sums over a channel's voxels are taken chunk by chunk in f32; the sums of all channels and samples that share their
//! statistics are combined in f64, in order.

use plimsoll_graph::ops::Over;

use super::lane_sums::{in_turn, total_of};
use super::patch::{BlockConstants, BlockNorm, norm_act};
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

    fn sets_of(&self, task: usize) -> std::ops::Range<usize> {
        let count = self.sets_per_task();
        (task * count).min(self.sets())..((task + 1) * count).min(self.sets())
    }

    /// (Block of a sample, lane) of the planes of a set, in order.
    fn planes_of(&self, set: usize) -> impl Iterator<Item = (usize, usize)> {
        let lanes = self.extent.blocks * LANES;
        let planes = self.over.set(set, self.extent.batch, self.channels).planes(lanes);
        planes.map(|plane| (plane / LANES, plane % LANES))
    }

    /// (Block of a sample, lane) of what fills up the last block, for the task that is behind all sets.
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

/// Statistics of all that share them from those of chunks (Chan, Golub and LeVeque 1979).
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
    // SAFETY: the places are those of this function's contract.
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

/// The operands that the two passes of the gradient share.
pub(crate) struct NormGrad<T> {
    pub(crate) extent: Extent,
    /// The gradient of z, `[block of a sample][voxel][16]`.
    pub(crate) upstream: Ptr<T>,
    /// y, of the same shape.
    pub(crate) data: Ptr<T>,
    /// One per block of channels.
    pub(crate) norms: Vec<BlockNorm>,
}

impl<T: Element> NormGrad<T> {
    /// # Safety
    /// The machine has the instruction set of `S`; `block` is one of the extent's; statistics, scale and shift are as
    /// [`BlockNorm`] says, and initialised.
    #[inline(always)]
    unsafe fn constants<S: Simd>(&self, block: usize) -> BlockConstants<S::V> {
        let (sample, channel_block) = (block / self.extent.blocks, block % self.extent.blocks);
        // SAFETY: the sample of a block of the extent is one of those that the statistics have a pair for.
        unsafe { self.norms[channel_block].constants::<S>(sample) }
    }

    /// g = dz · lrelu'(u) and x̂ of the voxel at `place`.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; sixteen elements from `place` on are a voxel of both buffers, and
    /// initialised.
    #[inline(always)]
    unsafe fn voxel<S: Simd>(&self, constants: &BlockConstants<S::V>, place: usize) -> (S::V, S::V) {
        let affine = &constants.affine;
        // SAFETY: both buffers have a voxel at `place`, as this function's contract says.
        unsafe {
            let y = T::load::<S>(self.data.0.add(place));
            let dz = T::load::<S>(self.upstream.0.add(place));
            let u = S::fma(affine.a, y, affine.b);
            let g = S::where_positive(u, dz, S::mul(dz, affine.slope));
            (g, constants.normalised::<S>(y))
        }
    }
}

/// Σ g and Σ g x̂ of each chunk.
pub(crate) struct NormGradSums<T> {
    pub(crate) grad: NormGrad<T>,
    /// The result, `[block of a sample][chunk][2][16]`.
    pub(crate) partial: Ptr<f32>,
}

impl<T: Element> Kernel for NormGradSums<T> {
    fn tasks(&self) -> usize {
        self.grad.extent.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        // SAFETY: `task < tasks`, so the block and the chunk are the extent's, and voxels are below `voxels`; each task has
        // a pair of its own.
        unsafe {
            // Of g and of g x̂.
            let mut sums = [[S::zero(); 2]; 4];
            let extent = &self.grad.extent;
            let (block, chunk) = extent.at(task);
            let constants = self.grad.constants::<S>(block);
            in_turn(
                extent.voxels_of(chunk),
                &mut sums,
                #[inline(always)]
                |voxel, [sum, product]| {
                    let (g, x) = self.grad.voxel::<S>(&constants, (block * extent.voxels + voxel) * LANES);
                    *sum = S::add(*sum, g);
                    *product = S::fma(g, x, *product);
                },
            );
            let to = self.partial.0.add(task * 2 * LANES);
            S::store(to, total_of::<S>(sums.map(|[sum, _]| sum)));
            S::store(to.add(LANES), total_of::<S>(sums.map(|[_, product]| product)));
        }
    }
}

/// Puts the sums together: means for the second pass, and the gradients of scale and shift.
pub(crate) struct NormGradMeans {
    pub(crate) sharing: Sharing,
    /// One per block of channels.
    pub(crate) norms: Vec<BlockNorm>,
    /// `[block of a sample][chunk][2][16]`, of [`NormGradSums`].
    pub(crate) partial: Ptr<f32>,
    /// A result, `[block of a sample][2][16]`: r · mean of γ g and r · mean of γ g x̂ over all that share their statistics; zero in
    /// lanes that fill up a block.
    pub(crate) means: Ptr<f32>,
    /// Results, `[block][16]` each: the gradients of scale and shift.
    pub(crate) affine: Option<(Ptr<f32>, Ptr<f32>)>,
}

impl NormGradMeans {
    /// Σ g and Σ g x̂ of a plane.
    ///
    /// # Safety
    /// `partial` is as the field says, and initialised; the place is that of a lane of a block of a sample.
    #[inline(always)]
    unsafe fn sums(&self, block: usize, lane: usize) -> [f64; 2] {
        let chunks = self.sharing.extent.chunks();
        let mut sums = [0.0f64; 2];
        for chunk in 0..chunks {
            // SAFETY: there is a pair of lanes for each chunk of each block of a sample.
            unsafe {
                let pair = self.partial.0.add((block * chunks + chunk) * 2 * LANES + lane);
                sums[0] += f64::from(*pair);
                sums[1] += f64::from(*pair.add(LANES));
            }
        }
        sums
    }

    /// The reciprocal standard deviation and the scale of a plane.
    ///
    /// # Safety
    /// Statistics and scale are as [`BlockNorm`] says, and initialised; the place is that of a lane of a block of a sample.
    #[inline(always)]
    unsafe fn factors(&self, block: usize, lane: usize) -> [f64; 2] {
        let blocks = self.sharing.extent.blocks;
        let norm = &self.norms[block % blocks];
        // SAFETY: the sample has `[2][16]` statistics for each block of channels, and the scale sixteen lanes.
        unsafe {
            let statistics = norm.statistics.add(block / blocks * norm.statistics_stride);
            let rstd = *statistics.0.add(LANES + lane);
            let scale = norm.affine.map_or(1.0, |(scale, _)| *scale.0.add(lane));
            [f64::from(rstd), f64::from(scale)]
        }
    }

    /// Writes the means of a set.
    ///
    /// # Safety
    /// All buffers are as the fields say, those that are read initialised; `set` is one of the sharing's.
    #[inline(always)]
    unsafe fn mean(&self, set: usize) {
        let (mut total, mut rstd, mut planes) = ([0.0f64; 2], 0.0, 0);
        for (block, lane) in self.sharing.planes_of(set) {
            // SAFETY: a set's planes are lanes of blocks of samples; buffers are as this function's contract says.
            let ([sum, product], [r, scale]) = unsafe { (self.sums(block, lane), self.factors(block, lane)) };
            total[0] += scale * sum;
            total[1] += scale * product;
            // All planes of a set have the same.
            rstd = r;
            planes += 1;
        }
        let count = (planes * self.sharing.extent.voxels) as f64;
        let means = total.map(|total| (rstd * total / count) as f32);
        for (block, lane) in self.sharing.planes_of(set) {
            // SAFETY: there is a pair of lanes for each block of a sample.
            unsafe { write_pair(self.means, block, lane, means) };
        }
    }

    /// Writes the gradients of scale and shift of a block of channels.
    ///
    /// # Safety
    /// All buffers are as the fields say, `partial` initialised; `channel_block` is below the extent's.
    #[inline(always)]
    unsafe fn write_affine_gradients(&self, channel_block: usize, scale: Ptr<f32>, shift: Ptr<f32>) {
        let Extent { batch, blocks, .. } = self.sharing.extent;
        for lane in 0..LANES {
            let mut total = [0.0f64; 2];
            for sample in 0..batch {
                // SAFETY: the block is one of the sample's; `partial` is as this function's contract says.
                let sums = unsafe { self.sums(sample * blocks + channel_block, lane) };
                total[0] += sums[0];
                total[1] += sums[1];
            }
            // SAFETY: both have sixteen lanes for each block of channels.
            unsafe {
                *shift.0.add(channel_block * LANES + lane) = total[0] as f32;
                *scale.0.add(channel_block * LANES + lane) = total[1] as f32;
            }
        }
    }
}

impl Kernel for NormGradMeans {
    fn tasks(&self) -> usize {
        self.sharing.tasks() + if self.affine.is_some() { self.sharing.extent.blocks } else { 0 }
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let of_sets = self.sharing.tasks();
        // SAFETY: sets of a task are the sharing's, and tasks behind those of sets are blocks of channels; each plane is of one
        // set, so each task writes lanes of its own.
        unsafe {
            if task < of_sets {
                self.sharing.sets_of(task).for_each(|set| self.mean(set));
                let clear = |(block, lane)| write_pair(self.means, block, lane, [0.0; 2]);
                self.sharing.padding_of(task).for_each(clear);
            } else if let Some((scale, shift)) = self.affine {
                self.write_affine_gradients(task - of_sets, scale, shift);
            }
        }
    }
}

/// dy = r γ g − (r · mean γ g + x̂ · r · mean γ g x̂)
pub(crate) struct NormGradApply<T> {
    pub(crate) grad: NormGrad<T>,
    /// `[block of a sample][2][16]`, of [`NormGradMeans`].
    pub(crate) means: Ptr<f32>,
    /// The volume that the gradient is added to, like the data.
    pub(crate) added_to: Option<Ptr<T>>,
    /// Like the data, the upstream gradient and what it is added to, any of which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for NormGradApply<T> {
    fn tasks(&self) -> usize {
        self.grad.extent.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let extent = &self.grad.extent;
        let (block, chunk) = extent.at(task);
        // SAFETY: `task < tasks`, so the block and its voxels are the extent's; tasks write disjoint voxels. Where the
        // result aliases an operand, each voxel is read before it is written.
        unsafe {
            let constants = self.grad.constants::<S>(block);
            let means = self.means.0.add(block * 2 * LANES);
            let means = [S::load(means), S::load(means.add(LANES))];
            for voxel in extent.voxels_of(chunk) {
                let place = (block * extent.voxels + voxel) * LANES;
                let (g, x) = self.grad.voxel::<S>(&constants, place);
                let mut value = constants.gradient::<S>(g, x, means);
                if let Some(added_to) = self.added_to {
                    value = S::add(T::load::<S>(added_to.0.add(place)), value);
                }
                T::store::<S>(self.result.0.add(place), value);
            }
        }
    }
}
