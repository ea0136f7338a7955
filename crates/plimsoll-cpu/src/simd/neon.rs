//! Four 128-bit registers.

use plimsoll_parallel::{each, pairs};
use std::arch::aarch64::*;
use std::sync::atomic::{Ordering, compiler_fence};

use super::{Body, LANES, Products, Simd};

#[derive(Clone, Copy)]
pub(crate) struct Neon;

/// Registers of a vector.
const QUARTERS: usize = 4;
/// Lanes of a register.
const LANES_OF_QUARTER: usize = LANES / QUARTERS;

type V = [float32x4_t; QUARTERS];

/// Applies a function of registers quarter by quarter.
macro_rules! quarters {
    (|$($v:ident),+| $of:expr) => {{
        let quarter = |q: usize| {
            $(let $v = $v[q];)+
            $of
        };
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }};
}

// SAFETY (all blocks): NEON is part of every aarch64, and it has all intrinsics used here. The contracts of `Simd` say that pointers are
// valid for sixteen elements, or as many as a function says, which is what the loads and stores touch. They take any alignment.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment for the whole impl")]
impl Simd for Neon {
    type V = V;
    // 6 × 4 sums, 6 registers of inputs and 2 of weights are all 32 registers. Of the tiles that fit, this one has the fewest loads to a
    // multiply-add: for each input two loads of two registers of weights, and 6/4 of inputs, to 24 multiply-adds. 24 sums also hide
    // their latency, four cycles in each of the four units of Neoverse V2 (Arm's Software Optimization Guide, as in LLVM's
    // AArch64SchedNeoverseV2.td), and four cycles on Apple's M1 (D. Johnson's measurements). A block of inputs reads 1 KiB of weights for
    // each tap and 384 bytes of inputs, which stay in a first-level cache of 64 KiB, as Neoverse N1 and V2 have; Apple's is larger.
    const TILE_BLOCKS: usize = 1;
    const TILE_POSITIONS: usize = 6;
    // 4 × 4 sums, 4 gradients and a register of four inputs.
    const TILE_INPUTS: usize = 4;
    // 6 × 4 sums, 4 gradients and 1 input.
    const GRAD_BLOCKS: usize = 1;
    const GRAD_INPUTS: usize = 6;
    // Loads that fill a register with one number do not take the units that permute.
    const READS_HALVES: bool = true;

    #[inline(always)]
    unsafe fn call<B: Body>(body: B) {
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn zero() -> V {
        unsafe { [vdupq_n_f32(0.0); QUARTERS] }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> V {
        unsafe { [vdupq_n_f32(x); QUARTERS] }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> V {
        unsafe { [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))] }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: V) {
        unsafe {
            for (q, quarter) in v.into_iter().enumerate() {
                vst1q_f32(p.add(q * LANES_OF_QUARTER), quarter);
            }
        }
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        unsafe { quarters!(|a, b, c| vfmaq_f32(c, a, b)) }
    }
    #[inline(always)]
    unsafe fn add(a: V, b: V) -> V {
        unsafe { quarters!(|a, b| vaddq_f32(a, b)) }
    }
    #[inline(always)]
    unsafe fn sub(a: V, b: V) -> V {
        unsafe { quarters!(|a, b| vsubq_f32(a, b)) }
    }
    #[inline(always)]
    unsafe fn mul(a: V, b: V) -> V {
        unsafe { quarters!(|a, b| vmulq_f32(a, b)) }
    }
    #[inline(always)]
    unsafe fn where_positive(x: V, a: V, b: V) -> V {
        unsafe { quarters!(|x, a, b| vbslq_f32(vcgtzq_f32(x), a, b)) }
    }
    #[inline(always)]
    unsafe fn pick(v: V, from: &[i32; LANES]) -> V {
        unsafe {
            let bytes = |q: usize| vreinterpretq_u8_f32(v[q]);
            let halves = [uint8x16x2_t(bytes(0), bytes(1)), uint8x16x2_t(bytes(2), bytes(3))];
            let pick = |q: usize| {
                // Within a half are eight lanes: the low three bits of a lane.
                vreinterpretq_f32_u8(vqtbl2q_u8(halves[q / 2], bytes_of_lanes(from, q, 7)))
            };
            [pick(0), pick(1), pick(2), pick(3)]
        }
    }
    #[inline(always)]
    unsafe fn pick_in_quarters(v: V, from: &[i32; LANES]) -> V {
        unsafe {
            let pick = |q: usize| {
                let bytes = vreinterpretq_u8_f32(v[q]);
                vreinterpretq_f32_u8(vqtbl1q_u8(bytes, bytes_of_lanes(from, q, 3)))
            };
            [pick(0), pick(1), pick(2), pick(3)]
        }
    }
    #[inline(always)]
    unsafe fn halves(p: *const f32) -> V {
        unsafe {
            let (low, high) = (vld1q_dup_f32(p), vld1q_dup_f32(p.add(LANES / 2)));
            [low, low, high, high]
        }
    }
    #[inline(always)]
    unsafe fn where_less(x: V, y: V, a: V, b: V) -> V {
        unsafe { quarters!(|x, y, a, b| vbslq_f32(vcltq_f32(x, y), a, b)) }
    }
    // The instructions for the larger and the smaller treat NaN and zeros of either sign in a way of their own.
    #[inline(always)]
    unsafe fn max(a: V, b: V) -> V {
        unsafe { quarters!(|a, b| vbslq_f32(vcgtq_f32(a, b), a, b)) }
    }
    #[inline(always)]
    unsafe fn min(a: V, b: V) -> V {
        unsafe { quarters!(|a, b| vbslq_f32(vcltq_f32(a, b), a, b)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> V {
        unsafe {
            let (low, high) = (vld1q_u16(p), vld1q_u16(p.add(LANES / 2)));
            [
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(low))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(low)),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(high))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(high)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: V) {
        unsafe {
            let rounded = quarters!(|v| to_bf16(v));
            for half in 0..2 {
                let low = vshrn_n_u32::<16>(rounded[2 * half]);
                vst1q_u16(p.add(half * LANES / 2), vshrn_high_n_u32::<16>(low, rounded[2 * half + 1]));
            }
        }
    }
    #[inline(always)]
    unsafe fn transpose(rows: [V; LANES]) -> [V; LANES] {
        let mut columns = rows;
        for i in 0..QUARTERS {
            for j in 0..QUARTERS {
                let square: [float32x4_t; LANES_OF_QUARTER] =
                    each([0, 1, 2, 3], |row| rows[LANES_OF_QUARTER * i + row][j]);
                let square = unsafe { transpose_square(square) };
                for (column, quarter) in square.into_iter().enumerate() {
                    columns[LANES_OF_QUARTER * j + column][i] = quarter;
                }
            }
        }
        columns
    }
    // A register holds four inputs of a position, and the multiply-add takes any of its lanes.
    #[inline(always)]
    unsafe fn add_products<const B: usize, const R: usize, const W: usize>(
        sums: &mut [[[V; W]; R]; B],
        of: &Products<f32>,
    ) {
        unsafe {
            add_four::<0, B, R, W>(sums, of);
            add_four::<1, B, R, W>(sums, of);
            add_four::<2, B, R, W>(sums, of);
            add_four::<3, B, R, W>(sums, of);
        }
    }
    #[inline(always)]
    unsafe fn add_outer<const B: usize, const I: usize>(sums: &mut [[V; I]; B], g: &[V; B], x: *const f32) {
        unsafe {
            for first in (0..I).step_by(LANES_OF_QUARTER) {
                let x = vld1q_f32(x.add(first));
                for (sums, g) in pairs(sums.iter_mut(), g) {
                    for q in 0..QUARTERS {
                        sums[first][q] = vfmaq_laneq_f32::<0>(sums[first][q], g[q], x);
                        sums[first + 1][q] = vfmaq_laneq_f32::<1>(sums[first + 1][q], g[q], x);
                        sums[first + 2][q] = vfmaq_laneq_f32::<2>(sums[first + 2][q], g[q], x);
                        sums[first + 3][q] = vfmaq_laneq_f32::<3>(sums[first + 3][q], g[q], x);
                    }
                }
            }
        }
    }
}

/// Adds the products of four inputs, number `Q` of the sixteen's fours.
///
/// # Safety
/// Weights and channels must be valid for reads as [`Products`] describes them.
#[inline(always)]
unsafe fn add_four<const Q: usize, const B: usize, const R: usize, const W: usize>(
    sums: &mut [[[V; W]; R]; B],
    of: &Products<f32>,
) {
    // SAFETY: four inputs of each position and their weights are among those that `Products` is valid for, as this function's contract
    // says.
    unsafe {
        let mut x = [[vdupq_n_f32(0.0); W]; R];
        for (r, x) in x.iter_mut().enumerate() {
            for (p, x) in x.iter_mut().enumerate() {
                *x = vld1q_f32(of.source.add(r * of.source_row + p * LANES + Q * LANES_OF_QUARTER));
            }
        }
        let weights = of.weights.add(Q * LANES_OF_QUARTER * of.weight_step);
        add_lane::<0, B, R, W>(sums, &x, weights, of.weight_block);
        add_lane::<1, B, R, W>(sums, &x, weights.add(of.weight_step), of.weight_block);
        add_lane::<2, B, R, W>(sums, &x, weights.add(2 * of.weight_step), of.weight_block);
        add_lane::<3, B, R, W>(sums, &x, weights.add(3 * of.weight_step), of.weight_block);
    }
    // Without it the compiler loads eight inputs of a position at once, and spills sums for them.
    compiler_fence(Ordering::SeqCst);
}

/// Adds the products of lane `L` of the inputs with their weights, two registers of which are loaded at a time.
///
/// # Safety
/// `weights` is valid for reads of sixteen floats in each of `B` blocks, `block` floats apart.
#[inline(always)]
unsafe fn add_lane<const L: i32, const B: usize, const R: usize, const W: usize>(
    sums: &mut [[[V; W]; R]; B],
    x: &[[float32x4_t; W]; R],
    weights: *const f32,
    block: usize,
) {
    for (b, sums) in sums.iter_mut().enumerate() {
        for half in 0..2 {
            for q in [2 * half, 2 * half + 1] {
                // SAFETY: the quarter is among sixteen floats of one of `B` blocks, as this function's contract says.
                let w = unsafe { vld1q_f32(weights.add(b * block + q * LANES_OF_QUARTER)) };
                for r in 0..R {
                    for p in 0..W {
                        // SAFETY: NEON is part of every aarch64.
                        sums[r][p][q] = unsafe { vfmaq_laneq_f32::<L>(sums[r][p][q], w, x[r][p]) };
                    }
                }
            }
        }
    }
}

/// The places, in bytes, of four lanes of a table of registers.
///
/// # Safety
/// `q` is below four.
#[inline(always)]
unsafe fn bytes_of_lanes(from: &[i32; LANES], q: usize, mask: u32) -> uint8x16_t {
    // SAFETY: the quarter is within the sixteen lanes; NEON is part of every aarch64.
    unsafe {
        let lanes = vreinterpretq_u32_s32(vld1q_s32(from.as_ptr().add(q * LANES_OF_QUARTER)));
        let lanes = vandq_u32(lanes, vdupq_n_u32(mask));
        // Lane l is the bytes 4 l to 4 l + 3.
        let first = vmulq_n_u32(lanes, 0x0404_0404);
        vreinterpretq_u8_u32(vaddq_u32(first, vdupq_n_u32(0x0302_0100)))
    }
}

/// Four rows of four as columns.
///
/// # Safety
/// NEON is part of every aarch64.
#[inline(always)]
unsafe fn transpose_square([a, b, c, d]: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: NEON is part of every aarch64.
    unsafe {
        let wide = |v| vreinterpretq_f64_f32(v);
        let narrow = |v| vreinterpretq_f32_f64(v);
        let (even, odd) = (wide(vtrn1q_f32(a, b)), wide(vtrn2q_f32(a, b)));
        let (lower_even, lower_odd) = (wide(vtrn1q_f32(c, d)), wide(vtrn2q_f32(c, d)));
        [
            narrow(vtrn1q_f64(even, lower_even)),
            narrow(vtrn1q_f64(odd, lower_odd)),
            narrow(vtrn2q_f64(even, lower_even)),
            narrow(vtrn2q_f64(odd, lower_odd)),
        ]
    }
}

/// Four numbers rounded to the nearest bf16, ties to even, in the upper halves.
///
/// # Safety
/// NEON is part of every aarch64.
#[inline(always)]
unsafe fn to_bf16(v: float32x4_t) -> uint32x4_t {
    // SAFETY: NEON is part of every aarch64.
    unsafe {
        let bits = vreinterpretq_u32_f32(v);
        let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
        // A NaN must not be rounded up into an infinity or a zero.
        let quiet = vorrq_u32(bits, vdupq_n_u32(0x0040_0000));
        vbslq_u32(vceqq_f32(v, v), rounded, quiet)
    }
}

/// [`Simd::call`].
///
/// # Safety
/// [`Body::run`]'s contract, for [`Neon`].
#[inline(never)]
unsafe fn call<B: Body>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<Neon>() }
}
