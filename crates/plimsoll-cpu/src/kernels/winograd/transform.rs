//! The transforms of F(4, 3) with the points 0, ±A, ±B and ∞.

use super::{POINTS, RESULTS, WIDTH};
use crate::simd::Simd;

const A: f32 = 0.75;
const B: f32 = 1.5;
const A2: f32 = A * A;
const B2: f32 = B * B;
/// The factor of the outermost weights in Gᵀ and G for the point 0.
const AT_ZERO: f32 = 1.0 / (A2 * B2);
/// The reciprocal of the polynomial without its zero ±A, at ±A; then the same for ±B.
const AT_A: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
const AT_B: f32 = 1.0 / (2.0 * B2 * (B2 - A2));

/// The transform of columns of a row to a tile.
pub(super) trait TileTransform {
    /// Columns that a tile reads.
    const COLUMNS: usize;

    /// The tile, point by point.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `from` is valid for reads of [`TileTransform::COLUMNS`] · 16 floats.
    unsafe fn transform<S: Simd>(from: *const f32) -> [S::V; POINTS];
}

/// Bᵀ d.
pub(super) struct Inputs;

impl TileTransform for Inputs {
    const COLUMNS: usize = RESULTS + WIDTH - 1;

    #[inline(always)]
    unsafe fn transform<S: Simd>(from: *const f32) -> [S::V; POINTS] {
        // SAFETY: `from` has `COLUMNS` columns, as the trait asks; the rest is arithmetic.
        unsafe {
            let d = columns::<S, { Inputs::COLUMNS }>(from);
            let a = plus_minus::<S>(less::<S>(d[4], d[2], B2), less::<S>(d[3], d[1], B2), A);
            let b = plus_minus::<S>(less::<S>(d[4], d[2], A2), less::<S>(d[3], d[1], A2), B);
            let (first, last) = (end::<S>([d[0], d[2], d[4]]), end::<S>([d[1], d[3], d[5]]));
            [first, a[0], a[1], b[0], b[1], last]
        }
    }
}

/// A dy.
pub(super) struct Gradients;

impl TileTransform for Gradients {
    const COLUMNS: usize = RESULTS;

    #[inline(always)]
    unsafe fn transform<S: Simd>(from: *const f32) -> [S::V; POINTS] {
        // SAFETY: `from` has `COLUMNS` columns, as the trait asks; the rest is arithmetic.
        unsafe {
            let dy = columns::<S, RESULTS>(from);
            let a = plus_minus::<S>(less::<S>(dy[0], dy[2], -A2), less::<S>(dy[1], dy[3], -A2), A);
            let b = plus_minus::<S>(less::<S>(dy[0], dy[2], -B2), less::<S>(dy[1], dy[3], -B2), B);
            [dy[0], a[0], a[1], b[0], b[1], dy[3]]
        }
    }
}

/// `N` columns of sixteen lanes.
///
/// # Safety
/// The machine has the instruction set of `S`; `from` is valid for reads of N · 16 floats.
#[inline(always)]
unsafe fn columns<S: Simd, const N: usize>(from: *const f32) -> [S::V; N] {
    // SAFETY: `i < N`, and `from` has N columns, as this function's contract says.
    unsafe {
        let mut columns = [S::zero(); N];
        for (i, column) in columns.iter_mut().enumerate() {
            *column = S::load(from.add(i * crate::simd::LANES));
        }
        columns
    }
}

// Functions and not closures: what is called in a kernel must be inlined for the instruction set to reach it.

/// x − factor · y
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn less<S: Simd>(x: S::V, y: S::V, factor: f32) -> S::V {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { S::fma(S::splat(-factor), y, x) }
}

/// The input of the point 0 from the even columns, of ∞ from the odd ones.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn end<S: Simd>(d: [S::V; 3]) -> S::V {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { S::fma(S::splat(A2 * B2), d[0], less::<S>(d[2], d[1], A2 + B2)) }
}

/// even ± point · odd
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn plus_minus<S: Simd>(even: S::V, odd: S::V, point: f32) -> [S::V; 2] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { [S::fma(S::splat(point), odd, even), S::fma(S::splat(-point), odd, even)] }
}

/// G g.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(super) unsafe fn weights<S: Simd>(g: [S::V; WIDTH]) -> [S::V; POINTS] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe {
        let (odd_a, odd_b) = (S::mul(S::splat(AT_A), g[1]), S::mul(S::splat(AT_B), g[1]));
        let even_a = S::mul(S::splat(AT_A), less::<S>(g[0], g[2], -A2));
        let even_b = S::mul(S::splat(AT_B), less::<S>(g[0], g[2], -B2));
        let (a, b) = (plus_minus::<S>(even_a, odd_a, A), plus_minus::<S>(even_b, odd_b, B));
        [S::mul(S::splat(AT_ZERO), g[0]), a[0], a[1], b[0], b[1], g[2]]
    }
}

/// Aᵀ m.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(super) unsafe fn results<S: Simd>(m: [S::V; POINTS]) -> [S::V; RESULTS] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe {
        let (a, b) = (S::add(m[1], m[2]), S::add(m[3], m[4]));
        let (c, d) = (S::sub(m[1], m[2]), S::sub(m[3], m[4]));
        [
            S::add(m[0], S::add(a, b)),
            weighted::<S>(c, d, A, B),
            weighted::<S>(a, b, A2, B2),
            S::add(weighted::<S>(c, d, A * A2, B * B2), m[5]),
        ]
    }
}

/// a · x + b · y
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn weighted<S: Simd>(x: S::V, y: S::V, a: f32, b: f32) -> S::V {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { S::fma(S::splat(a), x, S::mul(S::splat(b), y)) }
}

/// Gᵀ u.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(super) unsafe fn weight_gradients<S: Simd>(u: [S::V; POINTS]) -> [S::V; WIDTH] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe {
        let (a, b) = (S::splat(AT_A), S::splat(AT_B));
        let sums = (S::mul(a, S::add(u[1], u[2])), S::mul(b, S::add(u[3], u[4])));
        let differences = (S::mul(a, S::sub(u[1], u[2])), S::mul(b, S::sub(u[3], u[4])));
        [
            S::fma(S::splat(AT_ZERO), u[0], S::add(sums.0, sums.1)),
            weighted::<S>(differences.0, differences.1, A, B),
            S::add(weighted::<S>(sums.0, sums.1, A2, B2), u[5]),
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
    fn six_products_give_four_results_of_three_taps() {
        let d = filled(D);
        // SAFETY: every machine has the portable level; there are six columns.
        let y = unsafe {
            let d = Inputs::transform::<Portable>(d.as_flattened().as_ptr());
            results::<Portable>(products(d, weights::<Portable>(filled(G))))
        };
        for (i, y) in y.iter().enumerate() {
            let expected = (0..3).map(|k| D[i + k] * G[k]).sum::<f32>();
            assert!((y[0] - expected).abs() < 1e-6, "{} is not {expected}", y[0]);
        }
    }

    #[test]
    fn six_products_give_the_gradients_of_three_taps() {
        let (d, dy) = (filled(D), filled(DY));
        // SAFETY: every machine has the portable level; there are six columns and four.
        let dg = unsafe {
            let d = Inputs::transform::<Portable>(d.as_flattened().as_ptr());
            let dy = Gradients::transform::<Portable>(dy.as_flattened().as_ptr());
            weight_gradients::<Portable>(products(d, dy))
        };
        for (k, dg) in dg.iter().enumerate() {
            let expected = (0..4).map(|i| D[i + k] * DY[i]).sum::<f32>();
            assert!((dg[0] - expected).abs() < 1e-6, "{} is not {expected}", dg[0]);
        }
    }
}
