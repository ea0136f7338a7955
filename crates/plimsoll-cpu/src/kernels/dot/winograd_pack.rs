//! Weights as the Winograd kernel reads them.

use plimsoll_parallel::pairs;

use super::SQUARE;
use super::winograd::PlaneTaps;
use crate::kernel::{DotKernel, Ptr};
use crate::kernels::f23::{POINTS, WIDTH, weights};
use crate::simd::dot::{Dot, PAIR, PAIRS};
use crate::simd::{LANES, Simd};

/// Transforms weights along height and width, and packs them in pairs of inputs.
pub(crate) struct PackWinogradWeights {
    /// `[output block][source block][tap][16 inputs][16 outputs]`
    pub(crate) weights: Ptr<f32>,
    /// The result, `[point][output block][source block][plane]` squares of [`Dot::store_weights`].
    pub(crate) packed: Ptr<u16>,
    /// Blocks of outputs times blocks of sources.
    pub(crate) pairs: usize,
    /// Taps of the kernel in all.
    pub(crate) taps: usize,
    pub(crate) planes: Vec<PlaneTaps>,
}

impl DotKernel for PackWinogradWeights {
    fn tasks(&self) -> usize {
        self.pairs
    }

    #[inline(always)]
    unsafe fn task<D: Dot>(&self, task: usize, _thread: usize) {
        for (plane, taps) in self.planes.iter().enumerate() {
            for pair in 0..PAIRS {
                // SAFETY: weights have a square of sixteen by sixteen for each tap of each pair of blocks; the result has one for each
                // point, pair of blocks and plane. Tasks write disjoint squares.
                unsafe {
                    let from = self.weights.0.add(task * self.taps * LANES * LANES + pair * PAIR * LANES);
                    let mut points = [[[D::S::zero(); PAIR]; POINTS]; POINTS];
                    for half in 0..PAIR {
                        // Along the width, then along the height.
                        let mut rows = [[D::S::zero(); POINTS]; WIDTH];
                        for (row, taps) in pairs(rows.iter_mut(), taps) {
                            let mut g = [D::S::zero(); WIDTH];
                            for (g, tap) in pairs(g.iter_mut(), taps) {
                                *g = D::S::load(from.add(tap * LANES * LANES + half * LANES));
                            }
                            *row = weights::<D::S>(g);
                        }
                        for column in 0..POINTS {
                            let u = weights::<D::S>([rows[0][column], rows[1][column], rows[2][column]]);
                            for row in 0..POINTS {
                                points[row][column][half] = u[row];
                            }
                        }
                    }
                    for (row, points) in points.iter().enumerate() {
                        for (column, u) in points.iter().enumerate() {
                            let point = row * POINTS + column;
                            let square = (point * self.pairs + task) * self.planes.len() + plane;
                            D::store_weights(self.packed.0.add(square * SQUARE), pair, *u);
                        }
                    }
                }
            }
        }
    }
}
