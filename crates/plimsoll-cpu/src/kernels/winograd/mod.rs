//! Convolutions whose kernel is three wide, with half the multiplications: Winograd's F(4, 3) along the width.
//!
//! Four neighbouring results y of a row read six inputs d and three weights g. Instead of 4 · 3 = 12 products there are
//! six, y = Aᵀ [(G g) ⊙ (Bᵀ d)] (Winograd, *Arithmetic Complexity of Computations*, 1980; Lavin and Gray, *Fast Algorithms
//! for Convolutional Neural Networks*, 2016). All sums over channels, planes and rows of the kernel are taken of products,
//! so transforms are a small part of the work. Transposing the formula gives the weight gradient, dg = Gᵀ [(A dy) ⊙ (Bᵀ
//! d)].
//!
//! The six products are the values of polynomials at the points 0, ±¾, ±3/2 and ∞, [`POINTS`] in this order. The usual
//! 0, ±1, ±2 have about one and a half times the rounding error: powers of ¾ and 3/2 are nearer to one, and exact too.
//!
//! Kernels that are three deep and high as well are convolved as [`cube`] says, and so are their weight gradients.

pub(crate) mod conv;
pub(crate) mod cube;
mod grad_run;
mod patch;
mod product;
mod transform;
pub(crate) mod weight_grad;

use plimsoll_graph::Window;

use super::geometry::TapGrid;

/// Products for [`RESULTS`] results.
const POINTS: usize = 6;
/// Results of a tile, neighbours along the width.
const RESULTS: usize = 4;
/// Weights along the width.
const WIDTH: usize = 3;
/// The narrowest result for which it pays.
const NARROWEST: usize = 4;
/// The fewest tiles in a plane for which it pays in weight gradients, which hold their sums over a plane in registers.
const PLANE_TILES: usize = 8;

/// Products for a row of results, as a share of the products of a direct convolution.
pub(crate) fn products(width: usize) -> f64 {
    (POINTS * width.div_ceil(RESULTS)) as f64 / (WIDTH * width) as f64
}

/// Returns `true` if a convolution between features, or its transpose, to a result of this width can be computed in this way and
/// takes at most three quarters of the products, which measured is where it begins to pay.
pub(crate) fn pays(window: &Window, width: usize) -> bool {
    window.stride == [1; 3]
        && window.is_dense()
        && window.kernel[2] == WIDTH
        && width >= NARROWEST
        && 4 * POINTS * width.div_ceil(RESULTS) <= 3 * WIDTH * width
}

/// The same for a weight gradient, by the height and width of the convolution's result.
pub(crate) fn pays_for_weights(window: &Window, height: usize, width: usize) -> bool {
    pays(window, width) && height * width.div_ceil(RESULTS) >= PLANE_TILES
}

/// Three neighbouring taps along the width.
#[derive(Clone, Copy, Debug)]
struct RowTap {
    /// Places in the kernel, from the first column that is read to the last.
    index: [usize; WIDTH],
    /// The place of the row relative to the position's, along depth and height.
    shift: [isize; 2],
}

/// The taps of a convolution that is computed in this way, row by row.
fn row_taps(grid: &TapGrid) -> Vec<RowTap> {
    let mut taps: Vec<_> = grid.phases[0].taps.iter().map(|tap| (tap.shift, tap.index)).collect();
    taps.sort_unstable();
    taps.chunks_exact(WIDTH)
        .map(|row| RowTap { index: [row[0].1, row[1].1, row[2].1], shift: [row[0].0[0], row[0].0[1]] })
        .collect()
}
