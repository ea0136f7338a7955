//! The register tiles of direct kernels: blocks of outputs × rows × columns, whose sums stay in registers.

use super::{ROW, SQUARE};
use crate::simd::dot::{Dot, DotBody, PAIRS};
use crate::simd::{LANES, Products, Simd};

/// The most sums of a tile.
pub(super) const MOST_SUMS: usize = 28;

/// One term of the sum over taps.
#[derive(Clone, Copy)]
pub(super) struct Tap {
    /// Elements from the position's place in the patch.
    pub(super) source: usize,
    /// Elements from the first tap of a pair of blocks.
    pub(super) weight: usize,
}

/// The operands that a tile is summed over.
pub(super) struct Tile<'a> {
    /// The first position's place in the patch.
    pub(super) source: *const u16,
    /// Elements of the patch from one row of positions, and one block of channels, to the next.
    pub(super) row_stride: usize,
    pub(super) block_stride: usize,
    /// Blocks of channels.
    pub(super) source_blocks: usize,
    pub(super) taps: &'a [Tap],
    /// Packed weights of the first block of outputs.
    pub(super) weights: *const u16,
    /// Elements of weights from one block of inputs, and one of outputs, to the next.
    pub(super) input_stride: usize,
    pub(super) output_stride: usize,
    /// The sums, `[block][row][column][16]`.
    pub(super) sums: *mut f32,
}

/// A tile to be summed. To run it asks for [`Tile::sum`]'s contract.
struct SumTile<'a, const B: usize, const R: usize, const W: usize>(&'a Tile<'a>);

impl Tile<'_> {
    /// Sums `B` blocks of outputs × `rows` × `columns` positions.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`. Of the patch, all positions have sixteen operands for every tap in each of
    /// `source_blocks` blocks; weights are squares for every tap of those blocks, for `B` blocks of outputs. `sums` is valid for
    /// writes of all sums.
    ///
    /// # Panics
    /// Panics if there are more blocks than [`Dot::BLOCKS`], more positions than [`Dot::POSITIONS`], or more rows than
    /// three.
    #[inline(always)]
    pub(super) unsafe fn sum<D: Dot, const B: usize>(&self, rows: usize, columns: usize) {
        macro_rules! choose {
            ($(($r:literal, $($w:literal)+))+) => {
                match (rows, columns) {
                    $($(($r, $w) => {
                        // Known when compiling, so that tiles too large for the registers are not compiled.
                        if const { B <= D::BLOCKS && $r * $w <= D::POSITIONS } {
                            // SAFETY: this function's contract includes the body's, for this many rows and columns.
                            unsafe { D::call(SumTile::<B, $r, $w>(self)) }
                        } else {
                            unreachable!("a tile of {B} × {rows} × {columns} sums is too large")
                        }
                    })+)+
                    // Rows are divided into these widths only.
                    _ => unreachable!("no tile of {rows} × {columns} positions"),
                }
            };
        }
        choose! { (1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14) (2, 1 2 3 4 5 6 7) (3, 1 2 3 4) }
    }
}

impl<const B: usize, const R: usize, const W: usize> DotBody for SumTile<'_, B, R, W> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        let tile = self.0;
        // SAFETY: whoever runs this body answers for `Tile::sum`'s contract: places in the patch and among the weights belong to
        // its positions, taps and blocks, and `sums` has room for B · R · W.
        unsafe {
            let mut sums = [[[D::no_sum(); W]; R]; B];
            for source_block in 0..tile.source_blocks {
                let source = tile.source.add(source_block * tile.block_stride);
                let weights = tile.weights.add(source_block * tile.input_stride);
                for tap in tile.taps {
                    let source = source.add(tap.source);
                    let weights = weights.add(tap.weight);
                    let of = Products {
                        weights,
                        weight_step: ROW,
                        weight_block: tile.output_stride,
                        source,
                        source_row: tile.row_stride,
                    };
                    D::add_products(&mut sums, &of);
                }
            }
            let sums = D::finish(sums);
            for (b, rows) in sums.iter().enumerate() {
                for (r, row) in rows.iter().enumerate() {
                    for (p, sum) in row.iter().enumerate() {
                        D::S::store(tile.sums.add(((b * R + r) * W + p) * LANES), *sum);
                    }
                }
            }
        }
    }
}

const _: () = assert!(SQUARE == PAIRS * ROW);
