//! One 512-bit register.

use std::arch::x86_64::*;

use super::{Body, LANES, Simd};

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

// SAFETY (all blocks): the contracts of `Simd` say that the machine has AVX-512 F, BW, DQ and VL, which are the features of
// all intrinsics used here, and that pointers are valid for sixteen elements, which is what the loads and stores touch.
// They take any alignment.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment for the whole impl")]
impl Simd for Avx512 {
    type V = __m512;
    // 2 × 14 sums, 2 weights and 1 input make 31 of 32 registers.
    const TILE_BLOCKS: usize = 2;
    const TILE_POSITIONS: usize = 14;
    // 8 × 2 sums are enough to hide the latency of two multiply-add units, four cycles each.
    const TILE_INPUTS: usize = 8;
    const GRAD_BLOCKS: usize = 2;
    const GRAD_INPUTS: usize = 8;

    #[inline(always)]
    unsafe fn call<B: Body>(body: B) {
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn zero() -> __m512 {
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn where_positive(x: __m512, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_setzero_ps()), b, a) }
    }
    #[inline(always)]
    unsafe fn pick(v: __m512, from: &[i32; LANES]) -> __m512 {
        unsafe { _mm512_permutexvar_ps(_mm512_loadu_si512(from.as_ptr().cast()), v) }
    }
    #[inline(always)]
    unsafe fn where_less(x: __m512, y: __m512, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, y), b, a) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, count: usize) -> __m512 {
        // Lanes that are masked out are not touched.
        unsafe { _mm512_maskz_loadu_ps(first(count), p) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, v: __m512, count: usize) {
        unsafe { _mm512_mask_storeu_ps(p, first(count), v) }
    }
    #[inline(always)]
    unsafe fn transpose(rows: [__m512; LANES]) -> [__m512; LANES] {
        unsafe {
            // Pairs of lanes of two rows, then fours of four rows: of four rows from 4 i on, the (4 i + j)-th has in its k-th quarter
            // what they have in column 4 k + j.
            let mut pairs = rows;
            for i in (0..LANES).step_by(2) {
                pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
                pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
            }
            let mut fours = rows;
            for i in (0..LANES).step_by(4) {
                for half in 0..2 {
                    let (one, other) =
                        (_mm512_castps_pd(pairs[i + half]), _mm512_castps_pd(pairs[i + half + 2]));
                    fours[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(one, other));
                    fours[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(one, other));
                }
            }
            // The even quarters of two, and the odd ones, twice.
            const EVEN: i32 = 0x88;
            const ODD: i32 = 0xdd;
            let mut columns = rows;
            for j in 0..4 {
                let even = [
                    _mm512_shuffle_f32x4::<EVEN>(fours[j], fours[4 + j]),
                    _mm512_shuffle_f32x4::<EVEN>(fours[8 + j], fours[12 + j]),
                ];
                let odd = [
                    _mm512_shuffle_f32x4::<ODD>(fours[j], fours[4 + j]),
                    _mm512_shuffle_f32x4::<ODD>(fours[8 + j], fours[12 + j]),
                ];
                columns[j] = _mm512_shuffle_f32x4::<EVEN>(even[0], even[1]);
                columns[8 + j] = _mm512_shuffle_f32x4::<ODD>(even[0], even[1]);
                columns[4 + j] = _mm512_shuffle_f32x4::<EVEN>(odd[0], odd[1]);
                columns[12 + j] = _mm512_shuffle_f32x4::<ODD>(odd[0], odd[1]);
            }
            columns
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m512 {
        unsafe {
            let half = _mm256_loadu_si256(p.cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: __m512) {
        unsafe {
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            // A NaN must not be rounded up into an infinity or a zero.
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            let chosen = _mm512_mask_blend_epi32(nan, rounded, quiet);
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(chosen)));
        }
    }
}

/// A mask of the first `count` lanes.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    if count >= LANES { __mmask16::MAX } else { (1 << count) - 1 }
}

/// [`Simd::call`].
///
/// # Safety
/// [`Body::run`]'s contract, for [`Avx512`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline(never)]
unsafe fn call<B: Body>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<Avx512>() }
}
