//! The instructions of Arm.
//!
//! `BFDOT` adds to each of four sums the products of a pair, `BFMMLA` to each of 2 × 2 those of two pairs, one pair after the other: the
//! bits are the same, and a register tile takes half the instructions. Its registers have two positions × two outputs, so its weights are
//! `[four inputs][16 outputs][4]`.

use plimsoll_parallel::pairs;
use std::arch::aarch64::*;
use std::arch::asm;

use super::neon::{self, Pairs};
use super::{Dot, DotBody, PAIR};
use crate::simd::{LANES, Neon, Products, Simd};

/// NEON with products of bf16.
#[derive(Clone, Copy)]
pub(crate) struct NeonBf16;

/// Registers of a vector.
const QUARTERS: usize = 4;
/// Inputs that are multiplied at once.
const FOUR: usize = 4;
/// Registers of two positions × sixteen outputs.
const SQUARES: usize = LANES / 2;

type V = [float32x4_t; QUARTERS];
/// The sums of a position and the next one, two outputs in each register: those of positions with an even number, and nothing of the
/// others.
type Squares = [float32x4_t; SQUARES];

// SAFETY (all blocks): the contracts of `Dot` say that the machine has FEAT_BF16, and NEON is part of every aarch64: these have all
// instructions used here. The contracts also say that pointers are valid for as many elements as the loads and stores touch. They take any
// alignment.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment for the whole impl")]
impl Dot for NeonBf16 {
    type S = Neon;
    type Pairs = Pairs;
    // 3 × 8 sums of pairs of positions, 3 registers of their inputs and 5 of weights are all 32 registers: as for f32, the tile with
    // the fewest loads. Arm's guide for Neoverse V2 gives the instruction a latency of six cycles, four between sums, in each of four units:
    // 24 sums are enough.
    const BLOCKS: usize = 1;
    const POSITIONS: usize = 6;
    type Sum = Squares;

    #[inline(always)]
    unsafe fn call<B: DotBody>(body: B) {
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn load_pairs(p: *const u16) -> Pairs {
        unsafe { neon::load_pairs(p) }
    }
    #[inline(always)]
    unsafe fn splat_pair(p: *const u16) -> Pairs {
        unsafe { [vdupq_n_u32(p.cast::<u32>().read_unaligned()); QUARTERS] }
    }
    #[inline(always)]
    unsafe fn dot(sum: V, a: Pairs, b: Pairs) -> V {
        let quarter = |q: usize| unsafe { dot(sum[q], a[q], b[q]) };
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }
    #[inline(always)]
    unsafe fn no_sum() -> Squares {
        unsafe { [vdupq_n_f32(0.0); SQUARES] }
    }
    #[inline(always)]
    unsafe fn add_products<const B: usize, const R: usize, const W: usize>(
        sums: &mut [[[Squares; W]; R]; B],
        of: &Products<u16>,
    ) {
        unsafe {
            // Four inputs of two positions are a register: with eight, the tile would spill.
            for first in (0..LANES).step_by(FOUR) {
                let mut x = [[vdupq_n_u16(0); W]; R];
                for i in (0..R * W).step_by(2) {
                    let load =
                        |i: usize| vld1_u16(of.source.add(i / W * of.source_row + i % W * LANES + first));
                    let one = load(i);
                    // A position without another has a product with itself that nothing reads.
                    x[i / W][i % W] = vcombine_u16(one, if i + 1 < R * W { load(i + 1) } else { one });
                }
                let weights = of.weights.add(first / PAIR * of.weight_step);
                add_square::<0, B, R, W>(sums, &x, weights, of.weight_block);
                add_square::<1, B, R, W>(sums, &x, weights, of.weight_block);
                add_square::<2, B, R, W>(sums, &x, weights, of.weight_block);
                add_square::<3, B, R, W>(sums, &x, weights, of.weight_block);
                add_square::<4, B, R, W>(sums, &x, weights, of.weight_block);
                add_square::<5, B, R, W>(sums, &x, weights, of.weight_block);
                add_square::<6, B, R, W>(sums, &x, weights, of.weight_block);
                add_square::<7, B, R, W>(sums, &x, weights, of.weight_block);
            }
        }
    }
    #[inline(always)]
    unsafe fn finish<const B: usize, const R: usize, const W: usize>(
        sums: [[[Squares; W]; R]; B],
    ) -> [[[V; W]; R]; B] {
        unsafe {
            let mut rows = [[[[vdupq_n_f32(0.0); QUARTERS]; W]; R]; B];
            for (rows, sums) in pairs(rows.iter_mut(), &sums) {
                for i in 0..R * W {
                    let squares = &sums[i / 2 * 2 / W][i / 2 * 2 % W];
                    for (q, quarter) in rows[i / W][i % W].iter_mut().enumerate() {
                        let wide = |square: usize| vreinterpretq_f64_f32(squares[square]);
                        let (low, high) = (wide(2 * q), wide(2 * q + 1));
                        let row =
                            if i.is_multiple_of(2) { vtrn1q_f64(low, high) } else { vtrn2q_f64(low, high) };
                        *quarter = vreinterpretq_f32_f64(row);
                    }
                }
            }
            rows
        }
    }
    #[inline(always)]
    unsafe fn store_weights(square: *mut u16, pair: usize, weights: [V; PAIR]) {
        // Every other pair of four inputs of an output, whose first two are there already for the second.
        let mut pairs = [0u16; LANES * PAIR];
        unsafe {
            Self::store_pairs(pairs.as_mut_ptr(), weights);
            let four = square.add(pair / 2 * FOUR * LANES).cast::<u32>();
            for q in 0..QUARTERS {
                let to = four.add(2 * q * QUARTERS);
                let new = vreinterpretq_u32_u16(vld1q_u16(pairs.as_ptr().add(2 * q * QUARTERS)));
                let both = if pair.is_multiple_of(2) {
                    uint32x4x2_t(new, new)
                } else {
                    uint32x4x2_t(vld2q_u32(to).0, new)
                };
                vst2q_u32(to, both);
            }
        }
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        unsafe { Neon::fma(a, b, c) }
    }
    #[inline(always)]
    unsafe fn store_operand(p: *mut u16, v: V) {
        unsafe { neon::store_operand(p, v) }
    }
    #[inline(always)]
    unsafe fn store_pairs(p: *mut u16, [first, second]: [V; PAIR]) {
        let mut halves = [[0u16; LANES]; PAIR];
        unsafe {
            neon::store_operand(halves[0].as_mut_ptr(), first);
            neon::store_operand(halves[1].as_mut_ptr(), second);
            for half in 0..2 {
                let of = |value: usize| vld1q_u16(halves[value].as_ptr().add(half * LANES / 2));
                vst2q_u16(p.add(half * LANES), uint16x8x2_t(of(0), of(1)));
            }
        }
    }
    #[inline(always)]
    unsafe fn copy_operands(to: *mut u16, from: *const u16) {
        // The instruction takes tiny operands for zero by itself.
        unsafe {
            vst1q_u16(to, vld1q_u16(from));
            vst1q_u16(to.add(LANES / 2), vld1q_u16(from.add(LANES / 2)));
        }
    }
}

/// Adds the products of four inputs of all positions with their weights to the `S`-th two outputs.
///
/// # Safety
/// The machine has FEAT_BF16. `weights` is valid for reads of 64 elements in each of `B` blocks, `block` elements apart.
#[inline(always)]
unsafe fn add_square<const S: usize, const B: usize, const R: usize, const W: usize>(
    sums: &mut [[[Squares; W]; R]; B],
    x: &[[uint16x8_t; W]; R],
    weights: *const u16,
    block: usize,
) {
    for (b, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the two outputs are among sixteen of one of `B` blocks; the machine has FEAT_BF16, as this function's contract says.
        unsafe {
            let w = vld1q_u16(weights.add(b * block + S * 2 * FOUR));
            for i in (0..R * W).step_by(2) {
                let (r, p) = (i / W, i % W);
                sums[r][p][S] = multiply(sums[r][p][S], x[r][p], w);
            }
        }
    }
}

/// sum + a · b of both values of each of four pairs.
///
/// # Safety
/// The machine has FEAT_BF16.
#[inline(always)]
unsafe fn dot(mut sum: float32x4_t, a: uint32x4_t, b: uint32x4_t) -> float32x4_t {
    // SAFETY: the machine has the instruction, as this function's contract says. It changes one register alone.
    unsafe {
        asm!(
            "bfdot {sum:v}.4s, {a:v}.8h, {b:v}.8h",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// The sums of two positions × two outputs and the products of four inputs: of each position in `x`, and to each output in `w`.
///
/// # Safety
/// The machine has FEAT_BF16.
#[inline(always)]
unsafe fn multiply(mut sums: float32x4_t, x: uint16x8_t, w: uint16x8_t) -> float32x4_t {
    // SAFETY: the machine has the instruction, as this function's contract says. It changes one register alone.
    unsafe {
        asm!(
            "bfmmla {sums:v}.4s, {x:v}.8h, {w:v}.8h",
            sums = inout(vreg) sums,
            x = in(vreg) x,
            w = in(vreg) w,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// [`Dot::call`].
///
/// # Safety
/// [`DotBody::run`]'s contract, for [`NeonBf16`].
#[target_feature(enable = "bf16")]
#[inline(never)]
unsafe fn call<B: DotBody>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<NeonBf16>() }
}
