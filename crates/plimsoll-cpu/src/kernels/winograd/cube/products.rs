//! Weights at the points of one depth, and the sums of their products with the source.

use super::PLANE_POINTS;
use super::chunks::Chunk;
use super::conv::{CubeConv, Scratch};
use super::tiling::{GROUP, weight_point};
use crate::kernels::f23::{POINTS, WIDTH, weights};
use crate::kernels::winograd::product::Product;
use crate::simd::{LANES, Simd};

impl CubeConv {
    /// Sums the products of `B` output blocks and all source blocks, at the points of depth `Z`.
    ///
    /// # Safety
    /// [`Kernel::task`](crate::kernel::Kernel::task)'s contract for this kernel; `block + B` is at most the output blocks, and the
    /// source blocks are transformed in `scratch`, which is this thread's. `sums` is `[B][point][tile][16]` of it.
    #[inline(always)]
    pub(super) unsafe fn products<S: Simd, const B: usize, const Z: usize>(
        &self,
        chunk: &Chunk,
        block: usize,
        scratch: Scratch,
        sums: *mut f32,
    ) {
        let tiling = &self.tiling;
        let tiles = chunk.count.iter().product::<usize>();
        let pieces = tiles.div_ceil(S::TILE_POSITIONS);
        for first in (0..tiling.source_blocks).step_by(GROUP) {
            let group = GROUP.min(tiling.source_blocks - first);
            // SAFETY: the blocks are the operands', as this function's contract says, and there is room for the weights of a group.
            unsafe { self.weights::<S, B, Z>(block, first, group, scratch.weights) };
            for point in 0..PLANE_POINTS {
                for piece in 0..pieces {
                    let (from, to) = (tiles * piece / pieces, tiles * (piece + 1) / pieces);
                    // SAFETY: points, tiles and source blocks are below those that are transformed; the weights of a point belong to
                    // `group` times B blocks, and there is a place for the sums of each point and tile of B blocks.
                    unsafe {
                        let product = Product {
                            taps: &self.group_offsets[..group],
                            weights: scratch.weights.add(point * weight_point(group, B)),
                            source: scratch.points.add(
                                first * tiling.grid.transformed()
                                    + point * tiling.grid.point()
                                    + from * LANES,
                            ),
                            sums: sums.add(point * tiling.grid.point() + from * LANES),
                            sums_stride: PLANE_POINTS * tiling.grid.point(),
                            first: first == 0,
                        };
                        product.choose::<S, B>(to - from);
                    }
                }
            }
        }
    }

    /// Transforms the weights of `B` output blocks for a group of source blocks, at the points of depth `Z`:
    /// `[point][source block][lane][output block][16]`.
    ///
    /// # Safety
    /// [`Kernel::task`](crate::kernel::Kernel::task)'s contract for this kernel; `block + B` is at most the output blocks and
    /// `first + group` the source blocks; `to` is valid for writes of [`CubeTiling::weights`](super::CubeTiling::weights) floats.
    #[inline(always)]
    unsafe fn weights<S: Simd, const B: usize, const Z: usize>(
        &self,
        block: usize,
        first: usize,
        group: usize,
        to: *mut f32,
    ) {
        const SQUARE: usize = LANES * LANES;
        for b in 0..B {
            for s in 0..group {
                let pair = (block + b) * self.tiling.source_blocks + first + s;
                for lane in 0..LANES {
                    // SAFETY: weights are `[output block][source block][tap][lane][16]` with indices below those extents, and the result
                    // has a place for each point, source block, lane and output block.
                    unsafe {
                        let from = self.operands.weights.0.add(pair * self.taps * SQUARE + lane * LANES);
                        let mut rows = [[S::zero(); POINTS]; WIDTH];
                        for (h, row) in rows.iter_mut().enumerate() {
                            let mut g = [S::zero(); WIDTH];
                            for (w, g) in g.iter_mut().enumerate() {
                                let front = S::load(from.add(self.places[0][h][w] * SQUARE));
                                let middle = S::load(from.add(self.places[1][h][w] * SQUARE));
                                let back = S::load(from.add(self.places[2][h][w] * SQUARE));
                                *g = match Z {
                                    0 => front,
                                    1 => S::mul(S::splat(0.5), S::add(S::add(front, back), middle)),
                                    2 => S::mul(S::splat(0.5), S::sub(S::add(front, back), middle)),
                                    _ => back,
                                };
                            }
                            *row = weights::<S>(g);
                        }
                        let to = to.add(((s * LANES + lane) * B + b) * LANES);
                        for w in 0..POINTS {
                            let u = weights::<S>([rows[0][w], rows[1][w], rows[2][w]]);
                            for (h, u) in u.into_iter().enumerate() {
                                S::store(to.add((h * POINTS + w) * weight_point(group, B)), u);
                            }
                        }
                    }
                }
            }
        }
    }
}
