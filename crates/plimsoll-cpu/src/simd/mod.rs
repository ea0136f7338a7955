//! Sixteen f32 lanes, on whatever the machine has.
//!
//! Kernels are written once, over this trait, and compiled for each level; which one runs is decided when the program
//! starts. A vector is always sixteen lanes wide, one block of channels: one register with AVX-512, two with AVX2, four with NEON.

use plimsoll_parallel::pairs;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod dot;
mod element;
pub(crate) mod exp;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod normal;
mod portable;

pub(crate) use element::{Bf16, Element};

/// Lanes of a vector, and channels of a block.
pub(crate) const LANES: usize = 16;

/// The operands of a register tile of a convolution: sixteen channels of some positions, and their weights to some blocks of outputs.
///
/// A tile of B blocks × R rows × W positions reads `LANES` elements (or pairs, of bf16) of the source for each position, and for each
/// of them a vector of weights in each block.
#[derive(Clone, Copy)]
pub(crate) struct Products<T> {
    /// The weights of the first input to the first block of outputs.
    pub(crate) weights: *const T,
    /// Elements from the weights of one input, or pair, to the weights of the next, and from one block of outputs to the next.
    pub(crate) weight_step: usize,
    pub(crate) weight_block: usize,
    /// The first position's channels. The next position's follow.
    pub(crate) source: *const T,
    /// Elements from one row of positions to the next.
    pub(crate) source_row: usize,
}

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
    /// Blocks of sixteen outputs in the register tile of a weight gradient by direct sums: 1 or 2.
    const GRAD_BLOCKS: usize;
    /// Inputs in the register tile of a weight gradient by direct sums: 2, 4, 6 or 8.
    const GRAD_INPUTS: usize;

    /// `true` if [`Simd::halves`] is faster than [`Simd::pick`] of loaded lanes.
    const READS_HALVES: bool = false;

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
    /// [`Simd::pick`] where each `from[i]` is in the same quarter as i.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    unsafe fn pick_in_quarters(v: Self::V, from: &[i32; LANES]) -> Self::V {
        // SAFETY: this function's contract includes the contract of the call.
        unsafe { Self::pick(v, from) }
    }
    /// The element at `p` in the first eight lanes, and the eighth behind it in the others.
    ///
    /// # Safety
    /// The machine has the instruction set; `p` is valid for reads of nine elements.
    #[inline(always)]
    unsafe fn halves(p: *const f32) -> Self::V {
        // SAFETY: `p` has nine elements, as this function's contract says, and the array has sixteen.
        unsafe {
            let mut lanes = [*p; LANES];
            lanes[LANES / 2..].fill(*p.add(LANES / 2));
            Self::load(lanes.as_ptr())
        }
    }
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
                for (column, lane) in pairs(columns.iter_mut(), lanes) {
                    column[j] = lane;
                }
            }
            let mut result = rows;
            for (result, column) in pairs(result.iter_mut(), &columns) {
                *result = Self::load(column.as_ptr());
            }
            result
        }
    }

    /// Adds the products of sixteen inputs of each position, one input after the other, to the sums of a register tile.
    ///
    /// # Safety
    /// The machine has the instruction set; what [`Products`] says is valid for reads.
    #[inline(always)]
    unsafe fn add_products<const B: usize, const R: usize, const W: usize>(
        sums: &mut [[[Self::V; W]; R]; B],
        of: &Products<f32>,
    ) {
        for input in 0..LANES {
            // SAFETY: inputs, blocks, rows and positions are below those that `Products` is valid for, as this function's contract says.
            unsafe {
                let mut w = [Self::zero(); B];
                for (b, w) in w.iter_mut().enumerate() {
                    *w = Self::load(of.weights.add(b * of.weight_block + input * of.weight_step));
                }
                for r in 0..R {
                    for p in 0..W {
                        let x = Self::splat(*of.source.add(r * of.source_row + p * LANES + input));
                        for b in 0..B {
                            sums[b][r][p] = Self::fma(w[b], x, sums[b][r][p]);
                        }
                    }
                }
            }
        }
    }

    /// Adds the products of `I` inputs with the gradients of `B` blocks of outputs to sums.
    ///
    /// # Safety
    /// The machine has the instruction set; `x` is valid for reads of `I` elements.
    #[inline(always)]
    unsafe fn add_outer<const B: usize, const I: usize>(
        sums: &mut [[Self::V; I]; B],
        g: &[Self::V; B],
        x: *const f32,
    ) {
        for i in 0..I {
            // SAFETY: `i < I`, and the machine has the instruction set, as this function's contract says.
            unsafe {
                let x = Self::splat(*x.add(i));
                for b in 0..B {
                    sums[b][i] = Self::fma(g[b], x, sums[b][i]);
                }
            }
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

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use {avx2::Avx2, avx512::Avx512};

#[cfg(test)]
mod tests;
