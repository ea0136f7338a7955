//! Plain loops over sixteen lanes.

use plimsoll_parallel::each;

use super::{Dot, DotBody, PAIR, exact, sums_are_vectors};
use crate::simd::{Bf16, LANES, Portable, Simd};

/// Any machine.
#[derive(Clone, Copy)]
pub(crate) struct PortableDot;

type V = [f32; LANES];

// Every machine has this instruction set; all that functions ask for is that pointers are valid.
impl Dot for PortableDot {
    type S = Portable;
    type Pairs = [V; PAIR];
    const BLOCKS: usize = 1;
    const POSITIONS: usize = 2;

    sums_are_vectors!();

    #[inline(always)]
    unsafe fn call<B: DotBody>(body: B) {
        // SAFETY: `Dot::call` asks for what `call` does.
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn load_pairs(p: *const u16) -> [V; PAIR] {
        let mut pairs = [[0.0; LANES]; PAIR];
        for lane in 0..LANES {
            for (half, values) in pairs.iter_mut().enumerate() {
                // SAFETY: the place is below 32, and `Dot::load_pairs` asks for as many elements.
                values[lane] = Bf16(unsafe { p.add(lane * PAIR + half).read_unaligned() }).to_f32();
            }
        }
        pairs
    }
    #[inline(always)]
    unsafe fn splat_pair(p: *const u16) -> [V; PAIR] {
        // SAFETY: `Dot::splat_pair` asks for two elements.
        let [first, second] = unsafe { [p.read_unaligned(), p.add(1).read_unaligned()] };
        [[Bf16(first).to_f32(); LANES], [Bf16(second).to_f32(); LANES]]
    }
    #[inline(always)]
    unsafe fn dot(sum: V, a: [V; PAIR], b: [V; PAIR]) -> V {
        let mut sum = sum;
        for lane in 0..LANES {
            let odd = exact::step(a[1][lane], b[1][lane], sum[lane]);
            sum[lane] = exact::step(a[0][lane], b[0][lane], odd);
        }
        sum
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        let mut sum = c;
        for lane in 0..LANES {
            sum[lane] = a[lane].mul_add(b[lane], c[lane]);
        }
        sum
    }
    #[inline(always)]
    unsafe fn store_operand(p: *mut u16, v: V) {
        // SAFETY: `Dot::store_operand` asks for what `Simd::store_bf16` does.
        unsafe { Portable::store_bf16(p, each(v, exact::without_tiny)) }
    }
}

/// [`Dot::call`].
///
/// # Safety
/// [`DotBody::run`]'s contract, for [`PortableDot`].
#[inline(never)]
unsafe fn call<B: DotBody>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<PortableDot>() }
}
