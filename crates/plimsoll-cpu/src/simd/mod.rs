//! Sixteen f32 lanes, on whatever the machine has.
//!
//! Kernels are written once, over this trait, and compiled for each level; which one runs is decided when the program
//! starts. A vector is always sixteen lanes wide, one block of channels: one register with AVX-512, two with AVX2.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod dot;
mod element;
pub(crate) mod exp;
pub(crate) mod normal;
mod portable;

pub(crate) use element::{Bf16, Element};

use std::fmt;

/// Lanes of a vector, and channels of a block.
pub(crate) const LANES: usize = 16;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain loops, which the compiler vectorises as it can.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with AVX2 and FMA.
    Avx512,
}

impl Level {
    /// The best level that this machine has.
    pub fn detect() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
            {
                return Level::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Level::Avx2;
            }
        }
        Level::Portable
    }

    /// The best level of this machine, or the lower one that the environment variable [`Level::VARIABLE`] names.
    pub fn from_environment() -> Level {
        let best = Level::detect();
        let asked = std::env::var(Level::VARIABLE).ok().and_then(|name| Level::from_name(&name));
        asked.map_or(best, |asked| asked.min(best))
    }

    /// The environment variable that names a level.
    pub const VARIABLE: &str = "PLIMSOLL_SIMD";

    /// The level of a name: `avx512`, `avx2` or `portable`.
    pub fn from_name(name: &str) -> Option<Level> {
        [Level::Portable, Level::Avx2, Level::Avx512].into_iter().find(|level| level.name() == name)
    }

    /// Whether this machine has, at this level, an instruction for dot products of bf16; without it they take several steps of f32.
    pub fn multiplies_bf16(self) -> bool {
        dot::DotLevel::of(self.min(Level::detect())).is_native()
    }

    fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Asks the processor to bring some elements into its caches while it goes on. Nothing is read: what is there or whether
/// anything is there makes no difference but for time.
#[inline(always)]
pub(crate) fn fetch<T>(from: *const T, count: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..count * size_of::<T>()).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every processor of this kind has the instruction, which takes any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_byte_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, count);
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Something to be run with an instruction set.
pub(crate) trait Body {
    /// Runs it.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`, and what the body's type asks for in its documentation holds.
    unsafe fn run<S: Simd>(self);
}

/// Sixteen lanes of f32 and what kernels do with them.
///
/// Every function may be called only where the machine has the instruction set of `Self`, which
/// [`Machine::launch`](crate::kernel::Machine::launch) sees to for whole kernels. Pointers need no alignment.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen lanes.
    type V: Copy;
    /// The register tile of a convolution: how many blocks of sixteen outputs.
    const TILE_BLOCKS: usize;
    /// The register tile of a convolution: how many positions.
    const TILE_POSITIONS: usize;
    /// The register tile of a weight gradient: how many inputs.
    const TILE_INPUTS: usize;

    /// Runs a body as a function of its own, compiled for this instruction set: for bodies that are too large to be
    /// inlined into one another by the dozen.
    ///
    /// # Safety
    /// [`Body::run`]'s contract, for this instruction set.
    unsafe fn call<B: Body>(body: B);

    /// All lanes zero.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn zero() -> Self::V;
    /// All lanes x.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn splat(x: f32) -> Self::V;
    /// Reads sixteen elements.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for reads of sixteen elements.
    unsafe fn load(p: *const f32) -> Self::V;
    /// Writes sixteen elements.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for writes of sixteen elements.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// a · b + c, rounded once where the machine can.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// a + b
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// a − b
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// a · b
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// Lane by lane, `a` where x > 0, else `b`.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn where_positive(x: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// Lane i of the result is lane `from[i]` of v, which must be below sixteen and in the same half as i.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn pick(v: Self::V, from: &[i32; LANES]) -> Self::V;
    /// Lane by lane, `a` where x < y, else `b`.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn where_less(x: Self::V, y: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// Lane by lane, the larger.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// Lane by lane, the smaller.
    ///
    /// # Safety
    /// The machine has the instruction set.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// Widens sixteen bf16.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for reads of sixteen elements.
    unsafe fn load_bf16(p: *const u16) -> Self::V;
    /// Rounds to the nearest bf16, ties to even.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for writes of sixteen elements.
    unsafe fn store_bf16(p: *mut u16, v: Self::V);

    /// The leaky ReLU.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    unsafe fn leaky(x: Self::V, slope: Self::V) -> Self::V {
        // SAFETY: the machine has the instruction set, as this function's contract says.
        unsafe { Self::where_positive(x, x, Self::mul(x, slope)) }
    }

    /// The first `count` of at most sixteen elements, then zeroes.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for reads of `count` elements, or sixteen if that is less.
    #[inline(always)]
    unsafe fn load_first(p: *const f32, count: usize) -> Self::V {
        // SAFETY: `p` is read for sixteen elements only if `count` is not less, else for `count`; the array has sixteen.
        unsafe {
            if count >= LANES {
                return Self::load(p);
            }
            let mut lanes = [0.0; LANES];
            std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), count);
            Self::load(lanes.as_ptr())
        }
    }

    /// Stores the first `count` of sixteen lanes.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for writes of `count` elements, or sixteen if that is less.
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, v: Self::V, count: usize) {
        // SAFETY: `p` is written for sixteen elements only if `count` is not less, else for `count`; the array has sixteen.
        unsafe {
            if count >= LANES {
                return Self::store(p, v);
            }
            std::ptr::copy_nonoverlapping(Self::to_array(v).as_ptr(), p, count);
        }
    }

    /// Lane j of the i-th result is lane i of the j-th vector. Bits are moved, whatever they mean.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    unsafe fn transpose(rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let mut columns = [[0.0; LANES]; LANES];
        // SAFETY: each column has sixteen elements; the machine has the instruction set, as this function's contract says.
        unsafe {
            for (j, row) in rows.into_iter().enumerate() {
                let lanes = Self::to_array(row);
                for (column, lane) in columns.iter_mut().zip(lanes) {
                    column[j] = lane;
                }
            }
            let mut result = rows;
            for (result, column) in result.iter_mut().zip(&columns) {
                *result = Self::load(column.as_ptr());
            }
            result
        }
    }

    /// The lanes, in order.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    unsafe fn to_array(v: Self::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: the array has sixteen elements; the machine has the instruction set, as this function's contract says.
        unsafe { Self::store(lanes.as_mut_ptr(), v) };
        lanes
    }
}

pub(crate) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use {avx2::Avx2, avx512::Avx512};
