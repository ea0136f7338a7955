//! Two 256-bit registers.

use std::arch::x86_64::*;

use super::{Body, LANES, Simd};

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

type V = (__m256, __m256);

// SAFETY (all blocks): the contracts of `Simd` say that the machine has AVX2 and FMA, which are the features of all
// intrinsics used here, and that pointers are valid for sixteen elements, which is what the loads and stores touch. They
// take any alignment.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment for the whole impl")]
impl Simd for Avx2 {
    type V = V;
    // 6 × 2 sums, 2 weights and 1 input make 15 of 16 registers.
    const TILE_BLOCKS: usize = 1;
    const TILE_POSITIONS: usize = 6;
    const TILE_INPUTS: usize = 4;
    // 6 × 2 sums, 2 gradients and 1 input: with two blocks the sums alone would take all 16 registers.
    const GRAD_BLOCKS: usize = 1;
    const GRAD_INPUTS: usize = 6;
    // Two broadcasts take the units that load, and a permutation across a register the only one that shuffles.
    const READS_HALVES: bool = true;

    #[inline(always)]
    unsafe fn call<B: Body>(body: B) {
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn zero() -> V {
        unsafe { (_mm256_setzero_ps(), _mm256_setzero_ps()) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> V {
        unsafe {
            let v = _mm256_set1_ps(x);
            (v, v)
        }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> V {
        unsafe { (_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: V) {
        unsafe {
            _mm256_storeu_ps(p, v.0);
            _mm256_storeu_ps(p.add(8), v.1);
        }
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        unsafe { (_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)) }
    }
    #[inline(always)]
    unsafe fn add(a: V, b: V) -> V {
        unsafe { (_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn sub(a: V, b: V) -> V {
        unsafe { (_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn mul(a: V, b: V) -> V {
        unsafe { (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn where_positive(x: V, a: V, b: V) -> V {
        unsafe {
            let zero = _mm256_setzero_ps();
            let low = _mm256_cmp_ps::<_CMP_GT_OQ>(x.0, zero);
            let high = _mm256_cmp_ps::<_CMP_GT_OQ>(x.1, zero);
            (_mm256_blendv_ps(b.0, a.0, low), _mm256_blendv_ps(b.1, a.1, high))
        }
    }
    #[inline(always)]
    unsafe fn pick(v: V, from: &[i32; LANES]) -> V {
        unsafe {
            // Of an index, the low three bits count: those within a half.
            let half =
                |v, from: &[i32]| _mm256_permutevar8x32_ps(v, _mm256_loadu_si256(from.as_ptr().cast()));
            (half(v.0, &from[..8]), half(v.1, &from[8..]))
        }
    }
    #[inline(always)]
    unsafe fn pick_in_quarters(v: V, from: &[i32; LANES]) -> V {
        unsafe {
            // Of an index, the low two bits count: those within a quarter.
            let half = |v, from: &[i32]| _mm256_permutevar_ps(v, _mm256_loadu_si256(from.as_ptr().cast()));
            (half(v.0, &from[..8]), half(v.1, &from[8..]))
        }
    }
    #[inline(always)]
    unsafe fn halves(p: *const f32) -> V {
        unsafe { (_mm256_set1_ps(*p), _mm256_set1_ps(*p.add(8))) }
    }
    #[inline(always)]
    unsafe fn where_less(x: V, y: V, a: V, b: V) -> V {
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_LT_OQ>(x.0, y.0);
            let high = _mm256_cmp_ps::<_CMP_LT_OQ>(x.1, y.1);
            (_mm256_blendv_ps(b.0, a.0, low), _mm256_blendv_ps(b.1, a.1, high))
        }
    }
    #[inline(always)]
    unsafe fn max(a: V, b: V) -> V {
        unsafe { (_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn min(a: V, b: V) -> V {
        unsafe { (_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> V {
        unsafe {
            let widen = |p: *const u16| {
                let half = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(half))
            };
            (widen(p), widen(p.add(8)))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: V) {
        unsafe {
            // Packing works within halves of a register, so the quarters come out in the order 0 2 1 3.
            let packed = _mm256_packus_epi32(to_bf16(v.0), to_bf16(v.1));
            _mm256_storeu_si256(p.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }
}

/// Eight numbers rounded to the nearest bf16, ties to even, in the lower halves.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn to_bf16(v: __m256) -> __m256i {
    // SAFETY: the machine has AVX2, as this function's contract says.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        // A NaN must not be rounded up into an infinity or a zero.
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan))
    }
}

/// [`Simd::call`].
///
/// # Safety
/// [`Body::run`]'s contract, for [`Avx2`].
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn call<B: Body>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<Avx2>() }
}
