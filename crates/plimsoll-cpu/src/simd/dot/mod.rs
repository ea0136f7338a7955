//! Dot products of pairs of bf16, summed in f32: an instruction of its own on some processors, and the same bits on all others.
//!
//! c ← fma(a₁, b₁, c), then c ← fma(a₀, b₀, c): two multiply-adds, each rounded to the nearest, ties to even. Numbers below the smallest
//! normal one count as zero of their sign, operands as well as the result of either step, where tiny is judged after rounding. So
//! `VDPBF16PS` computes, and so do the other instances of [`Dot`], bit for bit; of NaN alone the payload may differ.
//!
//! The instructions of Arm are the exception: c ← c + (a₀ b₀ + a₁ b₁), where each sum is rounded to odd and tiny numbers count as zero
//! (Arm Architecture Reference Manual, `BFDotAdd`, without FEAT_EBF16). `BFMMLA` does this twice. No other processor has them, so their
//! bits are their own.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod exact;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_bf16;
mod portable;

use plimsoll_parallel::Level;

use super::{LANES, Products, Simd};

/// Values of a pair.
pub(crate) const PAIR: usize = 2;
/// Pairs in a block of sixteen channels.
pub(crate) const PAIRS: usize = LANES / PAIR;

/// The functions of [`Dot`] on register tiles whose sums are vectors, with a dot product for each.
macro_rules! sums_are_vectors {
    () => {
        type Sum = <Self::S as $crate::simd::Simd>::V;

        #[inline(always)]
        unsafe fn no_sum() -> Self::Sum {
            // SAFETY: `Dot::no_sum` asks for what `Simd::zero` does.
            unsafe { <Self::S as $crate::simd::Simd>::zero() }
        }
        #[inline(always)]
        unsafe fn add_products<const B: usize, const R: usize, const W: usize>(
            sums: &mut [[[Self::Sum; W]; R]; B],
            of: &$crate::simd::Products<u16>,
        ) {
            // SAFETY: `Dot::add_products` asks for what `add_pairs` does.
            unsafe { $crate::simd::dot::add_pairs::<Self, B, R, W>(sums, of) }
        }
        #[inline(always)]
        unsafe fn finish<const B: usize, const R: usize, const W: usize>(
            sums: [[[Self::Sum; W]; R]; B],
        ) -> [[[Self::Sum; W]; R]; B] {
            sums
        }
    };
}

use sums_are_vectors;

/// [`Dot::add_products`] with a dot product for each sum.
///
/// # Safety
/// The machine has the instruction set of `D`; what [`Products`] says is valid for reads.
#[inline(always)]
unsafe fn add_pairs<D: Dot, const B: usize, const R: usize, const W: usize>(
    sums: &mut [[[<D::S as Simd>::V; W]; R]; B],
    of: &Products<u16>,
) {
    for pair in 0..PAIRS {
        // SAFETY: pairs, blocks, rows and positions are below those that `Products` is valid for, as this function's contract says.
        unsafe {
            let weights = of.weights.add(pair * of.weight_step);
            let mut w = [D::load_pairs(weights); B];
            for (b, w) in w.iter_mut().enumerate().skip(1) {
                *w = D::load_pairs(weights.add(b * of.weight_block));
            }
            for r in 0..R {
                for p in 0..W {
                    let x = of.source.add(r * of.source_row + p * LANES + pair * PAIR);
                    let x = D::splat_pair(x);
                    for b in 0..B {
                        sums[b][r][p] = D::dot(sums[b][r][p], w[b], x);
                    }
                }
            }
        }
    }
}

/// Something to be run with dot products.
pub(crate) trait DotBody {
    /// Runs it.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`, and what the body's type asks for in its documentation holds.
    unsafe fn run<D: Dot>(self);
}

/// Sixteen lanes of f32, to which products of pairs of bf16 are added.
///
/// Every function may be called only where the machine has the instruction set of `Self`, which
/// [`Machine::launch_dot`](crate::kernel::Machine::launch_dot) sees to for whole kernels. Pointers need no alignment.
/// *Operands* are bf16 that [`Dot::store_operand`], [`Dot::store_pairs`] or [`Dot::copy_operands`] have written:
/// [`Dot::dot`] treats tiny ones as zero of their sign.
pub(crate) trait Dot: Copy + Send + Sync + 'static {
    /// All other arithmetic.
    type S: Simd;
    /// Sixteen pairs.
    type Pairs: Copy;
    /// The register tile of a convolution: how many blocks of sixteen outputs.
    const BLOCKS: usize;
    /// The register tile of a convolution: how many positions.
    const POSITIONS: usize;

    /// Runs a body as a function of its own, compiled for this instruction set.
    ///
    /// # Safety
    /// [`DotBody::run`]'s contract, for this instruction set.
    unsafe fn call<B: DotBody>(body: B);

    /// Reads sixteen pairs of operands.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for reads of 32 elements.
    unsafe fn load_pairs(p: *const u16) -> Self::Pairs;
    /// Reads one pair of operands, for all lanes.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for reads of two elements.
    unsafe fn splat_pair(p: *const u16) -> Self::Pairs;
    /// sum + a · b of both values of each lane's pair.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn dot(sum: <Self::S as Simd>::V, a: Self::Pairs, b: Self::Pairs) -> <Self::S as Simd>::V;
    /// A sum of sixteen lanes in a register tile, in an order that the instance chooses.
    type Sum: Copy;
    /// The sum of nothing.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn no_sum() -> Self::Sum;
    /// Adds the products of sixteen inputs of each position, one pair after the other, to the sums of a register tile.
    ///
    /// # Safety
    /// The machine has the instruction set; what [`Products`] says is valid for reads. The weights of each block are squares that
    /// [`Dot::store_weights`] has written, and `weight_step` is that between pairs in them.
    unsafe fn add_products<const B: usize, const R: usize, const W: usize>(
        sums: &mut [[[Self::Sum; W]; R]; B],
        of: &Products<u16>,
    );
    /// The sums of a register tile with their lanes in order.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn finish<const B: usize, const R: usize, const W: usize>(
        sums: [[[Self::Sum; W]; R]; B],
    ) -> [[[<Self::S as Simd>::V; W]; R]; B];
    /// Rounds the weights of one pair of inputs to sixteen outputs, into their places in a square of weights of sixteen inputs. The
    /// pairs of a square are stored in order.
    ///
    /// # Safety
    /// The machine has the instruction set; `square` is valid for reads and writes of 256 elements, and `pair` is below eight.
    #[inline(always)]
    unsafe fn store_weights(square: *mut u16, pair: usize, weights: [<Self::S as Simd>::V; PAIR]) {
        // SAFETY: the place of the pair is in the square, as this function's contract says.
        unsafe { Self::store_pairs(square.add(pair * PAIR * LANES), weights) }
    }
    /// a · b + c, rounded once.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn fma(
        a: <Self::S as Simd>::V,
        b: <Self::S as Simd>::V,
        c: <Self::S as Simd>::V,
    ) -> <Self::S as Simd>::V;
    /// Rounds sixteen values to the nearest bf16, ties to even, tiny ones to zero of their sign.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for writes of sixteen elements.
    unsafe fn store_operand(p: *mut u16, v: <Self::S as Simd>::V);
    /// The same of the first and second values of sixteen pairs.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for writes of 32 elements.
    #[inline(always)]
    unsafe fn store_pairs(p: *mut u16, pairs: [<Self::S as Simd>::V; PAIR]) {
        let mut halves = [[0u16; LANES]; PAIR];
        // SAFETY: each half has sixteen elements; `i` is below sixteen and `half` below two, so places are below 32.
        unsafe {
            for (i, half) in halves.iter_mut().enumerate() {
                Self::store_operand(half.as_mut_ptr(), pairs[i]);
            }
            for i in 0..LANES {
                for (half, values) in halves.iter().enumerate() {
                    p.add(i * PAIR + half).write_unaligned(values[i]);
                }
            }
        }
    }
    /// Copies sixteen stored bf16 as operands, which [`Dot::dot`] takes as if tiny ones were zero of their sign.
    ///
    /// # Safety
    /// The machine has the instruction set; `to` is valid for writes and `from` for reads of sixteen elements.
    #[inline(always)]
    unsafe fn copy_operands(to: *mut u16, from: *const u16) {
        // SAFETY: this function's contract includes the contract of the calls.
        unsafe { Self::store_operand(to, Self::S::load_bf16(from)) }
    }
}

/// The instance that runs at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DotLevel {
    /// Plain loops.
    Portable,
    /// Two multiply-adds of AVX2 for each dot product.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The instruction, `VDPBF16PS`.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    /// Two multiply-adds of NEON for each dot product.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// The instructions, `BFDOT` and `BFMMLA`, which round in a way of their own.
    #[cfg(target_arch = "aarch64")]
    NeonBf16,
}

impl DotLevel {
    /// The best that this machine has at a level, which it must have.
    pub(crate) fn from_level(level: Level) -> DotLevel {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if level.multiplies_bf16() => DotLevel::Avx512Bf16,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx2 => DotLevel::Avx2,
            #[cfg(target_arch = "aarch64")]
            Level::NeonBf16 => DotLevel::NeonBf16,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => DotLevel::Neon,
            Level::Portable => DotLevel::Portable,
        }
    }

    /// Returns `true` if the processor has an instruction for it.
    pub(crate) fn is_native(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            DotLevel::Avx512Bf16 => true,
            #[cfg(target_arch = "aarch64")]
            DotLevel::NeonBf16 => true,
            _ => false,
        }
    }
}

pub(crate) use portable::PortableDot;
#[cfg(target_arch = "x86_64")]
pub(crate) use {avx2::Avx2Dot, avx512::Avx512Bf16};
#[cfg(target_arch = "aarch64")]
pub(crate) use {neon::NeonDot, neon_bf16::NeonBf16};

#[cfg(test)]
mod tests;
