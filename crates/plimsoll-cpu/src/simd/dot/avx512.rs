//! The instruction.

use std::arch::x86_64::*;

use super::{Dot, DotBody, PAIR, sums_are_vectors};
use crate::simd::{Avx512, Simd};

/// AVX-512 with its extension for bf16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16;

// SAFETY (all blocks): the contracts of `Dot` say that the machine has AVX-512 F, BW, DQ, VL and BF16, which are the features of all
// intrinsics used here, and that pointers are valid for as many elements as the loads and stores touch. They take any alignment. Vectors
// of 512 and of 256 bits are transmuted to others of the same size, for which all bits are valid.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment for the whole impl")]
impl Dot for Avx512Bf16 {
    type S = Avx512;
    type Pairs = __m512i;
    // 2 × 14 sums, 2 weights and 1 input make 31 of 32 registers.
    const BLOCKS: usize = 2;
    const POSITIONS: usize = 14;

    sums_are_vectors!();

    #[inline(always)]
    unsafe fn call<B: DotBody>(body: B) {
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn load_pairs(p: *const u16) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn splat_pair(p: *const u16) -> __m512i {
        unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn dot(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        unsafe {
            let a = std::mem::transmute::<__m512i, __m512bh>(a);
            let b = std::mem::transmute::<__m512i, __m512bh>(b);
            _mm512_dpbf16_ps(sum, a, b)
        }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { Avx512::fma(a, b, c) }
    }
    #[inline(always)]
    unsafe fn store_operand(p: *mut u16, v: __m512) {
        unsafe { _mm256_storeu_si256(p.cast(), narrow(v)) }
    }
    #[inline(always)]
    unsafe fn store_pairs(p: *mut u16, [first, second]: [__m512; PAIR]) {
        unsafe {
            let low = _mm512_cvtepu16_epi32(narrow(first));
            let high = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(narrow(second)));
            _mm512_storeu_si512(p.cast(), _mm512_or_si512(low, high));
        }
    }
    #[inline(always)]
    unsafe fn copy_operands(to: *mut u16, from: *const u16) {
        // The instruction takes tiny operands for zero by itself.
        unsafe { _mm256_storeu_si256(to.cast(), _mm256_loadu_si256(from.cast())) }
    }
}

/// Sixteen values rounded.
///
/// # Safety
/// The machine has AVX-512 F and BF16.
#[inline(always)]
unsafe fn narrow(v: __m512) -> __m256i {
    // SAFETY: the machine has the instruction, as this function's contract says; any 256 bits are a `__m256i`.
    unsafe { std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v)) }
}

/// [`Dot::call`].
///
/// # Safety
/// [`DotBody::run`]'s contract, for [`Avx512Bf16`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
#[inline(never)]
unsafe fn call<B: DotBody>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<Avx512Bf16>() }
}
