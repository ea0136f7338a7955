//! The register tiles of a weight gradient: blocks of gradients × inputs, summed over a run of positions.

use plimsoll_parallel::{each_index, pairs};

use crate::simd::{LANES, Simd};

/// Inputs of a tile that are one number for all lanes.
pub(super) const ALL: u8 = 0;
/// One number for each lane, of its own group.
pub(super) const OWN: u8 = 1;
/// The same where groups are quarters of a block, or less.
pub(super) const OWN_QUARTERS: u8 = 2;
/// The same where groups are halves of a block.
pub(super) const OWN_HALVES: u8 = 3;
/// One number for each lane, which is a group by itself: the taps of a depthwise convolution.
pub(super) const DEPTHWISE: u8 = 4;

/// Returns `true` if registers hold the sums of a tile of `B` blocks and some inputs, and an instruction set reads inputs in this way.
pub(super) const fn is_tile<S: Simd, const B: usize, const L: u8>(inputs: usize) -> bool {
    let is_read = match L {
        OWN => !S::READS_HALVES,
        OWN_HALVES => S::READS_HALVES,
        _ => true,
    };
    let is_tile = match L {
        DEPTHWISE => B == 1 && inputs <= S::TILE_POSITIONS,
        _ => inputs == S::GRAD_INPUTS || (inputs < S::GRAD_INPUTS && inputs.is_power_of_two()),
    };
    B <= S::GRAD_BLOCKS && is_tile && is_read
}

/// The inputs of the next tile, where some are left: as many as there are tiles for; taps of a depthwise convolution in equal parts, since
/// the sums of a narrow tile wait for each other.
#[inline]
pub(super) fn tile_inputs<S: Simd, const L: u8>(left: usize) -> usize {
    match L {
        DEPTHWISE => left.div_ceil(left.div_ceil(S::TILE_POSITIONS)),
        _ if left >= S::GRAD_INPUTS => S::GRAD_INPUTS,
        _ => 1 << left.ilog2(),
    }
}

/// A run of positions, as the innermost loops see it: `planes` × `rows` × `width` of them.
pub(super) struct Run<'a> {
    pub(super) planes: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) source_strides: [usize; 2],
    pub(super) column: usize,
    pub(super) gradient_strides: [usize; 2],
    pub(super) sums_stride: usize,
    pub(super) own_lanes: &'a [[i32; LANES]],
}

impl Run<'_> {
    /// Adds the products of `I` inputs, from number `first` on, with `B` blocks of gradients over all positions of the run.
    /// `L` says how inputs are read: [`ALL`], each lane's [`OWN`] in one of three ways, or [`DEPTHWISE`].
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. `inputs` has at least `I` offsets. From each of them on, `source` is
    /// valid for reads of one float for each position of the run, or sixteen if not [`ALL`]; `gradient` is valid for reads of
    /// sixteen floats for each position, and `sums` for reads and writes of I · 16 floats for each block, `sums_stride`
    /// apart.
    #[inline(always)]
    pub(super) unsafe fn accumulate<S: Simd, const B: usize, const I: usize, const L: u8>(
        &self,
        sums: *mut f32,
        source: *const f32,
        inputs: &[usize],
        first: usize,
        gradient: [*const f32; B],
    ) {
        // Registers cannot hold other tiles: callers never choose them, so they are not compiled.
        if const { !is_tile::<S, B, L>(I) } {
            unreachable!("no tile of {B} blocks × {I} inputs");
        }
        // SAFETY: planes, rows and columns are below the bounds of the run, `i < I` and `b < B`: all places are as this
        // function's contract says.
        unsafe {
            let mut inputs_of_tile = [source; I];
            for i in 0..I {
                let lane = if L == OWN_HALVES { (first + i) % (LANES / 2) } else { 0 };
                inputs_of_tile[i] = source.add(inputs[i] + lane);
            }
            let lanes: [_; I] = match L {
                OWN | OWN_QUARTERS => each_index(|i| &self.own_lanes[(first + i) % self.own_lanes.len()]),
                _ => [&[0; LANES]; I],
            };
            let mut held = [[S::zero(); I]; B];
            for plane in 0..self.planes {
                for row in 0..self.rows {
                    let mut at = plane * self.source_strides[0] + row * self.source_strides[1];
                    let mut from = gradient;
                    for from in &mut from {
                        *from = from.add(plane * self.gradient_strides[0] + row * self.gradient_strides[1]);
                    }
                    for _ in 0..self.width {
                        let mut g = [S::zero(); B];
                        for (g, from) in pairs(g.iter_mut(), &mut from) {
                            *g = S::load(*from);
                            *from = from.add(LANES);
                        }
                        for i in 0..I {
                            let x = inputs_of_tile[i].add(at);
                            let x = match L {
                                OWN => S::pick(S::load(x), lanes[i]),
                                OWN_QUARTERS => S::pick_in_quarters(S::load(x), lanes[i]),
                                OWN_HALVES => S::halves(x),
                                DEPTHWISE => S::load(x),
                                _ => S::splat(*x),
                            };
                            for b in 0..B {
                                held[b][i] = S::fma(g[b], x, held[b][i]);
                            }
                        }
                        at += self.column;
                    }
                }
            }
            for (b, held) in held.iter().enumerate() {
                for (i, held) in held.iter().enumerate() {
                    let sum = sums.add(b * self.sums_stride + i * LANES);
                    S::store(sum, S::add(S::load(sum), *held));
                }
            }
        }
    }
}
