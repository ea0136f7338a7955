//! Normalisation of tokens over their channels, and its gradient.
//!
//! The channels of a token lie in as many places as it has blocks. So a few tokens are taken at a time, block by block, with a
//! vector of sums for each; all passes over them but the first find them in the cache.

use plimsoll_parallel::{each_index, pairs};

use crate::kernel::{Kernel, Ptr};
use crate::layout::blocks;
use crate::simd::{Element, LANES, Simd};

/// Tokens taken at a time.
const CHUNK: usize = 32;
/// Tokens of a task.
const TASK: usize = 4 * CHUNK;

/// Tokens of some samples.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    /// Tokens of a sample.
    pub(crate) voxels: usize,
    pub(crate) epsilon: f32,
}

impl Tokens {
    pub(crate) fn tasks(&self) -> usize {
        self.batch * self.voxels.div_ceil(TASK)
    }

    fn blocks(&self) -> usize {
        blocks(self.channels)
    }

    /// Floats of a number per lane, for each task.
    pub(crate) fn partial(&self) -> usize {
        self.tasks() * self.lanes()
    }

    /// Lanes of all blocks.
    pub(crate) fn lanes(&self) -> usize {
        self.blocks() * LANES
    }

    /// Calls `visit(sample, first token, number of tokens)` for the tokens of a task, a few at a time.
    #[inline(always)]
    fn for_each_chunk(&self, task: usize, mut visit: impl FnMut(usize, usize, usize)) {
        let tasks = self.voxels.div_ceil(TASK);
        let (sample, first) = (task / tasks, task % tasks * TASK);
        let end = self.voxels.min(first + TASK);
        for first in (first..end).step_by(CHUNK) {
            visit(sample, first, CHUNK.min(end - first));
        }
    }

    /// The place of a token's lanes in a block.
    #[inline(always)]
    fn place(&self, sample: usize, block: usize, token: usize) -> usize {
        ((sample * self.blocks() + block) * self.voxels + token) * LANES
    }

    /// 1 for lanes that are channels, 0 for those that fill up the last block.
    #[inline(always)]
    fn mask(&self, block: usize) -> [f32; LANES] {
        each_index(|lane| if block * LANES + lane < self.channels { 1.0 } else { 0.0 })
    }

    /// Mean and reciprocal standard deviation of each of a few tokens.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `data` is `[sample][block][voxel][16]` of these tokens, and initialised; the
    /// sample is one of them, and its tokens `first..first + count` too, no more than [`CHUNK`].
    #[inline(always)]
    unsafe fn statistics<S: Simd, T: Element>(
        &self,
        data: Ptr<T>,
        sample: usize,
        first: usize,
        count: usize,
    ) -> ([f32; CHUNK], [f32; CHUNK]) {
        let (mut means, mut rstds) = ([0.0; CHUNK], [0.0; CHUNK]);
        // SAFETY: blocks are below `blocks`, and tokens from `first` on below `first + count`, as this function's contract says.
        unsafe {
            let mut sums = [S::zero(); CHUNK];
            for block in 0..self.blocks() {
                let from = data.0.add(self.place(sample, block, first));
                for (i, sum) in sums.iter_mut().enumerate().take(count) {
                    *sum = S::add(*sum, T::load::<S>(from.add(i * LANES)));
                }
            }
            let over_channels = 1.0 / self.channels as f32;
            for i in 0..count {
                means[i] = total(S::to_array(sums[i])) * over_channels;
                sums[i] = S::zero();
            }
            for block in 0..self.blocks() {
                let from = data.0.add(self.place(sample, block, first));
                let mask = S::load(self.mask(block).as_ptr());
                for i in 0..count {
                    let x = T::load::<S>(from.add(i * LANES));
                    let deviation = S::mul(S::sub(x, S::splat(means[i])), mask);
                    sums[i] = S::fma(deviation, deviation, sums[i]);
                }
            }
            for i in 0..count {
                rstds[i] = 1.0 / (total(S::to_array(sums[i])) * over_channels + self.epsilon).sqrt();
            }
        }
        (means, rstds)
    }
}

/// The sum of sixteen numbers, by halves.
#[inline(always)]
fn total(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = each_index(|i| lanes[i] + lanes[i + 8]);
    let four: [f32; 4] = each_index(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// z = γ x̂ + β
pub(crate) struct TokenNorm<T> {
    pub(crate) tokens: Tokens,
    /// `[sample][block][voxel][16]`
    pub(crate) data: Ptr<T>,
    /// Scale and shift, `[block][16]` each.
    pub(crate) affine: Option<(Ptr<f32>, Ptr<f32>)>,
    /// Like the data, which it may alias.
    pub(crate) result: Ptr<T>,
}

impl<T: Element> Kernel for TokenNorm<T> {
    fn tasks(&self) -> usize {
        self.tokens.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let tokens = &self.tokens;
        tokens.for_each_chunk(
            task,
            #[inline(always)]
            |sample, first, count| {
                // SAFETY: `task < tasks`, so the sample and its tokens are these; blocks are below `blocks`, of which scale and shift
                // have sixteen lanes each. Tasks have tokens of their own, which are written when all of them are read.
                unsafe {
                    let (means, rstds) = tokens.statistics::<S, T>(self.data, sample, first, count);
                    for block in 0..tokens.blocks() {
                        let place = tokens.place(sample, block, first);
                        let mask = S::load(tokens.mask(block).as_ptr());
                        let (scale, shift) = match self.affine {
                            Some((scale, shift)) => {
                                let load = |of: Ptr<f32>| S::mul(S::load(of.0.add(block * LANES)), mask);
                                (load(scale), load(shift))
                            }
                            None => (mask, S::zero()),
                        };
                        for i in 0..count {
                            let x = T::load::<S>(self.data.0.add(place + i * LANES));
                            let standard = S::mul(S::sub(x, S::splat(means[i])), S::splat(rstds[i]));
                            T::store::<S>(
                                self.result.0.add(place + i * LANES),
                                S::fma(standard, scale, shift),
                            );
                        }
                    }
                }
            },
        );
    }
}

/// dx = r (γ g − mean γ g − x̂ · mean γ g x̂), and each task's Σ g x̂ and Σ g.
pub(crate) struct TokenNormGrad<T> {
    pub(crate) tokens: Tokens,
    /// g, `[sample][block][voxel][16]`.
    pub(crate) upstream: Ptr<T>,
    /// x, of the same shape.
    pub(crate) data: Ptr<T>,
    /// `[block][16]`; and results `[task][block][16]` for the gradients of scale and shift.
    pub(crate) affine: Option<(Ptr<f32>, [Ptr<f32>; 2])>,
    /// Like the data or the upstream gradient, either of which it may alias.
    pub(crate) result: Ptr<T>,
}

// Methods and not closures, which may be compiled without the instruction set of the kernel.
impl<T: Element> TokenNormGrad<T> {
    /// One for each lane of a block that is a channel, else zero; and that times the scale.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `block` is one of the tokens', and the scale is as the field says, and initialised.
    #[inline(always)]
    unsafe fn constants<S: Simd>(&self, block: usize) -> (S::V, S::V) {
        // SAFETY: the scale has sixteen lanes for the block, as this function's contract says.
        unsafe {
            let mask = S::load(self.tokens.mask(block).as_ptr());
            let scale = match self.affine {
                Some((scale, _)) => S::mul(S::load(scale.0.add(block * LANES)), mask),
                None => mask,
            };
            (mask, scale)
        }
    }

    /// g and x̂ of sixteen channels of a token with this mean and reciprocal standard deviation.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; sixteen elements from `place` on are of the data and of the upstream gradient, and
    /// initialised.
    #[inline(always)]
    unsafe fn voxel<S: Simd>(&self, place: usize, mask: S::V, mean: f32, rstd: f32) -> (S::V, S::V) {
        // SAFETY: both have sixteen elements from `place` on, as this function's contract says.
        unsafe {
            let x = T::load::<S>(self.data.0.add(place));
            let standard = S::mul(S::sub(x, S::splat(mean)), S::mul(mask, S::splat(rstd)));
            (T::load::<S>(self.upstream.0.add(place)), standard)
        }
    }
}

impl<T: Element> Kernel for TokenNormGrad<T> {
    fn tasks(&self) -> usize {
        self.tokens.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let tokens = &self.tokens;
        let mut is_first = true;
        tokens.for_each_chunk(
            task,
            #[inline(always)]
            |sample, first, count| {
                // SAFETY: `task < tasks`, so the sample and its tokens are these; blocks are below `blocks`, of which the scale and
                // the task's sums have sixteen lanes each. Tasks have tokens of their own, which are written when all of them are
                // read.
                unsafe {
                    let (means, rstds) = tokens.statistics::<S, T>(self.data, sample, first, count);
                    let (mut sums, mut products) = ([S::zero(); CHUNK], [S::zero(); CHUNK]);
                    for block in 0..tokens.blocks() {
                        let (mask, scale) = self.constants::<S>(block);
                        let (mut dscale, mut dshift) = (S::zero(), S::zero());
                        for i in 0..count {
                            let place = tokens.place(sample, block, first + i);
                            let (g, standard) = self.voxel::<S>(place, mask, means[i], rstds[i]);
                            let scaled = S::mul(g, scale);
                            sums[i] = S::add(sums[i], scaled);
                            products[i] = S::fma(scaled, standard, products[i]);
                            dscale = S::fma(g, standard, dscale);
                            dshift = S::fma(g, mask, dshift);
                        }
                        if let Some((_, partial)) = self.affine {
                            for (sum, to) in pairs([dscale, dshift], partial) {
                                let to = to.0.add((task * tokens.blocks() + block) * LANES);
                                S::store(to, if is_first { sum } else { S::add(S::load(to), sum) });
                            }
                        }
                    }
                    is_first = false;
                    let over_channels = 1.0 / tokens.channels as f32;
                    let mean = |sums: S::V| S::splat(total(S::to_array(sums)) * over_channels);
                    for i in 0..count {
                        (sums[i], products[i]) = (mean(sums[i]), mean(products[i]));
                    }
                    for block in 0..tokens.blocks() {
                        let (mask, scale) = self.constants::<S>(block);
                        for i in 0..count {
                            let place = tokens.place(sample, block, first + i);
                            let (g, standard) = self.voxel::<S>(place, mask, means[i], rstds[i]);
                            let centred =
                                S::sub(S::sub(S::mul(g, scale), sums[i]), S::mul(standard, products[i]));
                            let dx = S::mul(centred, S::mul(mask, S::splat(rstds[i])));
                            T::store::<S>(self.result.0.add(tokens.place(sample, block, first + i)), dx);
                        }
                    }
                }
            },
        );
    }
}
