//! The transforms of rows of tiles.

use super::PAIR_RESULTS;
use crate::kernels::dot::grad_run::COLUMN;
use crate::kernels::dot::winograd::READ;
use crate::kernels::f23::{POINTS, RESULTS, WIDTH, gradients, inputs};
use crate::simd::dot::{Dot, DotBody, PAIR};
use crate::simd::{LANES, Simd};

/// Pairs of tiles of the source to be transformed. To run it asks that `rows` are valid for reads of the columns that the tiles of `pairs`
/// pairs read, and `to` for writes of as many pairs in each point, `point` elements apart.
pub(super) struct TransformSource {
    pub(super) rows: [*const f32; READ],
    pub(super) to: *mut u16,
    pub(super) point: usize,
    pub(super) pairs: usize,
}

impl DotBody for TransformSource {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        let TransformSource { rows, to, point, pairs } = self;
        for pair in 0..pairs {
            // SAFETY: whoever runs this body answers for the rows and the points; a pair begins four columns behind the one before.
            unsafe {
                let mut tiles = [[[D::S::zero(); POINTS]; READ]; PAIR];
                for (i, row) in rows.iter().enumerate() {
                    let row = row.add(pair * PAIR_RESULTS * LANES);
                    let mut x = [D::S::zero(); PAIR_RESULTS + WIDTH - 1];
                    for (j, x) in x.iter_mut().enumerate() {
                        *x = D::S::load(row.add(j * LANES));
                    }
                    tiles[0][i] = inputs::<D::S>([x[0], x[1], x[2], x[3]]);
                    tiles[1][i] = inputs::<D::S>([x[2], x[3], x[4], x[5]]);
                }
                for j in 0..POINTS {
                    let [a, b] = &tiles;
                    let first = inputs::<D::S>([a[0][j], a[1][j], a[2][j], a[3][j]]);
                    let second = inputs::<D::S>([b[0][j], b[1][j], b[2][j], b[3][j]]);
                    for i in 0..POINTS {
                        let to = to.add((i * POINTS + j) * point + pair * COLUMN);
                        D::store_pairs(to, [first[i], second[i]]);
                    }
                }
            }
        }
    }
}

/// The same of gradients, with the columns that are the results of the tiles.
pub(super) struct TransformGradient {
    pub(super) rows: [*const f32; RESULTS],
    pub(super) to: *mut u16,
    pub(super) point: usize,
    pub(super) pairs: usize,
}

impl DotBody for TransformGradient {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        let TransformGradient { rows, to, point, pairs } = self;
        for pair in 0..pairs {
            // SAFETY: as for the source.
            unsafe {
                let mut tiles = [[[D::S::zero(); POINTS]; RESULTS]; PAIR];
                for (i, row) in rows.iter().enumerate() {
                    let row = row.add(pair * PAIR_RESULTS * LANES);
                    let mut y = [D::S::zero(); PAIR_RESULTS];
                    for (j, y) in y.iter_mut().enumerate() {
                        *y = D::S::load(row.add(j * LANES));
                    }
                    tiles[0][i] = gradients::<D::S>([y[0], y[1]]);
                    tiles[1][i] = gradients::<D::S>([y[2], y[3]]);
                }
                for j in 0..POINTS {
                    let [a, b] = &tiles;
                    let first = gradients::<D::S>([a[0][j], a[1][j]]);
                    let second = gradients::<D::S>([b[0][j], b[1][j]]);
                    for i in 0..POINTS {
                        let to = to.add((i * POINTS + j) * point + pair * COLUMN);
                        D::store_pairs(to, [first[i], second[i]]);
                    }
                }
            }
        }
    }
}
