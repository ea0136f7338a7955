//! Blocks of eight lanes of AVX2.
//!
//! SAFETY of all that follows: a block, an index or a proof exists only where the machine has the instructions, see [`Supported`];
//! loads and stores are of as many elements as a slice was just checked to have.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::portable::NEAR;
use super::vector::{Simd, Supported};

/// Eight lanes of AVX2.
#[derive(Clone, Copy)]
pub(super) struct Ymm(__m256);

/// Integers of as many lanes.
#[derive(Clone, Copy)]
pub(super) struct YmmIndex(__m256i);

impl Simd for Ymm {
    type Index = YmmIndex;
    const WIDTH: usize = 8;

    #[inline(always)]
    fn bits(_: Supported<Self>, bytes: &[u8; 64]) -> u64 {
        let (low, high) = bytes.split_at(32);
        let half = |bytes: &[u8]| {
            // SAFETY: see above.
            unsafe {
                let bytes = _mm256_loadu_si256(bytes.as_ptr().cast());
                !(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())) as u32)
            }
        };
        u64::from(half(high)) << 32 | u64::from(half(low))
    }
    #[inline(always)]
    fn distances(on: Supported<Self>, boundaries: u32, left: f32, right: f32) -> Self {
        let near = Self::load(on, &NEAR[boundaries as usize]);
        // SAFETY: see above.
        unsafe {
            let lane = _mm256_setr_ps(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0);
            let from_left = _mm256_add_ps(_mm256_set1_ps(left + 1.0), lane);
            let from_right = _mm256_sub_ps(_mm256_set1_ps(right + 8.0), lane);
            Ymm(_mm256_min_ps(near.0, _mm256_min_ps(from_left, from_right)))
        }
    }
    #[inline(always)]
    fn only(self, bits: u32) -> Self {
        // SAFETY: see above.
        Ymm(unsafe { _mm256_and_ps(self.0, mask(bits)) })
    }
    #[inline(always)]
    fn only_equal(self, labels: &[u32], label: u32) -> Self {
        let labels = &labels[..8];
        // SAFETY: see above.
        unsafe {
            let labels = _mm256_loadu_si256(labels.as_ptr().cast());
            let equal = _mm256_cmpeq_epi32(labels, _mm256_set1_epi32(label as i32));
            Ymm(_mm256_and_ps(self.0, _mm256_castsi256_ps(equal)))
        }
    }
    #[inline(always)]
    fn negated(self, bits: u32) -> Self {
        // SAFETY: see above.
        Ymm(unsafe { _mm256_xor_ps(self.0, _mm256_and_ps(mask(bits), _mm256_set1_ps(-0.0))) })
    }
    #[inline(always)]
    fn load(_: Supported<Self>, from: &[f32]) -> Self {
        let from = &from[..8];
        // SAFETY: see above.
        Ymm(unsafe { _mm256_loadu_ps(from.as_ptr()) })
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        let to = &mut to[..8];
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), self.0) }
    }
    #[inline(always)]
    fn splat(_: Supported<Self>, value: f32) -> Self {
        // SAFETY: see above.
        Ymm(unsafe { _mm256_set1_ps(value) })
    }
    #[inline(always)]
    fn index(_: Supported<Self>, value: u32) -> Self::Index {
        // SAFETY: see above.
        YmmIndex(unsafe { _mm256_set1_epi32(value as i32) })
    }
    #[inline(always)]
    fn store_index(index: Self::Index, to: &mut [u32]) {
        let to = &mut to[..8];
        // SAFETY: see above.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), index.0) }
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: see above.
        Ymm(unsafe { _mm256_add_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        // SAFETY: see above.
        Ymm(unsafe { _mm256_mul_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        // SAFETY: see above.
        Ymm(unsafe { _mm256_min_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        // SAFETY: see above.
        Ymm(unsafe { _mm256_max_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn root(self) -> Self {
        // SAFETY: see above.
        Ymm(unsafe { _mm256_sqrt_ps(self.0) })
    }
    #[inline(always)]
    fn lower(self, index: u32, lowest: &mut Self, at: &mut Self::Index) {
        // SAFETY: see above.
        unsafe {
            let lower = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, lowest.0);
            lowest.0 = _mm256_min_ps(self.0, lowest.0);
            at.0 = _mm256_blendv_epi8(at.0, _mm256_set1_epi32(index as i32), _mm256_castps_si256(lower));
        }
    }
    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: see above.
        let index = YmmIndex(unsafe { _mm256_castps_si256(self.0) });
        f32::from_bits(Self::range(index, index).1 as u32)
    }
    #[inline(always)]
    fn sort_index(index: Self::Index, other: Self::Index) -> (Self::Index, Self::Index) {
        // SAFETY: see above.
        unsafe {
            let (index, other) = (index.0, other.0);
            (YmmIndex(_mm256_min_epi32(index, other)), YmmIndex(_mm256_max_epi32(index, other)))
        }
    }
    #[inline(always)]
    fn range(low: Self::Index, high: Self::Index) -> (i32, i32) {
        let (low, high) = (low.0, high.0);
        // SAFETY: see above.
        unsafe {
            let mut least = _mm_min_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
            let mut greatest =
                _mm_max_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256::<1>(high));
            least = _mm_min_epi32(least, _mm_shuffle_epi32::<0b01_00_11_10>(least));
            greatest = _mm_max_epi32(greatest, _mm_shuffle_epi32::<0b01_00_11_10>(greatest));
            least = _mm_min_epi32(least, _mm_shuffle_epi32::<0b10_11_00_01>(least));
            greatest = _mm_max_epi32(greatest, _mm_shuffle_epi32::<0b10_11_00_01>(greatest));
            (_mm_cvtsi128_si32(least), _mm_cvtsi128_si32(greatest))
        }
    }
}

/// All bits of a lane for each bit that is set.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn mask(bits: u32) -> __m256 {
    // SAFETY: this function's contract includes the contract of the calls.
    unsafe {
        let lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        let bits = _mm256_and_si256(_mm256_set1_epi32(bits as i32), lane);
        _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, lane))
    }
}
