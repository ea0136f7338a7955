//! The register tiles of weight gradients: blocks of gradients × lanes of a source, summed over a run of pairs.

use crate::simd::dot::{Dot, DotBody, PAIR};
use crate::simd::{LANES, Simd};

/// Elements of a pair of positions or tiles.
pub(super) const COLUMN: usize = LANES * PAIR;

/// A run of `planes` × `rows` × `pairs` pairs, whose products are added to sums.
#[derive(Clone, Copy)]
pub(super) struct GradRun {
    pub(super) planes: usize,
    pub(super) rows: usize,
    pub(super) pairs: usize,
    /// `[16][2]` for each pair, at this distance in elements; from one plane and one row to the next.
    pub(super) source: *const u16,
    pub(super) source_step: usize,
    pub(super) source_strides: [usize; 2],
    /// `[pair][16][2]`; from one plane and one row to the next, and from one output block to the next.
    pub(super) gradient: *const u16,
    pub(super) gradient_strides: [usize; 2],
    pub(super) gradient_block: usize,
    /// `[lane][16]`, and floats from one output block to the next.
    pub(super) sums: *mut f32,
    pub(super) sums_block: usize,
}

/// Some lanes of the source and `B` output blocks to be summed. To run it asks for [`GradRun::add`]'s contract, of `I` lanes.
struct SumRun<const B: usize, const I: usize>(GradRun);

impl GradRun {
    /// Adds the products of all sixteen lanes of the source with the lanes of `blocks` output blocks.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`. There are operands of the source for each pair of the run, and of gradients in each
    /// block; sums of sixteen lanes are valid for reads and writes in each block.
    ///
    /// # Panics
    /// Panics if there are more blocks than [`Dot::BLOCKS`].
    #[inline(always)]
    pub(super) unsafe fn add<D: Dot>(self, blocks: usize) {
        let lanes = <D::S as Simd>::TILE_INPUTS;
        for lane in (0..LANES).step_by(lanes) {
            // SAFETY: lanes go by whole steps; otherwise this function's contract includes the contract of the bodies.
            unsafe {
                let run = GradRun {
                    source: self.source.add(lane * PAIR),
                    sums: self.sums.add(lane * LANES),
                    ..self
                };
                match (blocks, lanes) {
                    (1, 8) => D::call(SumRun::<1, 8>(run)),
                    (1, 4) => D::call(SumRun::<1, 4>(run)),
                    (1, 2) => D::call(SumRun::<1, 2>(run)),
                    (2, 8) => D::call(SumRun::<2, 8>(run)),
                    // The other instruction sets have registers for one block.
                    _ => unreachable!("no tile of {blocks} blocks × {lanes} lanes"),
                }
            }
        }
    }
}

impl<const B: usize, const I: usize> DotBody for SumRun<B, I> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        // Tiles that the registers cannot hold are not asked for, and so not compiled.
        if const { B > D::BLOCKS || I > <D::S as Simd>::TILE_INPUTS } {
            return;
        }
        let run = self.0;
        // SAFETY: whoever runs this body answers for `GradRun::add`'s contract: planes, rows, pairs and blocks are below their numbers, and
        // lanes among sixteen.
        unsafe {
            let mut held = [[D::S::zero(); I]; B];
            for plane in 0..run.planes {
                for row in 0..run.rows {
                    let at = |strides: [usize; 2]| plane * strides[0] + row * strides[1];
                    let mut source = run.source.add(at(run.source_strides));
                    let mut gradient = run.gradient.add(at(run.gradient_strides));
                    for _ in 0..run.pairs {
                        let mut g = [D::load_pairs(gradient); B];
                        for (b, g) in g.iter_mut().enumerate().skip(1) {
                            *g = D::load_pairs(gradient.add(b * run.gradient_block));
                        }
                        for i in 0..I {
                            let x = D::splat_pair(source.add(i * PAIR));
                            for b in 0..B {
                                held[b][i] = D::dot(held[b][i], g[b], x);
                            }
                        }
                        source = source.wrapping_add(run.source_step);
                        gradient = gradient.add(COLUMN);
                    }
                }
            }
            for (b, held) in held.iter().enumerate() {
                for (i, held) in held.iter().enumerate() {
                    let sum = run.sums.add(b * run.sums_block + i * LANES);
                    D::S::store(sum, D::S::add(D::S::load(sum), *held));
                }
            }
        }
    }
}
