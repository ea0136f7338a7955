//! The gradient of a normalised and activated map: sums over chunks, means over those that share statistics, and the map.

use plimsoll_parallel::each;

use super::{Extent, Sharing, write_pair};
use crate::kernel::{Kernel, Ptr};
use crate::kernels::lane_sums::{in_turn, total_of};
use crate::kernels::patch::{BlockConstants, BlockNorm};
use crate::simd::{Element, LANES, Simd};

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
            S::store(to, total_of::<S>(each(sums, |[sum, _]| sum)));
            S::store(to.add(LANES), total_of::<S>(each(sums, |[_, product]| product)));
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
    /// `partial` is as the field says, and initialised; the place belongs to a lane of a block of a sample.
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
    /// Statistics and scale are as [`BlockNorm`] says, and initialised; the place belongs to a lane of a block of a sample.
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
        let means = each(total, |total| (rstd * total / count) as f32);
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
