//! Two multiply-adds of NEON.

use plimsoll_parallel::{each, each_index};
use std::arch::aarch64::*;

use super::{Dot, DotBody, exact, sums_are_vectors};
use crate::simd::{LANES, Neon, Simd};

/// NEON without products of bf16.
#[derive(Clone, Copy)]
pub(crate) struct NeonDot;

/// Registers of a vector.
const QUARTERS: usize = 4;
/// Lanes of a register.
const QUARTER: usize = LANES / QUARTERS;

/// Sixteen pairs: in each lane of 32 bits, the first value in the lower half.
pub(super) type Pairs = [uint32x4_t; QUARTERS];
type V = [float32x4_t; QUARTERS];

// SAFETY (all blocks): NEON is part of every aarch64, and it has all intrinsics used here. The contracts of `Dot` say that pointers are
// valid for as many elements as the loads and stores touch. They take any alignment.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment for the whole impl")]
impl Dot for NeonDot {
    type S = Neon;
    type Pairs = Pairs;
    // 3 × 4 sums, 4 weights, 4 inputs and what the steps need are 32 registers.
    const BLOCKS: usize = 1;
    const POSITIONS: usize = 3;

    sums_are_vectors!();

    #[inline(always)]
    unsafe fn call<B: DotBody>(body: B) {
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn load_pairs(p: *const u16) -> Pairs {
        unsafe { load_pairs(p) }
    }
    #[inline(always)]
    unsafe fn splat_pair(p: *const u16) -> Pairs {
        unsafe { [vdupq_n_u32(p.cast::<u32>().read_unaligned()); QUARTERS] }
    }
    #[inline(always)]
    unsafe fn dot(sum: V, a: Pairs, b: Pairs) -> V {
        let quarter = |q: usize| step(first(a[q]), first(b[q]), step(second(a[q]), second(b[q]), sum[q]));
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        unsafe { Neon::fma(a, b, c) }
    }
    #[inline(always)]
    unsafe fn store_operand(p: *mut u16, v: V) {
        unsafe { store_operand(p, v) }
    }
}

/// [`Dot::load_pairs`].
///
/// # Safety
/// `p` is valid for reads of 32 elements.
#[inline(always)]
pub(super) unsafe fn load_pairs(p: *const u16) -> Pairs {
    // SAFETY: the four loads are of 32 elements, which is what this function's contract says.
    let load = |q: usize| unsafe { vreinterpretq_u32_u16(vld1q_u16(p.add(2 * QUARTER * q))) };
    [load(0), load(1), load(2), load(3)]
}

/// [`Dot::store_operand`].
///
/// # Safety
/// `p` is valid for writes of sixteen elements.
#[inline(always)]
pub(super) unsafe fn store_operand(p: *mut u16, v: V) {
    // SAFETY: NEON is part of every aarch64; `p` is valid for sixteen elements, as this function's contract says.
    unsafe { Neon::store_bf16(p, each([0, 1, 2, 3], |q: usize| without_tiny(v[q]))) }
}

/// Tiny values as zero of their sign.
#[inline(always)]
fn without_tiny(v: float32x4_t) -> float32x4_t {
    // SAFETY: NEON is part of every aarch64.
    unsafe {
        let is_tiny = vcaltq_f32(v, vdupq_n_f32(f32::MIN_POSITIVE));
        let sign = vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(1 << 31));
        vbslq_f32(is_tiny, vreinterpretq_f32_u32(sign), v)
    }
}

/// The first values of four pairs.
#[inline(always)]
fn first(pairs: uint32x4_t) -> float32x4_t {
    // SAFETY: NEON is part of every aarch64.
    unsafe { vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs)) }
}

/// The second values of four pairs, which are upper halves of f32 already.
#[inline(always)]
fn second(pairs: uint32x4_t) -> float32x4_t {
    // SAFETY: NEON is part of every aarch64.
    unsafe { vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff_0000))) }
}

/// a · b + c; tiny results, which hardly ever come, are settled one by one.
#[inline(always)]
fn step(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    // SAFETY: NEON is part of every aarch64.
    unsafe {
        let sum = vfmaq_f32(c, a, b);
        // The smallest normal number itself may have been rounded up from a tiny one.
        let is_small = vcaleq_f32(sum, vdupq_n_f32(f32::MIN_POSITIVE));
        let is_tiny = vbicq_u32(is_small, vceqzq_f32(sum));
        match vmaxvq_u32(is_tiny) {
            0 => sum,
            _ => settle(a, b, c),
        }
    }
}

/// [`step`], lane by lane.
#[cold]
#[inline(never)]
fn settle(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    let lanes = |v: float32x4_t| {
        let mut lanes = [0.0f32; QUARTER];
        // SAFETY: the array has four elements.
        unsafe { vst1q_f32(lanes.as_mut_ptr(), v) };
        lanes
    };
    let (a, b, c) = (lanes(a), lanes(b), lanes(c));
    let sums: [f32; QUARTER] = each_index(|lane| exact::step(a[lane], b[lane], c[lane]));
    // SAFETY: the array has four elements.
    unsafe { vld1q_f32(sums.as_ptr()) }
}

/// [`Dot::call`].
///
/// # Safety
/// [`DotBody::run`]'s contract, for [`NeonDot`].
#[inline(never)]
unsafe fn call<B: DotBody>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<NeonDot>() }
}
