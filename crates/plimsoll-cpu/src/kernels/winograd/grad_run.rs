//! The register tiles of a Winograd weight gradient: blocks of gradients × lanes of the source, summed over a run of tiles.

use crate::simd::{Body, LANES, Simd};

/// A run of tiles of one point, as the innermost loop sees it.
///
/// A register tile of B blocks and I lanes reads I floats of `source` and sixteen of each block's `gradient` for each tile,
/// sixteen floats apart, and adds to I · 16 floats of each block's `sums`.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) source: *const f32,
    pub(super) gradient: *const f32,
    /// From one output block to the next.
    pub(super) gradient_stride: usize,
    pub(super) sums: *mut f32,
    /// From one output block to the next.
    pub(super) sums_stride: usize,
    pub(super) tiles: usize,
}

impl Run {
    /// [`Run::accumulate`] with as many lanes as a register tile of this instruction set has.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; what [`Run`] says is valid for [`Simd::TILE_INPUTS`] lanes.
    #[inline(always)]
    pub(super) unsafe fn accumulate_tile<S: Simd, const B: usize>(self) {
        // SAFETY: this function's contract includes the contract of the calls.
        unsafe {
            match S::TILE_INPUTS {
                8 => self.accumulate::<S, B, 8>(),
                4 => self.accumulate::<S, B, 4>(),
                _ => self.accumulate::<S, B, 2>(),
            }
        }
    }

    /// Adds the products of `I` lanes of the source with `B` blocks of gradients over all tiles of the run.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; what [`Run`] says is valid.
    #[inline(always)]
    unsafe fn accumulate<S: Simd, const B: usize, const I: usize>(self) {
        // Tiles that the registers cannot hold are not asked for, and so not compiled.
        if const { I <= S::TILE_INPUTS } {
            // SAFETY: what the tile reads and writes is valid by this function's contract.
            unsafe { S::call(Sum::<B, I>(self)) }
        }
    }
}

/// A register tile of `B` blocks of gradients and `I` lanes of the source. To run it asks for what [`Run`] says.
struct Sum<const B: usize, const I: usize>(Run);

impl<const B: usize, const I: usize> Body for Sum<B, I> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let run = self.0;
        // SAFETY: `tile`, `b` and `i` are below what `Run` says is valid, as whoever runs this body answers for.
        unsafe {
            let mut held = [[S::zero(); I]; B];
            for tile in 0..run.tiles {
                let mut g = [S::zero(); B];
                for (b, g) in g.iter_mut().enumerate() {
                    *g = S::load(run.gradient.add(b * run.gradient_stride + tile * LANES));
                }
                S::add_outer(&mut held, &g, run.source.add(tile * LANES));
            }
            for (b, held) in held.iter().enumerate() {
                for (i, held) in held.iter().enumerate() {
                    let sum = run.sums.add(b * run.sums_stride + i * LANES);
                    S::store(sum, S::add(S::load(sum), *held));
                }
            }
        }
    }
}
