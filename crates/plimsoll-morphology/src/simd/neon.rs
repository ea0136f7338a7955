//! Blocks of eight lanes of NEON, in two registers of four: [`NEAR`] is a table of eight.
//!
//! SAFETY of all that follows: NEON is part of every aarch64; loads and stores are of as many elements as a slice was just checked to have.
#![allow(unsafe_code)]

use plimsoll_parallel::each;
use std::arch::aarch64::*;

use super::portable::NEAR;
use super::vector::{Simd, Supported};

/// Eight lanes.
#[derive(Clone, Copy)]
pub(super) struct TwoQuads([float32x4_t; 2]);

/// Integers of as many lanes.
#[derive(Clone, Copy)]
pub(super) struct TwoQuadsIndex([uint32x4_t; 2]);

/// Applies a function of registers to both halves.
macro_rules! halves {
    (|$($v:ident),+| $of:expr) => {{
        let half = |i: usize| {
            $(let $v = $v[i];)+
            // SAFETY: see above.
            unsafe { $of }
        };
        [half(0), half(1)]
    }};
}

impl Simd for TwoQuads {
    type Index = TwoQuadsIndex;
    const WIDTH: usize = 8;

    #[inline(always)]
    fn bits(_: Supported<Self>, bytes: &[u8; 64]) -> u64 {
        const BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        // SAFETY: see above.
        unsafe {
            let bit = vld1q_u8(BIT.as_ptr());
            let marks = |quarter: usize| {
                let bytes = vld1q_u8(bytes.as_ptr().add(16 * quarter));
                vandq_u8(vtstq_u8(bytes, bytes), bit)
            };
            // Sums of neighbours: two bits each, then four, then eight.
            let twos = [vpaddq_u8(marks(0), marks(1)), vpaddq_u8(marks(2), marks(3))];
            let fours = vpaddq_u8(twos[0], twos[1]);
            let eights = vpaddq_u8(fours, fours);
            vgetq_lane_u64::<0>(vreinterpretq_u64_u8(eights))
        }
    }
    #[inline(always)]
    fn distances(on: Supported<Self>, boundaries: u32, left: f32, right: f32) -> Self {
        const LANE: [f32; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let near = Self::load(on, &NEAR[boundaries as usize]).0;
        let lane = Self::load(on, &LANE).0;
        TwoQuads(halves!(|near, lane| {
            let from_left = vaddq_f32(vdupq_n_f32(left + 1.0), lane);
            let from_right = vsubq_f32(vdupq_n_f32(right + 8.0), lane);
            vminq_f32(near, vminq_f32(from_left, from_right))
        }))
    }
    #[inline(always)]
    fn only(self, bits: u32) -> Self {
        let (v, mask) = (self.0, mask(bits));
        TwoQuads([and(v[0], mask[0]), and(v[1], mask[1])])
    }
    #[inline(always)]
    fn only_equal(self, labels: &[u32], label: u32) -> Self {
        let labels = &labels[..8];
        let (v, labels) = (self.0, load_index(labels));
        TwoQuads(halves!(|v, labels| and(v, vceqq_u32(labels, vdupq_n_u32(label)))))
    }
    #[inline(always)]
    fn negated(self, bits: u32) -> Self {
        let (v, mask) = (self.0, mask(bits));
        TwoQuads(halves!(|v, mask| vbslq_f32(mask, vnegq_f32(v), v)))
    }
    #[inline(always)]
    fn load(_: Supported<Self>, from: &[f32]) -> Self {
        let from = &from[..8];
        // SAFETY: see above.
        TwoQuads(unsafe { [vld1q_f32(from.as_ptr()), vld1q_f32(from.as_ptr().add(4))] })
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        let to = &mut to[..8];
        // SAFETY: see above.
        unsafe {
            vst1q_f32(to.as_mut_ptr(), self.0[0]);
            vst1q_f32(to.as_mut_ptr().add(4), self.0[1]);
        }
    }
    #[inline(always)]
    fn splat(_: Supported<Self>, value: f32) -> Self {
        // SAFETY: see above.
        TwoQuads(unsafe { [vdupq_n_f32(value); 2] })
    }
    #[inline(always)]
    fn index(_: Supported<Self>, value: u32) -> Self::Index {
        // SAFETY: see above.
        TwoQuadsIndex(unsafe { [vdupq_n_u32(value); 2] })
    }
    #[inline(always)]
    fn store_index(index: Self::Index, to: &mut [u32]) {
        let to = &mut to[..8];
        // SAFETY: see above.
        unsafe {
            vst1q_u32(to.as_mut_ptr(), index.0[0]);
            vst1q_u32(to.as_mut_ptr().add(4), index.0[1]);
        }
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        TwoQuads(halves!(|a, b| vaddq_f32(a, b)))
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        TwoQuads(halves!(|a, b| vmulq_f32(a, b)))
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        TwoQuads(halves!(|a, b| vminq_f32(a, b)))
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        TwoQuads(halves!(|a, b| vmaxq_f32(a, b)))
    }
    #[inline(always)]
    fn root(self) -> Self {
        let v = self.0;
        TwoQuads(halves!(|v| vsqrtq_f32(v)))
    }
    #[inline(always)]
    fn lower(self, index: u32, lowest: &mut Self, at: &mut Self::Index) {
        let (v, least, best) = (self.0, lowest.0, at.0);
        let lower = halves!(|v, least| vcltq_f32(v, least));
        lowest.0 = halves!(|v, least| vminq_f32(v, least));
        at.0 = halves!(|lower, best| vbslq_u32(lower, vdupq_n_u32(index), best));
    }
    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: see above.
        unsafe { vmaxvq_f32(vmaxq_f32(self.0[0], self.0[1])) }
    }
    #[inline(always)]
    fn sort_index(index: Self::Index, other: Self::Index) -> (Self::Index, Self::Index) {
        let (a, b) = (index.0, other.0);
        let (a, b) = (halves!(|a| vreinterpretq_s32_u32(a)), halves!(|b| vreinterpretq_s32_u32(b)));
        let low = halves!(|a, b| vreinterpretq_u32_s32(vminq_s32(a, b)));
        let high = halves!(|a, b| vreinterpretq_u32_s32(vmaxq_s32(a, b)));
        (TwoQuadsIndex(low), TwoQuadsIndex(high))
    }
    #[inline(always)]
    fn range(low: Self::Index, high: Self::Index) -> (i32, i32) {
        // SAFETY: see above.
        unsafe {
            let signed = |v| vreinterpretq_s32_u32(v);
            let (low, high) = (each(low.0, signed), each(high.0, signed));
            (vminvq_s32(vminq_s32(low[0], low[1])), vmaxvq_s32(vmaxq_s32(high[0], high[1])))
        }
    }
}

/// Eight integers.
#[inline(always)]
fn load_index(from: &[u32]) -> [uint32x4_t; 2] {
    let from = &from[..8];
    // SAFETY: see above.
    unsafe { [vld1q_u32(from.as_ptr()), vld1q_u32(from.as_ptr().add(4))] }
}

/// The bits of a number that are set in a mask.
#[inline(always)]
fn and(v: float32x4_t, mask: uint32x4_t) -> float32x4_t {
    // SAFETY: see above.
    unsafe { vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), mask)) }
}

/// All bits of a lane for each bit that is set.
#[inline(always)]
fn mask(bits: u32) -> [uint32x4_t; 2] {
    let lane = load_index(&[1, 2, 4, 8, 16, 32, 64, 128]);
    halves!(|lane| vtstq_u32(vdupq_n_u32(bits), lane))
}
