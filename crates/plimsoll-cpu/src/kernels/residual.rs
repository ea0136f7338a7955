//! The end of a residual block: z = lrelu(normalised y + shortcut) in one pass, and its gradient without z or the sum.
//!
//! The shortcut is a stored map, one that is normalised as well, or one whose activated form is not stored. All are
//! read in the same way: a stored map is lrelu(1 · x + 0) with slope 1.

use super::lane_sums::in_turn;
use super::norm::Extent;
use super::patch::{Affine, BlockConstants, BlockNorm};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Element, LANES, Simd};

/// One of the two summands.
pub(crate) struct Branch<T> {
    /// `[block of a sample][voxel][16]`
    pub(crate) data: Ptr<T>,
    /// One per block of channels; none where it is as it is stored.
    pub(crate) norms: Vec<BlockNorm>,
}

impl<T: Element> Branch<T> {
    /// # Safety
    /// The machine has the instruction set of `S`; `block` is one of the extent's; statistics, scale and shift are as
    /// [`BlockNorm`] says, and initialised.
    #[inline(always)]
    unsafe fn constants<S: Simd>(&self, extent: &Extent, block: usize) -> BlockConstants<S::V> {
        let (sample, channel_block) = (block / extent.blocks, block % extent.blocks);
        // SAFETY: the sample of a block of the extent is one of those that the statistics have a pair for.
        unsafe {
            match self.norms.get(channel_block) {
                Some(norm) => norm.constants::<S>(sample),
                None => BlockConstants::stored::<S>(),
            }
        }
    }

    /// The stored voxel at `place`.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; sixteen elements from `place` on are a voxel of the data, and initialised.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, place: usize) -> S::V {
        // SAFETY: the data has a voxel at `place`, as this function's contract says.
        unsafe { T::load::<S>(self.data.0.add(place)) }
    }
}

/// The sum of both branches at a voxel.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn sum<S: Simd>(main: &Affine<S::V>, y: S::V, shortcut: &Affine<S::V>, x: S::V) -> S::V {
    // SAFETY: the machine has the instruction set, as this function's contract says.
    unsafe {
        // Not rounded as if it were stored: rounding would put sums near zero on the other side of the kink.
        let shortcut = S::leaky(S::fma(shortcut.a, x, shortcut.b), shortcut.slope);
        S::fma(main.a, y, S::add(main.b, shortcut))
    }
}

/// z = lrelu(main + shortcut)
pub(crate) struct ResidualMap<T> {
    pub(crate) extent: Extent,
    pub(crate) main: Branch<T>,
    pub(crate) shortcut: Branch<T>,
    pub(crate) slope: f32,
    /// Like the data of the branches, either of which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for ResidualMap<T> {
    fn tasks(&self) -> usize {
        self.extent.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let (block, chunk) = self.extent.at(task);
        // SAFETY: `task < tasks`, so the block and its voxels are the extent's; tasks write disjoint voxels. Where the result
        // aliases a branch, each voxel is read before it is written.
        unsafe {
            let main = self.main.constants::<S>(&self.extent, block).affine;
            let shortcut = self.shortcut.constants::<S>(&self.extent, block).affine;
            let slope = S::splat(self.slope);
            for voxel in self.extent.voxels_of(chunk) {
                let place = (block * self.extent.voxels + voxel) * LANES;
                let (y, x) = (self.main.load::<S>(place), self.shortcut.load::<S>(place));
                let z = S::leaky(sum::<S>(&main, y, &shortcut, x), slope);
                T::store::<S>(self.result.0.add(place), z);
            }
        }
    }
}

/// The operands that the two passes of the gradient share.
pub(crate) struct ResidualGrad<T> {
    pub(crate) extent: Extent,
    /// The gradient of z, like the branches' data.
    pub(crate) upstream: Ptr<T>,
    pub(crate) main: Branch<T>,
    pub(crate) shortcut: Branch<T>,
    pub(crate) slope: f32,
}

/// g = dz · lrelu'(sum) and x̂ of both branches, of one voxel.
struct Voxel<V> {
    g: V,
    main: V,
    shortcut: V,
}

impl<T: Element> ResidualGrad<T> {
    /// # Safety
    /// The machine has the instruction set of `S`; sixteen elements from `place` on are a voxel of all buffers, and initialised.
    #[inline(always)]
    unsafe fn voxel<S: Simd>(
        &self,
        main: &BlockConstants<S::V>,
        shortcut: &BlockConstants<S::V>,
        place: usize,
    ) -> Voxel<S::V> {
        // SAFETY: all buffers have a voxel at `place`, as this function's contract says.
        unsafe {
            let (y, x) = (self.main.load::<S>(place), self.shortcut.load::<S>(place));
            let dz = T::load::<S>(self.upstream.0.add(place));
            let sum = sum::<S>(&main.affine, y, &shortcut.affine, x);
            Voxel {
                g: S::where_positive(sum, dz, S::mul(dz, S::splat(self.slope))),
                main: main.normalised::<S>(y),
                shortcut: shortcut.normalised::<S>(x),
            }
        }
    }
}

/// Σ g and Σ g x̂ of each chunk, for each branch that is normalised.
pub(crate) struct ResidualGradSums<T> {
    pub(crate) grad: ResidualGrad<T>,
    /// A result, `[block of a sample][chunk][2][16]`.
    pub(crate) main: Ptr<f32>,
    /// The same of the shortcut, where it is normalised.
    pub(crate) shortcut: Option<Ptr<f32>>,
}

impl<T: Element> Kernel for ResidualGradSums<T> {
    fn tasks(&self) -> usize {
        self.grad.extent.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let extent = &self.grad.extent;
        let (block, chunk) = extent.at(task);
        // SAFETY: `task < tasks`, so the block and the chunk are the extent's, and voxels are below `voxels`; each task has
        // pairs of its own.
        unsafe {
            let main = self.grad.main.constants::<S>(extent, block);
            let shortcut = self.grad.shortcut.constants::<S>(extent, block);
            // Additions side by side need not wait for each other.
            let mut sums = [[S::zero(); 3]; 2];
            in_turn(
                extent.voxels_of(chunk),
                &mut sums,
                #[inline(always)]
                |voxel, [sum, of_main, of_shortcut]| {
                    let place = (block * extent.voxels + voxel) * LANES;
                    let of = self.grad.voxel::<S>(&main, &shortcut, place);
                    *sum = S::add(*sum, of.g);
                    *of_main = S::fma(of.g, of.main, *of_main);
                    *of_shortcut = S::fma(of.g, of.shortcut, *of_shortcut);
                },
            );
            let [first, second] = sums;
            let sum = S::add(first[0], second[0]);
            for (to, product) in [(Some(self.main), 1), (self.shortcut, 2)] {
                let Some(to) = to else { continue };
                let to = to.0.add(task * 2 * LANES);
                S::store(to, sum);
                S::store(to.add(LANES), S::add(first[product], second[product]));
            }
        }
    }
}

/// The gradients of the branches: by its data, r γ g − (r · mean γ g + x̂ · r · mean γ g x̂), of one that is normalised; g of the shortcut
/// that is not, or whose normalisation has a gradient of its own.
pub(crate) struct ResidualGradApply<T> {
    pub(crate) grad: ResidualGrad<T>,
    /// `[block of a sample][2][16]`, of [`NormGradMeans`](super::norm::NormGradMeans).
    pub(crate) main_means: Ptr<f32>,
    /// The same of the shortcut, where it is normalised.
    pub(crate) shortcut_means: Option<Ptr<f32>>,
    /// Results, which may alias the upstream gradient or the branches' data.
    pub(crate) main: Ptr<T>,
    pub(crate) shortcut: Ptr<T>,
}

impl<T: Element> Kernel for ResidualGradApply<T> {
    fn tasks(&self) -> usize {
        self.grad.extent.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let extent = &self.grad.extent;
        let (block, chunk) = extent.at(task);
        // SAFETY: `task < tasks`, so the block and its voxels are the extent's; tasks write disjoint voxels. Where a result
        // aliases an operand, each voxel is read before it is written.
        unsafe {
            let main = self.grad.main.constants::<S>(extent, block);
            let shortcut = self.grad.shortcut.constants::<S>(extent, block);
            let means = |means: Ptr<f32>| {
                let means = means.0.add(block * 2 * LANES);
                [S::load(means), S::load(means.add(LANES))]
            };
            let main_means = means(self.main_means);
            let shortcut_means = self.shortcut_means.map(means);
            for voxel in extent.voxels_of(chunk) {
                let place = (block * extent.voxels + voxel) * LANES;
                let of = self.grad.voxel::<S>(&main, &shortcut, place);
                let dy = main.gradient::<S>(of.g, of.main, main_means);
                let dx = match shortcut_means {
                    None => of.g,
                    Some(means) => shortcut.gradient::<S>(of.g, of.shortcut, means),
                };
                T::store::<S>(self.main.0.add(place), dy);
                T::store::<S>(self.shortcut.0.add(place), dx);
            }
        }
    }
}
