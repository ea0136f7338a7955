//! Plain loops over sixteen lanes.

use plimsoll_parallel::{each, pairs};

use super::{Bf16, Body, LANES, Simd};

#[derive(Clone, Copy)]
pub(crate) struct Portable;

type V = [f32; LANES];

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    let mut r = a;
    for (r, b) in pairs(r.iter_mut(), b) {
        *r = f(*r, b);
    }
    r
}

// Every machine has this instruction set; all that functions ask for is that pointers are valid.
impl Simd for Portable {
    type V = V;
    const TILE_BLOCKS: usize = 1;
    const TILE_POSITIONS: usize = 2;
    const TILE_INPUTS: usize = 2;
    const GRAD_BLOCKS: usize = 2;
    const GRAD_INPUTS: usize = 2;

    #[inline(always)]
    unsafe fn call<B: Body>(body: B) {
        // SAFETY: `Simd::call` asks for what `call` does.
        unsafe { call(body) }
    }
    #[inline(always)]
    unsafe fn zero() -> V {
        [0.0; LANES]
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> V {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> V {
        // SAFETY: `Simd::load` asks for sixteen elements, which are the size of `V`.
        unsafe { p.cast::<V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: V) {
        // SAFETY: `Simd::store` asks for sixteen elements, which are the size of `V`.
        unsafe { p.cast::<V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        zip(zip(a, b, |a, b| a * b), c, |ab, c| ab + c)
    }
    #[inline(always)]
    unsafe fn add(a: V, b: V) -> V {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: V, b: V) -> V {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: V, b: V) -> V {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn where_positive(x: V, a: V, b: V) -> V {
        let mut r = b;
        for ((r, a), x) in pairs(pairs(r.iter_mut(), a), x) {
            if x > 0.0 {
                *r = a;
            }
        }
        r
    }
    #[inline(always)]
    unsafe fn pick(v: V, from: &[i32; LANES]) -> V {
        each(*from, |lane| v[lane as usize])
    }
    #[inline(always)]
    unsafe fn where_less(x: V, y: V, a: V, b: V) -> V {
        let mut r = b;
        for ((r, a), (x, y)) in pairs(pairs(r.iter_mut(), a), pairs(x, y)) {
            if x < y {
                *r = a;
            }
        }
        r
    }
    #[inline(always)]
    unsafe fn max(a: V, b: V) -> V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: V, b: V) -> V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> V {
        let mut r = [0.0; LANES];
        for (i, r) in r.iter_mut().enumerate() {
            // SAFETY: `i < 16`, and `Simd::load_bf16` asks for sixteen elements.
            *r = Bf16(unsafe { p.add(i).read_unaligned() }).to_f32();
        }
        r
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: V) {
        for (i, v) in v.into_iter().enumerate() {
            // SAFETY: `i < 16`, and `Simd::store_bf16` asks for sixteen elements.
            unsafe { p.add(i).write_unaligned(Bf16::from_f32(v).0) };
        }
    }
}

/// [`Simd::call`].
///
/// # Safety
/// [`Body::run`]'s contract, for [`Portable`].
#[inline(never)]
unsafe fn call<B: Body>(body: B) {
    // SAFETY: this function's contract includes the contract of the call.
    unsafe { body.run::<Portable>() }
}
