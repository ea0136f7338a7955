//! Instance normalisation: statistics, the normalised and activated map, and the gradient of both.
//!
//! Sums over a channel's voxels are taken chunk by chunk in f32 and put together in f64, in order.

use super::patch::{Affine, BlockNorm, norm_act};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// Voxels of a chunk.
const CHUNK: usize = 4096;

/// How a map is divided: blocks of channels of all samples, and chunks of voxels.
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

    fn tasks(&self) -> usize {
        self.batch * self.blocks * self.chunks()
    }

    /// (block of a sample, chunk) of a task.
    fn at(&self, task: usize) -> (usize, usize) {
        (task / self.chunks(), task % self.chunks())
    }

    fn voxels_of(&self, chunk: usize) -> std::ops::Range<usize> {
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

/// The sum of four sums that were taken side by side, for additions not to wait for each other.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn total<S: Simd>(sums: [S::V; 4]) -> S::V {
    // SAFETY: the machine has the instruction set, as this function's contract says.
    unsafe { S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])) }
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
            for voxel in voxels.clone() {
                let sum = &mut sums[voxel % 4];
                *sum = S::add(*sum, T::load::<S>(data.add(voxel * LANES)));
            }
            let mean = S::mul(total::<S>(sums), count);
            let mut squares = [S::zero(); 4];
            for voxel in voxels {
                let deviation = S::sub(T::load::<S>(data.add(voxel * LANES)), mean);
                let sum = &mut squares[voxel % 4];
                *sum = S::fma(deviation, deviation, *sum);
            }
            let to = self.partial.0.add(task * 2 * LANES);
            S::store(to, mean);
            S::store(to.add(LANES), total::<S>(squares));
        }
    }
}

/// Statistics of a channel from those of its chunks (Chan, Golub and LeVeque 1979).
pub(crate) struct CombineStats {
    pub(crate) extent: Extent,
    /// `[block of a sample][chunk][2][16]`, of [`ChunkStats`].
    pub(crate) partial: Ptr<f32>,
    /// The result, `[block of a sample][2][16]`.
    pub(crate) statistics: Ptr<f32>,
    pub(crate) epsilon: f32,
}

impl Kernel for CombineStats {
    fn tasks(&self) -> usize {
        self.extent.batch * self.extent.blocks
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let chunks = self.extent.chunks();
        for lane in 0..LANES {
            let (mut count, mut mean, mut squares) = (0.0f64, 0.0f64, 0.0f64);
            for chunk in 0..chunks {
                // SAFETY: there is a pair for each chunk of each block, and `task` is a block, `lane` below sixteen.
                let (chunk_mean, chunk_squares) = unsafe {
                    let pair = self.partial.0.add((task * chunks + chunk) * 2 * LANES + lane);
                    (f64::from(*pair), f64::from(*pair.add(LANES)))
                };
                let more = self.extent.voxels_of(chunk).len() as f64;
                let (total, shift) = (count + more, chunk_mean - mean);
                mean += shift * more / total;
                squares += chunk_squares + shift * shift * count * more / total;
                count = total;
            }
            let rstd = 1.0 / (squares / count + f64::from(self.epsilon)).sqrt();
            // SAFETY: there is a pair for each block, and `task` is a block; each task has its own.
            unsafe {
                let to = self.statistics.0.add(task * 2 * LANES + lane);
                *to = mean as f32;
                *to.add(LANES) = rstd as f32;
            }
        }
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

/// What the two passes of the gradient have in common.
pub(crate) struct NormGrad<T> {
    pub(crate) extent: Extent,
    /// The gradient of z, `[block of a sample][voxel][16]`.
    pub(crate) upstream: Ptr<T>,
    /// y, of the same shape.
    pub(crate) data: Ptr<T>,
    /// One per block of channels.
    pub(crate) norms: Vec<BlockNorm>,
}

/// The constants of one block of a sample.
struct BlockConstants<V> {
    affine: Affine<V>,
    mean: V,
    rstd: V,
}

impl<T: Element> NormGrad<T> {
    /// # Safety
    /// The machine has the instruction set of `S`; `block` is one of the extent's; statistics, scale and shift are as
    /// [`BlockNorm`] says, and initialised.
    #[inline(always)]
    unsafe fn constants<S: Simd>(&self, block: usize) -> BlockConstants<S::V> {
        let (sample, channel_block) = (block / self.extent.blocks, block % self.extent.blocks);
        let norm = &self.norms[channel_block];
        // SAFETY: the sample of a block of the extent is one of those that the statistics have a pair for.
        unsafe {
            let statistics = norm.statistics.add(sample * norm.statistics_stride).0;
            BlockConstants {
                affine: norm.affine::<S>(sample),
                mean: S::load(statistics),
                rstd: S::load(statistics.add(LANES)),
            }
        }
    }

    /// g = dz · lrelu'(u) and x̂ of the voxel at `place`.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; sixteen elements from `place` on are a voxel of both buffers, and
    /// initialised.
    #[inline(always)]
    unsafe fn voxel<S: Simd>(&self, constants: &BlockConstants<S::V>, place: usize) -> (S::V, S::V) {
        let BlockConstants { affine, mean, rstd } = constants;
        // SAFETY: both buffers have a voxel at `place`, as this function's contract says.
        unsafe {
            let y = T::load::<S>(self.data.0.add(place));
            let dz = T::load::<S>(self.upstream.0.add(place));
            let u = S::fma(affine.a, y, affine.b);
            let g = S::where_positive(u, dz, S::mul(dz, affine.slope));
            (g, S::mul(S::sub(y, *mean), *rstd))
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
            let mut sums = [S::zero(); 4];
            let mut products = [S::zero(); 4];
            let extent = &self.grad.extent;
            let (block, chunk) = extent.at(task);
            let constants = self.grad.constants::<S>(block);
            for voxel in extent.voxels_of(chunk) {
                let (g, x) = self.grad.voxel::<S>(&constants, (block * extent.voxels + voxel) * LANES);
                sums[voxel % 4] = S::add(sums[voxel % 4], g);
                products[voxel % 4] = S::fma(g, x, products[voxel % 4]);
            }
            let to = self.partial.0.add(task * 2 * LANES);
            S::store(to, total::<S>(sums));
            S::store(to.add(LANES), total::<S>(products));
        }
    }
}

/// Puts the sums together: means for the second pass, and the gradients of scale and shift.
pub(crate) struct NormGradMeans {
    pub(crate) extent: Extent,
    /// `[block of a sample][chunk][2][16]`, of [`NormGradSums`].
    pub(crate) partial: Ptr<f32>,
    /// A result, `[block of a sample][2][16]`: mean of g, mean of g x̂.
    pub(crate) means: Ptr<f32>,
    /// Results, `[block][16]` each: the gradients of scale and shift.
    pub(crate) affine: Option<(Ptr<f32>, Ptr<f32>)>,
}

impl Kernel for NormGradMeans {
    fn tasks(&self) -> usize {
        self.extent.blocks
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let chunks = self.extent.chunks();
        for lane in 0..LANES {
            let mut over_samples = [0.0f64; 2];
            for sample in 0..self.extent.batch {
                let block = sample * self.extent.blocks + task;
                for (which, total) in over_samples.iter_mut().enumerate() {
                    let place = which * LANES + lane;
                    let mut sum = 0.0;
                    for chunk in 0..chunks {
                        let pair = (block * chunks + chunk) * 2 * LANES;
                        // SAFETY: there is a pair for each chunk of each block, and `place` is within it.
                        sum += f64::from(unsafe { *self.partial.0.add(pair + place) });
                    }
                    *total += sum;
                    // SAFETY: there is a pair for each block of each sample; `task` is a block, and each task writes its
                    // own.
                    unsafe {
                        *self.means.0.add(block * 2 * LANES + place) =
                            (sum / self.extent.voxels as f64) as f32;
                    }
                }
            }
            if let Some((scale, shift)) = self.affine {
                // SAFETY: both have sixteen lanes for each block, and `task` is a block.
                unsafe {
                    *shift.0.add(task * LANES + lane) = over_samples[0] as f32;
                    *scale.0.add(task * LANES + lane) = over_samples[1] as f32;
                }
            }
        }
    }
}

/// dy = r γ (g − mean g − x̂ · mean g x̂)
pub(crate) struct NormGradApply<T> {
    pub(crate) grad: NormGrad<T>,
    /// `[block of a sample][2][16]`, of [`NormGradMeans`].
    pub(crate) means: Ptr<f32>,
    /// Like the data or the upstream gradient, either of which it may alias.
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
            let (mean, product) = (S::load(means), S::load(means.add(LANES)));
            for voxel in extent.voxels_of(chunk) {
                let place = (block * extent.voxels + voxel) * LANES;
                let (g, x) = self.grad.voxel::<S>(&constants, place);
                let centred = S::sub(S::sub(g, mean), S::mul(x, product));
                // a = r γ is the factor of y in the forward map.
                T::store::<S>(self.result.0.add(place), S::mul(constants.affine.a, centred));
            }
        }
    }
}
