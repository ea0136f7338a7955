//! Blocks of sixteen lanes of AVX-512.
//!
//! SAFETY of all that follows: a block, an index or a proof exists only where the machine has the instructions, see [`Supported`];
//! loads and stores are of as many elements as a slice was just checked to have.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::vector::{Simd, Supported};

/// Sixteen lanes of AVX-512.
#[derive(Clone, Copy)]
pub(super) struct Zmm(__m512);

/// Integers of as many lanes.
#[derive(Clone, Copy)]
pub(super) struct ZmmIndex(__m512i);

impl Simd for Zmm {
    type Index = ZmmIndex;
    const WIDTH: usize = 16;

    #[inline(always)]
    fn bits(_: Supported<Self>, bytes: &[u8; 64]) -> u64 {
        // SAFETY: see above.
        unsafe {
            let bytes = _mm512_loadu_si512(bytes.as_ptr().cast());
            _mm512_test_epi8_mask(bytes, bytes)
        }
    }
    #[inline(always)]
    fn distances(_: Supported<Self>, boundaries: u32, left: f32, right: f32) -> Self {
        // SAFETY: see above.
        unsafe {
            let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let boundaries = _mm512_set1_epi32(boundaries as i32);
            // The boundaries up to the front of a lane, and those after it.
            let behind_bits = _mm512_sllv_epi32(_mm512_set1_epi32(-2), lane);
            let before = _mm512_andnot_si512(behind_bits, boundaries);
            let behind = _mm512_and_si512(behind_bits, boundaries);
            // Only the first of these.
            let behind = _mm512_and_si512(behind, _mm512_sub_epi32(_mm512_setzero_si512(), behind));
            // The highest bit is 31 less the leading zeroes. Converted to f32, plus the lane's own offset: the
            // distance.
            let left_zeroes = _mm512_cvtepi32_ps(_mm512_lzcnt_epi32(before));
            let right_zeroes = _mm512_cvtepi32_ps(_mm512_lzcnt_epi32(behind));
            let lane = _mm512_cvtepi32_ps(lane);
            let any_before = _mm512_test_epi32_mask(before, before);
            let any_behind = _mm512_test_epi32_mask(behind, behind);
            let from_left =
                _mm512_mask_sub_ps(_mm512_set1_ps(left + 1.0), any_before, left_zeroes, _mm512_set1_ps(30.0));
            let from_right = _mm512_mask_sub_ps(
                _mm512_set1_ps(right + 16.0),
                any_behind,
                _mm512_set1_ps(31.0),
                right_zeroes,
            );
            Zmm(_mm512_min_ps(_mm512_add_ps(from_left, lane), _mm512_sub_ps(from_right, lane)))
        }
    }
    #[inline(always)]
    fn only(self, bits: u32) -> Self {
        // SAFETY: see above.
        Zmm(unsafe { _mm512_maskz_mov_ps(bits as __mmask16, self.0) })
    }
    #[inline(always)]
    fn only_equal(self, labels: &[u32], label: u32) -> Self {
        let labels = &labels[..16];
        // SAFETY: see above.
        unsafe {
            let labels = _mm512_loadu_si512(labels.as_ptr().cast());
            let equal = _mm512_cmpeq_epi32_mask(labels, _mm512_set1_epi32(label as i32));
            Zmm(_mm512_maskz_mov_ps(equal, self.0))
        }
    }
    #[inline(always)]
    fn negated(self, bits: u32) -> Self {
        // SAFETY: see above.
        Zmm(unsafe { _mm512_mask_sub_ps(self.0, bits as __mmask16, _mm512_setzero_ps(), self.0) })
    }
    #[inline(always)]
    fn load(_: Supported<Self>, from: &[f32]) -> Self {
        let from = &from[..16];
        // SAFETY: see above.
        Zmm(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        let to = &mut to[..16];
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
    }
    #[inline(always)]
    fn splat(_: Supported<Self>, value: f32) -> Self {
        // SAFETY: see above.
        Zmm(unsafe { _mm512_set1_ps(value) })
    }
    #[inline(always)]
    fn index(_: Supported<Self>, value: u32) -> Self::Index {
        // SAFETY: see above.
        ZmmIndex(unsafe { _mm512_set1_epi32(value as i32) })
    }
    #[inline(always)]
    fn store_index(index: Self::Index, to: &mut [u32]) {
        let to = &mut to[..16];
        // SAFETY: see above.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), index.0) }
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: see above.
        Zmm(unsafe { _mm512_add_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        // SAFETY: see above.
        Zmm(unsafe { _mm512_mul_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        // SAFETY: see above.
        Zmm(unsafe { _mm512_min_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        // SAFETY: see above.
        Zmm(unsafe { _mm512_max_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn root(self) -> Self {
        // SAFETY: see above.
        Zmm(unsafe { _mm512_sqrt_ps(self.0) })
    }
    #[inline(always)]
    fn lower(self, index: u32, lowest: &mut Self, at: &mut Self::Index) {
        // SAFETY: see above.
        unsafe {
            let lower = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, lowest.0);
            lowest.0 = _mm512_min_ps(self.0, lowest.0);
            at.0 = _mm512_mask_set1_epi32(at.0, lower, index as i32);
        }
    }
    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: see above.
        f32::from_bits(unsafe { _mm512_reduce_max_epi32(_mm512_castps_si512(self.0)) } as u32)
    }
    #[inline(always)]
    fn sort_index(index: Self::Index, other: Self::Index) -> (Self::Index, Self::Index) {
        // SAFETY: see above.
        unsafe {
            let (index, other) = (index.0, other.0);
            (ZmmIndex(_mm512_min_epi32(index, other)), ZmmIndex(_mm512_max_epi32(index, other)))
        }
    }
    #[inline(always)]
    fn range(low: Self::Index, high: Self::Index) -> (i32, i32) {
        // SAFETY: see above.
        unsafe { (_mm512_reduce_min_epi32(low.0), _mm512_reduce_max_epi32(high.0)) }
    }
}
