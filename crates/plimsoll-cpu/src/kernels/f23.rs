//! The transforms of F(2, 3): two results y of a row from four inputs d and three weights g.
//!
//! y = Aᵀ [(G g) ⊙ (Bᵀ d)], with the points 0, 1, −1 and ∞ (Winograd, *Arithmetic Complexity of Computations*, 1980). Only sums and
//! halves: the inputs grow by a factor of two at most along each axis, so bf16 lose little by it.

use crate::simd::Simd;

/// Products for [`RESULTS`] results.
pub(crate) const POINTS: usize = 4;
/// Results of a tile along an axis.
pub(crate) const RESULTS: usize = 2;
/// Weights along an axis.
pub(crate) const WIDTH: usize = 3;

/// Bᵀ d.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(crate) unsafe fn inputs<S: Simd>(d: [S::V; POINTS]) -> [S::V; POINTS] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { [S::sub(d[0], d[2]), S::add(d[1], d[2]), S::sub(d[2], d[1]), S::sub(d[3], d[1])] }
}

/// G g.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(crate) unsafe fn weights<S: Simd>(g: [S::V; WIDTH]) -> [S::V; POINTS] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe {
        let outer = S::add(g[0], g[2]);
        let half = S::splat(0.5);
        [g[0], S::mul(S::add(outer, g[1]), half), S::mul(S::sub(outer, g[1]), half), g[2]]
    }
}

/// Aᵀ m.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(crate) unsafe fn results<S: Simd>(m: [S::V; POINTS]) -> [S::V; RESULTS] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { [S::add(m[0], S::add(m[1], m[2])), S::add(S::sub(m[1], m[2]), m[3])] }
}

/// A dy: the gradients of products, from the gradients of results.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(crate) unsafe fn gradients<S: Simd>(y: [S::V; RESULTS]) -> [S::V; POINTS] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { [y[0], S::add(y[0], y[1]), S::sub(y[0], y[1]), y[1]] }
}

/// Gᵀ u: the gradients of weights.
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
pub(crate) unsafe fn weight_gradients<S: Simd>(u: [S::V; POINTS]) -> [S::V; WIDTH] {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe {
        let half = S::splat(0.5);
        let (sum, difference) = (S::mul(S::add(u[1], u[2]), half), S::mul(S::sub(u[1], u[2]), half));
        [S::add(u[0], sum), difference, S::add(sum, u[3])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{LANES, Portable};

    #[test]
    fn products_of_transforms_are_the_convolution() {
        // SAFETY: every machine has the portable instruction set.
        unsafe {
            let splat = |x: f32| [x; LANES];
            let (d, g) = ([1.0, -3.0, 5.0, 7.0], [2.0, -4.0, 6.0]);
            let (v, u) = (inputs::<Portable>(d.map(splat)), weights::<Portable>(g.map(splat)));
            let m = std::array::from_fn(|point| Portable::mul(v[point], u[point]));
            let found = results::<Portable>(m).map(|y| y[0]);
            let expected = [0, 1].map(|at| (0..WIDTH).map(|k| d[at + k] * g[k]).sum::<f32>());
            assert_eq!(found, expected);
        }
    }
    #[test]
    fn products_of_transposed_transforms_are_the_gradient_of_the_weights() {
        // SAFETY: every machine has the portable instruction set.
        unsafe {
            let splat = |x: f32| [x; LANES];
            let (d, dy) = ([1.0, -3.0, 5.0, 7.0], [2.0, -4.0]);
            let (v, m) = (inputs::<Portable>(d.map(splat)), gradients::<Portable>(dy.map(splat)));
            let u = std::array::from_fn(|point| Portable::mul(v[point], m[point]));
            let found = weight_gradients::<Portable>(u).map(|g| g[0]);
            let expected = [0, 1, 2].map(|k| (0..RESULTS).map(|at| d[at + k] * dy[at]).sum::<f32>());
            assert_eq!(found, expected);
        }
    }
}
