//! One generic kernel body, compiled for each instruction set and dispatched at run time.
//!
//! A kernel is written over [`Simd`], a block of [`LANES`] numbers with the few operations that are needed. A block is
//! two registers with AVX-512, four with AVX2, eight with NEON, and otherwise an array that the compiler vectorises. All
//! perform the same operations on each lane in the same order, so their results are bitwise equal.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod vector;

pub(crate) use vector::{Kernel, LANES, Simd, Supported};

use plimsoll_parallel::Level;

use portable::{Eight, Pair};

/// The instruction set that kernels are run with. A value exists only if the machine supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instructions(Level);

impl Instructions {
    /// The instruction sets that this machine supports.
    #[cfg(test)]
    pub(crate) fn available() -> impl Iterator<Item = Instructions> {
        Level::available().map(Instructions)
    }

    /// The widest that this machine supports.
    pub(crate) fn widest() -> Instructions {
        Instructions(Level::detect())
    }

    /// Runs `kernel`.
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            // SAFETY: a level in `self` was detected, and has every feature that `with_avx512` enables.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { with_avx512(kernel) },
            // SAFETY: as above, for `with_avx2`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { with_avx2(kernel) },
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::NeonBf16 => {
                // SAFETY: NEON is part of every aarch64.
                kernel.run(unsafe { Supported::<Pair<Pair<neon::TwoQuads>>>::assert() });
            }
            // SAFETY: every machine has the instructions of portable code.
            _ => kernel.run(unsafe { Supported::<Pair<Pair<Eight>>>::assert() }),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
fn with_avx512<K: Kernel>(kernel: K) {
    // SAFETY: this function is called only where the machine has the features that it enables.
    kernel.run(unsafe { Supported::<Pair<avx512::Zmm>>::assert() });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<K: Kernel>(kernel: K) {
    // SAFETY: this function is called only where the machine has AVX2 and FMA, which it enables.
    kernel.run(unsafe { Supported::<Pair<Pair<avx2::Ymm>>>::assert() });
}
