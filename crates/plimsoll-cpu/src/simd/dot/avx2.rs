//! Two multiply-adds of AVX2.

use plimsoll_parallel::each_index;
use std::arch::x86_64::*;

use super::{Dot, DotBody, exact, sums_are_vectors};
use crate::simd::{Avx2, Simd};

/// AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Dot;

type V = (__m256, __m256);

/// Lanes of a half.
const HALF: usize = 8;

// SAFETY (all blocks): the contracts of `Dot` say that the machine has AVX2 and FMA, which are the features of all intrinsics used here,
// and that pointers are valid for as many elements as the loads and stores touch. They take any alignment.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment for the whole impl")]
impl Dot for Avx2Dot {
    type S = Avx2;
    type Pairs = (__m256i, __m256i);
    // 3 × 2 sums, 2 × 2 halves of weights and what the steps need are 16 registers.
    const BLOCKS: usize = 1;
    const POSITIONS: usize = 3;

    sums_are_vectors!();

    #[inline(always)]
    unsafe fn call<B: DotBody>(body: B) {
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn load_pairs(p: *const u16) -> Self::Pairs {
        unsafe { (_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(2 * HALF).cast())) }
    }
    #[inline(always)]
    unsafe fn splat_pair(p: *const u16) -> Self::Pairs {
        unsafe {
            let pair = _mm256_set1_epi32(p.cast::<i32>().read_unaligned());
            (pair, pair)
        }
    }
    #[inline(always)]
    unsafe fn dot(sum: V, a: Self::Pairs, b: Self::Pairs) -> V {
        unsafe { (dot_half(sum.0, a.0, b.0), dot_half(sum.1, a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        unsafe { Avx2::fma(a, b, c) }
    }
    #[inline(always)]
    unsafe fn store_operand(p: *mut u16, v: V) {
        unsafe {
            Avx2::store_bf16(p, (without_tiny(v.0), without_tiny(v.1)));
        }
    }
}

/// Tiny values as zero of their sign.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn without_tiny(v: __m256) -> __m256 {
    // SAFETY: the machine has AVX2, as this function's contract says.
    unsafe {
        let is_tiny = _mm256_cmp_ps::<_CMP_LT_OQ>(size(v), _mm256_set1_ps(f32::MIN_POSITIVE));
        _mm256_blendv_ps(v, _mm256_and_ps(v, _mm256_set1_ps(-0.0)), is_tiny)
    }
}

/// The absolute values.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn size(v: __m256) -> __m256 {
    // SAFETY: the machine has AVX2, as this function's contract says.
    unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), v) }
}

/// [`Dot::dot`] of eight lanes.
///
/// # Safety
/// The machine has AVX2 and FMA.
#[inline(always)]
unsafe fn dot_half(sum: __m256, a: __m256i, b: __m256i) -> __m256 {
    // SAFETY: the machine has AVX2 and FMA, as this function's contract says.
    unsafe { step(first(a), first(b), step(second(a), second(b), sum)) }
}

/// The first values of eight pairs.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn first(pairs: __m256i) -> __m256 {
    // SAFETY: the machine has AVX2, as this function's contract says.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)) }
}

/// The second values of eight pairs, which are upper halves of f32 already.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn second(pairs: __m256i) -> __m256 {
    // SAFETY: the machine has AVX2, as this function's contract says.
    unsafe { _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()))) }
}

/// a · b + c; tiny results, which hardly ever come, are settled one by one.
///
/// # Safety
/// The machine has AVX2 and FMA.
#[inline(always)]
unsafe fn step(a: __m256, b: __m256, c: __m256) -> __m256 {
    // SAFETY: the machine has AVX2 and FMA, as this function's contract says.
    unsafe {
        let sum = _mm256_fmadd_ps(a, b, c);
        // The smallest normal number itself may have been rounded up from a tiny one.
        let is_small = _mm256_cmp_ps::<_CMP_LE_OQ>(size(sum), _mm256_set1_ps(f32::MIN_POSITIVE));
        let is_not_zero = _mm256_cmp_ps::<_CMP_NEQ_UQ>(sum, _mm256_setzero_ps());
        match _mm256_movemask_ps(_mm256_and_ps(is_small, is_not_zero)) {
            0 => sum,
            _ => settle(a, b, c),
        }
    }
}

/// [`step`], lane by lane.
///
/// # Safety
/// The machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
#[cold]
#[inline(never)]
unsafe fn settle(a: __m256, b: __m256, c: __m256) -> __m256 {
    // SAFETY: the machine has AVX2, as this function's contract says; the arrays have eight elements, and need no alignment.
    unsafe {
        let lanes = |v: __m256| {
            let mut lanes = [0.0f32; HALF];
            _mm256_storeu_ps(lanes.as_mut_ptr(), v);
            lanes
        };
        let (a, b, c) = (lanes(a), lanes(b), lanes(c));
        let sums: [f32; HALF] = each_index(|lane| exact::step(a[lane], b[lane], c[lane]));
        _mm256_loadu_ps(sums.as_ptr())
    }
}

/// [`Dot::call`].
///
/// # Safety
/// [`DotBody::run`]'s contract, for [`Avx2Dot`].
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn call<B: DotBody>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<Avx2Dot>() }
}
