//! The transforms of F(4, 3) with the points 0, ±A, ±B and ∞.

use super::{POINTS, RESULTS, WIDTH};
use crate::simd::Simd;

const A: f32 = 0.75;
const B: f32 = 1.5;
const A2: f32 = A * A;
const B2: f32 = B * B;
/// Of the outermost weights: Gᵀ and G for the point 0.
const AT_ZERO: f32 = 1.0 / (A2 * B2);
/// What the polynomial without one of its zeroes ±A is there, and the same for ±B.
const AT_A: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
const AT_B: f32 = 1.0 / (2.0 * B2 * (B2 - A2));

/// How columns of a row become a tile.
pub(super) trait Spread {
    /// Columns that a tile reads.
    const COLUMNS: usize;

    /// The tile, point by point.
    ///
    /// # Safety
    /// As for [`Simd`]; `from` must have [`Spread::COLUMNS`] columns of sixteen lanes.
    unsafe fn spread<S: Simd>(from: *const f32) -> [S::V; POINTS];
}

/// Bᵀ d.
pub(super) struct Inputs;

impl Spread for Inputs {
    const COLUMNS: usize = RESULTS + WIDTH - 1;

    #[inline(always)]
    unsafe fn spread<S: Simd>(from: *const f32) -> [S::V; POINTS] {
        // SAFETY: passed on to the caller.
        unsafe {
            let d = columns::<S, { Inputs::COLUMNS }>(from);
            let ends = |d0, d2, d4| S::fma(S::splat(A2 * B2), d0, S::fma(S::splat(-A2 - B2), d2, d4));
            let pair = |point: f32, other: f32| {
                let even = S::fma(S::splat(-other), d[2], d[4]);
                let odd = S::fma(S::splat(-other), d[1], d[3]);
                plus_minus::<S>(even, odd, point)
            };
            let (a, b) = (pair(A, B2), pair(B, A2));
            [ends(d[0], d[2], d[4]), a[0], a[1], b[0], b[1], ends(d[1], d[3], d[5])]
        }
    }
}

/// A dy.
pub(super) struct Gradients;

impl Spread for Gradients {
    const COLUMNS: usize = RESULTS;

    #[inline(always)]
    unsafe fn spread<S: Simd>(from: *const f32) -> [S::V; POINTS] {
        // SAFETY: passed on to the caller.
        unsafe {
            let dy = columns::<S, RESULTS>(from);
            let pair = |point: f32| {
                let square = S::splat(point * point);
                plus_minus::<S>(S::fma(square, dy[2], dy[0]), S::fma(square, dy[3], dy[1]), point)
            };
            let (a, b) = (pair(A), pair(B));
            [dy[0], a[0], a[1], b[0], b[1], dy[3]]
        }
    }
}

/// # Safety
/// As for [`Simd`]; there must be as many columns.
#[inline(always)]
unsafe fn columns<S: Simd, const N: usize>(from: *const f32) -> [S::V; N] {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut columns = [S::zero(); N];
        for (i, column) in columns.iter_mut().enumerate() {
            *column = S::load(from.add(i * crate::simd::LANES));
        }
        columns
    }
}

/// even ± point · odd
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn plus_minus<S: Simd>(even: S::V, odd: S::V, point: f32) -> [S::V; 2] {
    // SAFETY: passed on to the caller.
    unsafe { [S::fma(S::splat(point), odd, even), S::fma(S::splat(-point), odd, even)] }
}

/// G g.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(super) unsafe fn weights<S: Simd>(g: [S::V; WIDTH]) -> [S::V; POINTS] {
    // SAFETY: passed on to the caller.
    unsafe {
        let pair = |point: f32, scale: f32| {
            let even = S::mul(S::splat(scale), S::fma(S::splat(point * point), g[2], g[0]));
            plus_minus::<S>(even, S::mul(S::splat(scale), g[1]), point)
        };
        let (a, b) = (pair(A, AT_A), pair(B, AT_B));
        [S::mul(S::splat(AT_ZERO), g[0]), a[0], a[1], b[0], b[1], g[2]]
    }
}

/// Aᵀ m.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(super) unsafe fn results<S: Simd>(m: [S::V; POINTS]) -> [S::V; RESULTS] {
    // SAFETY: passed on to the caller.
    unsafe {
        let (a, b) = (S::add(m[1], m[2]), S::add(m[3], m[4]));
        let (c, d) = (S::sub(m[1], m[2]), S::sub(m[3], m[4]));
        let sum = |x, y, (a, b)| S::fma(S::splat(a), x, S::mul(S::splat(b), y));
        [
            S::add(m[0], S::add(a, b)),
            sum(c, d, (A, B)),
            sum(a, b, (A2, B2)),
            S::add(sum(c, d, (A * A2, B * B2)), m[5]),
        ]
    }
}

/// Gᵀ u.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(super) unsafe fn weight_gradients<S: Simd>(u: [S::V; POINTS]) -> [S::V; WIDTH] {
    // SAFETY: passed on to the caller.
    unsafe {
        let sums = |i: usize, scale: f32| {
            let scale = S::splat(scale);
            (S::mul(scale, S::add(u[i], u[i + 1])), S::mul(scale, S::sub(u[i], u[i + 1])))
        };
        let (a, b) = (sums(1, AT_A), sums(3, AT_B));
        [
            S::fma(S::splat(AT_ZERO), u[0], S::add(a.0, b.0)),
            S::fma(S::splat(A), a.1, S::mul(S::splat(B), b.1)),
            S::add(S::fma(S::splat(A2), a.0, S::mul(S::splat(B2), b.0)), u[5]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{LANES, Portable};

    /// Columns with the same value in all lanes.
    fn filled<const N: usize>(values: [f32; N]) -> [[f32; LANES]; N] {
        values.map(|value| [value; LANES])
    }

    const D: [f32; 6] = [0.3, -1.2, 0.7, 2.1, -0.4, 1.6];
    const G: [f32; 3] = [0.9, -0.5, 0.2];
    const DY: [f32; 4] = [1.1, -0.8, 0.6, 0.4];

    fn products(a: [[f32; LANES]; POINTS], b: [[f32; LANES]; POINTS]) -> [[f32; LANES]; POINTS] {
        std::array::from_fn(|point| std::array::from_fn(|lane| a[point][lane] * b[point][lane]))
    }

    #[test]
    fn six_products_make_four_results_of_three_taps() {
        let d = filled(D);
        // SAFETY: the portable level is always there; there are six columns.
        let y = unsafe {
            let d = Inputs::spread::<Portable>(d.as_flattened().as_ptr());
            results::<Portable>(products(d, weights::<Portable>(filled(G))))
        };
        for (i, y) in y.iter().enumerate() {
            let expected = (0..3).map(|k| D[i + k] * G[k]).sum::<f32>();
            assert!((y[0] - expected).abs() < 1e-6, "{} is not {expected}", y[0]);
        }
    }

    #[test]
    fn six_products_make_the_gradients_of_three_taps() {
        let (d, dy) = (filled(D), filled(DY));
        // SAFETY: the portable level is always there; there are six columns and four.
        let dg = unsafe {
            let d = Inputs::spread::<Portable>(d.as_flattened().as_ptr());
            let dy = Gradients::spread::<Portable>(dy.as_flattened().as_ptr());
            weight_gradients::<Portable>(products(d, dy))
        };
        for (k, dg) in dg.iter().enumerate() {
            let expected = (0..4).map(|i| D[i + k] * DY[i]).sum::<f32>();
            assert!((dg[0] - expected).abs() < 1e-6, "{} is not {expected}", dg[0]);
        }
    }
}
