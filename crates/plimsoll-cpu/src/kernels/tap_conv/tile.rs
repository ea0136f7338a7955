//! The register tiles of a convolution: blocks of outputs × positions, whose sums stay in registers.

use super::{Destination, PhaseTaps, TapConv};
use crate::kernel::Ptr;
use crate::layout::Lanes;
use crate::simd::{Bf16, Body, Element, LANES, Products, Simd};

/// A tile of all lanes of blocks.
const BLOCKS: u8 = 0;
/// A tile of each lane's own group.
const OWN: u8 = 1;
/// The same where groups are quarters of a block, or less.
const OWN_QUARTERS: u8 = 2;
/// The same where groups are halves of a block.
const OWN_HALVES: u8 = 3;
/// A tile of the channels of an image.
const IMAGE: u8 = 4;
/// A tile of lanes that are groups by themselves, as they are in depthwise convolutions.
const DEPTHWISE: u8 = 5;

/// The widest tile of an image.
pub(super) const IMAGE_POSITIONS: usize = 8;

/// Taps that are summed before they are added to a total: the taps of one block of inputs, or of several with fewer.
const TAPS_TOGETHER: usize = 9;

/// `true` if an instruction set has tiles of these lanes: there is one way to read halves.
const fn is_compiled<S: Simd>(lanes: u8) -> bool {
    match lanes {
        OWN => !S::READS_HALVES,
        OWN_HALVES => S::READS_HALVES,
        _ => true,
    }
}

/// The place of a tile.
pub(super) struct Tile<'a> {
    /// The first position's column in the first block of its chunk's patch.
    pub(super) source: *const f32,
    pub(super) row_stride: usize,
    /// Floats from one block of inputs to the next.
    pub(super) block_stride: usize,
    pub(super) phase: &'a PhaseTaps,
    pub(super) position: [usize; 3],
    pub(super) sample: usize,
    /// The first output block.
    pub(super) block: usize,
}

/// A tile to be summed and stored. To run it asks for [`TapConv::tile`]'s contract.
struct SumTile<'a, const B: usize, const R: usize, const W: usize, const L: u8> {
    conv: &'a TapConv,
    at: &'a Tile<'a>,
}

impl<const B: usize, const R: usize, const W: usize, const L: u8> Body for SumTile<'_, B, R, W, L> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: whoever runs this body answers for `TapConv::tile`'s contract.
        unsafe { self.conv.tile::<S, B, R, W, L>(self.at) }
    }
}

impl TapConv {
    /// Chooses the compiled tile.
    ///
    /// # Safety
    /// [`TapConv::tile`]'s contract, for `rows` rows of `width` positions.
    #[inline(always)]
    pub(super) unsafe fn tile_of_rows<S: Simd, const B: usize>(
        &self,
        args: &Tile<'_>,
        rows: usize,
        width: usize,
    ) {
        macro_rules! choose {
            ($lanes:expr, $(($r:literal, $w:literal)),*) => {
                match (rows, width) {
                    $(($r, $w) => {
                        // Known when compiling, so that tiles too large for the registers are not compiled.
                        if const {
                            $r * $w <= S::TILE_POSITIONS && B <= S::TILE_BLOCKS && is_compiled::<S>($lanes)
                        } {
                            // SAFETY: `TapConv::tile`'s contract holds for this many rows and positions.
                            unsafe { S::call(SumTile::<B, $r, $w, { $lanes }> { conv: self, at: args }) }
                        }
                    })*
                    // Rows are divided into these widths only.
                    _ => unreachable!("no tile of {rows} × {width} positions"),
                }
            };
        }
        macro_rules! choose_of_features {
            ($lanes:expr) => {
                choose!(
                    $lanes,
                    (1, 1),
                    (1, 2),
                    (1, 3),
                    (1, 4),
                    (1, 5),
                    (1, 6),
                    (1, 7),
                    (1, 8),
                    (1, 9),
                    (1, 10),
                    (1, 11),
                    (1, 12),
                    (1, 13),
                    (1, 14),
                    (2, 1),
                    (2, 2),
                    (2, 3),
                    (2, 4),
                    (2, 5),
                    (2, 6),
                    (2, 7),
                    (3, 1),
                    (3, 2),
                    (3, 3),
                    (3, 4)
                )
            };
        }
        match self.blocks.lanes {
            Lanes::Blocks => choose_of_features!(BLOCKS),
            // Every block of results reads a block of its own, so there is one at a time.
            Lanes::Own(_) if B > 1 => unreachable!("{B} blocks at once in groups"),
            Lanes::Own(1) => choose_of_features!(DEPTHWISE),
            Lanes::Own(width) if width <= LANES / 4 => choose_of_features!(OWN_QUARTERS),
            Lanes::Own(_) if S::READS_HALVES => choose_of_features!(OWN_HALVES),
            Lanes::Own(_) => choose_of_features!(OWN),
            Lanes::Image(_) => {
                choose!(IMAGE, (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7), (1, 8))
            }
        }
    }

    /// Sums and stores one tile: `B` blocks of outputs × `R` rows of `W` positions, of the inputs that `L` says:
    /// those of [`BLOCKS`], of their [`OWN`] groups in one of three ways, of [`DEPTHWISE`] lanes, or of an [`IMAGE`].
    ///
    /// # Safety
    /// [`Kernel::task`](crate::kernel::Kernel::task)'s contract for this kernel. `args.source` is the place of
    /// `args.position` in the patch of its chunk, whose `reach` blocks are `block_stride` apart, and `R` rows of `W`
    /// positions from there on are the chunk's. `args.block` and the next `B − 1` are output blocks of the task.
    #[inline(always)]
    unsafe fn tile<S: Simd, const B: usize, const R: usize, const W: usize, const L: u8>(
        &self,
        args: &Tile<'_>,
    ) {
        let (inputs, column) = match L {
            BLOCKS => (LANES, LANES),
            OWN | OWN_QUARTERS | OWN_HALVES | DEPTHWISE => (self.blocks.inputs(), LANES),
            _ => (self.blocks.inputs(), self.tiling.shape.lanes),
        };
        let pair = self.taps * inputs * LANES;
        let out_block = self.blocks.reach * pair;
        // SAFETY: the positions are the chunk's, as this function's contract says, and for each of them the patch has a
        // column for every tap in each of `reach` blocks. Weights are `[output block][reach][tap][input][16]` with indices
        // below those extents.
        let total = unsafe {
            // A few blocks of inputs are summed by themselves, so that rounding does not grow with the channels. Registers do
            // not hold the total as well, so the fewer taps a block has, the more of them there are to one addition.
            let mut total = [[[S::zero(); W]; R]; B];
            let together = (TAPS_TOGETHER / args.phase.taps.len().max(1)).max(1);
            for first in (0..self.blocks.reach).step_by(together) {
                let mut sums = [[[S::zero(); W]; R]; B];
                for source_block in first..self.blocks.reach.min(first + together) {
                    let source = args.source.add(source_block * args.block_stride);
                    let weights = self.operands.weights.0.add(args.block * out_block + source_block * pair);
                    // Of a block that is not full, lanes without an input are not multiplied.
                    let inputs = match L {
                        BLOCKS => self.held_lanes[self.blocks.first[args.block] + source_block],
                        _ => inputs,
                    };
                    for tap in &args.phase.taps {
                        let source = source.add(tap.source);
                        let weights = weights.add(tap.weight);
                        if L == BLOCKS && inputs == LANES {
                            let of = Products {
                                weights,
                                weight_step: LANES,
                                weight_block: out_block,
                                source,
                                source_row: args.row_stride,
                            };
                            S::add_products(&mut sums, &of);
                            continue;
                        }
                        for input in 0..inputs {
                            let mut w = [S::zero(); B];
                            for (b, w) in w.iter_mut().enumerate() {
                                *w = S::load(weights.add(b * out_block + input * LANES));
                            }
                            for r in 0..R {
                                for p in 0..W {
                                    let x = source.add(r * args.row_stride + p * column);
                                    let x = match L {
                                        OWN => S::pick(S::load(x), &self.own_lanes[input]),
                                        OWN_QUARTERS => {
                                            S::pick_in_quarters(S::load(x), &self.own_lanes[input])
                                        }
                                        OWN_HALVES => S::halves(x.add(input)),
                                        DEPTHWISE => S::load(x),
                                        _ => S::splat(*x.add(input)),
                                    };
                                    for b in 0..B {
                                        sums[b][r][p] = S::fma(w[b], x, sums[b][r][p]);
                                    }
                                }
                            }
                        }
                    }
                }
                for b in 0..B {
                    for r in 0..R {
                        for p in 0..W {
                            total[b][r][p] = S::add(total[b][r][p], sums[b][r][p]);
                        }
                    }
                }
            }
            total
        };
        // SAFETY: `store` asks for no more than this function does.
        unsafe {
            match self.operands.result {
                Destination::F32(result, added_to) => {
                    self.store::<S, f32, B, R, W>(args, &total, result, added_to)
                }
                Destination::Bf16(result, added_to) => {
                    self.store::<S, Bf16, B, R, W>(args, &total, result, added_to);
                }
            }
        }
    }

    /// Stores the sums of a tile.
    ///
    /// # Safety
    /// [`TapConv::tile`]'s contract, and `result` and `added_to` belong to the operands.
    #[inline(always)]
    unsafe fn store<S: Simd, T: Element, const B: usize, const R: usize, const W: usize>(
        &self,
        args: &Tile<'_>,
        sums: &[[[S::V; W]; R]; B],
        result: Ptr<T>,
        added_to: Option<Ptr<T>>,
    ) {
        let [d, h, w] = args.position;
        let [_, height, width] = self.extent;
        let voxels = self.extent.iter().product::<usize>();
        let start = args.phase.start;
        for (b, sums) in sums.iter().enumerate() {
            let plane = (args.sample * self.blocks.out_blocks() + args.block + b) * voxels;
            // SAFETY: a phase's positions are those whose result, start + position · stride, is inside the extent, so the
            // voxel is one of `[sample][block][voxel][16]`. The bias has sixteen lanes for each output block.
            unsafe {
                let bias = match self.operands.bias {
                    Some(bias) => S::load(bias.0.add((args.block + b) * LANES)),
                    None => S::zero(),
                };
                for (r, sums) in sums.iter().enumerate() {
                    let row = (d * self.out_stride[0] + start[0]) * height
                        + (h + r) * self.out_stride[1]
                        + start[1];
                    for (p, sum) in sums.iter().enumerate() {
                        let voxel = row * width + (w + p) * self.out_stride[2] + start[2];
                        let place = (plane + voxel) * LANES;
                        let mut value = S::add(*sum, bias);
                        if let Some(added_to) = added_to {
                            value = S::add(T::load::<S>(added_to.0.add(place)), value);
                        }
                        T::store::<S>(result.0.add(place), value);
                    }
                }
            }
        }
    }
}
