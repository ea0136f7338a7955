//! The register tiles of a Winograd convolution: blocks of outputs × tiles, whose sums over a block of inputs stay in
//! registers.

use crate::simd::{Body, LANES, Products, Simd};

/// The products of one point of some tiles, to be summed over taps and the channels of a block.
///
/// A tile of W tiles and B output blocks reads `taps.len()` · 16 · B · 16 floats of `weights` and, from each tap's place in
/// `source` on, W · 16, and it writes W · 16 floats of `sums` for each output block.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    /// The places of the rows of taps in the patch, relative to the tiles.
    pub(super) taps: &'a [usize],
    pub(super) weights: *const f32,
    pub(super) source: *const f32,
    pub(super) sums: *mut f32,
    /// From one output block to the next.
    pub(super) sums_stride: usize,
    /// `true` if the sums are not yet written.
    pub(super) first: bool,
}

impl Product<'_> {
    /// Chooses the compiled tile.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; what [`Product`] says is valid for `width` tiles and `B` blocks.
    #[inline(always)]
    pub(super) unsafe fn choose<S: Simd, const B: usize>(self, width: usize) {
        macro_rules! choose {
            ($($w:literal),*) => {
                match width {
                    $($w => {
                        // Known when compiling, so that tiles too large for the registers are not compiled.
                        if const { $w <= S::TILE_POSITIONS && B <= S::TILE_BLOCKS } {
                            // SAFETY: what the tile reads and writes is valid by this function's contract.
                            unsafe { S::call(Sum::<B, $w>(self)) }
                        }
                    })*
                    // Rows are divided into these widths only.
                    _ => unreachable!("no register tile of {width}"),
                }
            };
        }
        choose!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
    }
}

/// A register tile of `B` blocks of outputs and `W` tiles. To run it asks for what [`Product`] says.
struct Sum<'a, const B: usize, const W: usize>(Product<'a>);

impl<const B: usize, const W: usize> Body for Sum<'_, B, W> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Product { taps, mut weights, source, sums, sums_stride, first } = self.0;
        // SAFETY: weights are read in order, B · 16 floats for each of sixteen lanes of each tap; the rest is within W
        // tiles of a tap's source and of a block's sums, which are valid as whoever runs this body answers for.
        unsafe {
            let mut held = [[[S::zero(); W]]; B];
            for tap in taps {
                let source = source.add(*tap);
                let of =
                    Products { weights, weight_step: B * LANES, weight_block: LANES, source, source_row: 0 };
                S::add_products(&mut held, &of);
                weights = weights.add(LANES * B * LANES);
            }
            for (b, [held]) in held.iter().enumerate() {
                for (p, held) in held.iter().enumerate() {
                    let sum = sums.add(b * sums_stride + p * LANES);
                    S::store(sum, if first { *held } else { S::add(S::load(sum), *held) });
                }
            }
        }
    }
}
