//! Loops over numbers, compiled for each level.
#![allow(
    unsafe_code,
    reason = "functions compiled for instruction sets are called after the processor was asked"
)]

use crate::Level;

/// A loop over f32 that the compiler makes vectors of.
///
/// `run` must be marked `#[inline(always)]`, as must all that it calls in its loop: code that is not inlined is compiled for the
/// target's baseline.
pub trait Loop {
    /// The result.
    type Output;

    /// Runs the loop for vectors of `LANES` f32. The result must not depend on `LANES`.
    fn run<const LANES: usize>(self) -> Self::Output;
}

/// Runs a loop as compiled for the widest vectors of this processor.
#[inline(always)]
pub fn widest<L: Loop>(body: L) -> L::Output {
    match Level::detect() {
        // SAFETY: `detect` has asked the processor for every feature of the level.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { with_avx512(body) },
        // SAFETY: `detect` has asked the processor for AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { with_avx2(body) },
        // NEON, which is part of every aarch64, has four lanes.
        _ => body.run::<4>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
fn with_avx512<L: Loop>(body: L) -> L::Output {
    body.run::<16>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<L: Loop>(body: L) -> L::Output {
    body.run::<8>()
}
