//! Dot products of pairs of bf16, summed in f32: an instruction of its own on some processors, and the same bits on all others.
//!
//! c ← fma(a₁, b₁, c), then c ← fma(a₀, b₀, c): two multiply-adds, each rounded to the nearest, ties to even. Numbers below the smallest
//! normal one count as zero of their sign, operands as well as the result of either step, where tiny is judged after rounding. So
//! `VDPBF16PS` computes, and so do the other instances of [`Dot`], bit for bit; of NaN alone the payload may differ.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod exact;
mod portable;

use plimsoll_parallel::Level;

use super::{LANES, Simd};

/// Values of a pair.
pub(crate) const PAIR: usize = 2;
/// Pairs in a block of sixteen channels.
pub(crate) const PAIRS: usize = LANES / PAIR;

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
            for (half, v) in halves.iter_mut().zip(pairs) {
                Self::store_operand(half.as_mut_ptr(), v);
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
    Avx2,
    /// The instruction, `VDPBF16PS`.
    Avx512Bf16,
}

impl DotLevel {
    /// The best that this machine has at a level, which it must have.
    pub(crate) fn from_level(level: Level) -> DotLevel {
        match level {
            Level::Avx512 if level.multiplies_bf16() => DotLevel::Avx512Bf16,
            Level::Avx512 | Level::Avx2 => DotLevel::Avx2,
            Level::Portable => DotLevel::Portable,
        }
    }

    /// Returns `true` if the processor has an instruction for it.
    pub(crate) fn is_native(self) -> bool {
        self == DotLevel::Avx512Bf16
    }
}

pub(crate) use portable::PortableDot;
#[cfg(target_arch = "x86_64")]
pub(crate) use {avx2::Avx2Dot, avx512::Avx512Bf16};

#[cfg(test)]
mod tests;
