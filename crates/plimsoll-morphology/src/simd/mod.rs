//! One body of a kernel, compiled for each instruction set, chosen when it runs.
//!
//! A kernel is written over [`Simd`], a block of [`LANES`] numbers with the few operations that are needed. AVX-512 has it as
//! two registers, AVX2 as four, and everything else as an array that the compiler makes of it what it can. All of them do the
//! same additions and comparisons on each lane in the same order, so they compute the same bits.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use portable::{Eight, Pair};

/// Lanes of a block.
pub(crate) const LANES: usize = 32;

/// The body of a kernel. `run` and all that it calls in its loops must be `#[inline(always)]`: what is not inlined is
/// compiled for the target's least instruction set.
pub(crate) trait Kernel {
    /// Runs the body with blocks of type `S`.
    fn run<S: Simd>(self);
}

/// Numbers side by side. Only [`Instructions::run`] names the types that implement this, when the machine is known to have
/// what they need.
pub(crate) trait Simd: Copy {
    /// Whole numbers side by side.
    type Index: Copy;
    /// How many.
    const WIDTH: usize;

    /// Whether each byte is not 0, as a bit; the first is the lowest.
    fn bits(bytes: &[u8; 64]) -> u64;
    /// How far each lane is from the other side of the nearest boundary, in lanes. Bit `i` of `boundaries` says that there is one
    /// between lanes `i − 1` and `i`; the last one before the block is `left` lanes before that of lane 0, the first one behind
    /// it is `right` lanes behind that of the lane that follows the last. These are infinite if there are none.
    fn distances(boundaries: u32, left: f32, right: f32) -> Self;
    /// `self` where the lane's bit is set, 0 elsewhere.
    fn only(self, bits: u32) -> Self;
    /// `self` where the lane's label is `label`, 0 elsewhere.
    fn only_equal(self, labels: &[u32], label: u32) -> Self;
    /// `−self` where the lane's bit is set, `self` elsewhere.
    fn negated(self, bits: u32) -> Self;
    /// The first [`Simd::WIDTH`] of `from`.
    fn load(from: &[f32]) -> Self;
    /// To the first of `to`.
    fn store(self, to: &mut [f32]);
    /// The same number in all lanes.
    fn splat(value: f32) -> Self;
    /// The same number in all lanes.
    fn index(value: u32) -> Self::Index;
    /// To the first of `to`.
    fn store_index(index: Self::Index, to: &mut [u32]);
    /// Lane by lane.
    fn plus(self, other: Self) -> Self;
    /// Lane by lane.
    fn times(self, other: Self) -> Self;
    /// The lesser of each lane; no lane is NaN.
    fn lesser(self, other: Self) -> Self;
    /// Lane by lane.
    fn root(self) -> Self;
    /// Where `self` is less than `lowest`: `lowest` becomes `self` and `at` becomes `index`.
    fn lower(self, index: u32, lowest: &mut Self, at: &mut Self::Index);
    /// The greater of each lane; no lane is NaN.
    fn greater(self, other: Self) -> Self;
    /// The greatest of all lanes, none of which is negative or NaN.
    fn greatest(self) -> f32;
    /// The lesser and the greater of each lane, as numbers with a sign.
    fn sort_index(index: Self::Index, other: Self::Index) -> (Self::Index, Self::Index);
    /// The least of all lanes of the one and the greatest of all lanes of the other, as numbers with a sign.
    fn range(low: Self::Index, high: Self::Index) -> (i32, i32);
}

/// The instructions that kernels are run with. There is one of these only where the machine has them.
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
    /// What this machine has, the widest first.
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

    /// The widest that this machine has.
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

/// Asks for `len` elements from `at`, if they exist, to be there when they are needed.
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
