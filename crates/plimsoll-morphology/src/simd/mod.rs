//! One generic kernel body, compiled for each instruction set and dispatched at run time.
//!
//! A kernel is written over [`Simd`], a block of [`LANES`] numbers with the few operations that are needed. A block is
//! two registers with AVX-512, four with AVX2, and otherwise an array that the compiler vectorises. All perform the
//! same operations on each lane in the same order, so their results are bitwise equal.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
mod vector;

pub(crate) use vector::{Kernel, LANES, Simd};

use portable::{Eight, Pair};

/// The instruction set that kernels are run with. A value exists only if the machine supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instructions(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Instructions {
    /// The instruction sets that this machine supports, the widest first.
    pub(crate) fn all() -> impl Iterator<Item = Instructions> {
        [
            #[cfg(target_arch = "x86_64")]
            (
                Set::Avx512,
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512cd")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl"),
            ),
            #[cfg(target_arch = "x86_64")]
            (Set::Avx2, is_x86_feature_detected!("avx2")),
            (Set::Portable, true),
        ]
        .into_iter()
        .filter(|(_, here)| *here)
        .map(|(set, _)| Instructions(set))
    }

    /// The widest that this machine supports.
    pub(crate) fn widest() -> Instructions {
        Instructions::all().next().unwrap_or(Instructions(Set::Portable))
    }

    /// Runs `kernel`.
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            // SAFETY: `all` has asked the machine for every feature that `with_avx512` enables.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { with_avx512(kernel) },
            // SAFETY: as above, for `with_avx2`.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { with_avx2(kernel) },
            Set::Portable => kernel.run::<Pair<Pair<Eight>>>(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn with_avx512<K: Kernel>(kernel: K) {
    kernel.run::<Pair<avx512::Zmm>>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<K: Kernel>(kernel: K) {
    kernel.run::<Pair<Pair<avx2::Ymm>>>();
}

/// Prefetches `len` elements from `at`, if they exist.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: *const [T], at: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if at < slice.len() {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = slice.cast::<T>().wrapping_add(at).cast::<i8>();
        for line in (0..len * size_of::<T>()).step_by(64) {
            // SAFETY: a prefetch reads nothing, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line)) }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at, len);
}
