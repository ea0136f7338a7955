//! Convolutions whose kernel is three deep, high and wide, with 8 products for 27: Winograd's F(2, 3) along all three axes.
//!
//! A tile of 2×2×2 results reads 4×4×4 inputs. Both they and the 3×3×3 weights are transformed to 64 points, and the products of each
//! point are summed over all inputs. Of the transforms of `kernels::f23` none enlarges a value by more than two, so that rounding
//! is less than the error of F(4, 3) along the width alone.
//!
//! Sixty-four points of all channels would not stay in the second-level cache. The four points along the depth are
//! therefore taken one after the other: inputs, weights and sums of 16 points are in memory at a time, and the results
//! of each are added to those of the two planes of a tile, yᵢ = Σ over z: aᵢ(z) · m(z).

mod chunks;
pub(crate) mod conv;
mod products;
mod store;
mod tiling;
pub(crate) mod weight_grad;

pub(crate) use tiling::CubeTiling;

use plimsoll_graph::Window;

use crate::kernels::f23::{POINTS, RESULTS, WIDTH};
use crate::kernels::geometry::TapGrid;
use crate::lower::product;

/// Points of a tile with the same depth.
const PLANE_POINTS: usize = POINTS * POINTS;
/// Inputs that a tile reads along an axis.
const READ: usize = RESULTS + WIDTH - 1;
/// Results of a tile.
const TILE_RESULTS: usize = RESULTS * RESULTS * RESULTS;

/// Tiles along each axis for a result of this extent.
fn tiles(extent: [usize; 3]) -> [usize; 3] {
    extent.map(|extent| extent.div_ceil(RESULTS))
}

/// Products for a result of this extent, as a share of the products of a direct convolution.
pub(crate) fn products(extent: [usize; 3]) -> f64 {
    let multiplied = product(tiles(extent)) as f64 * (POINTS * POINTS * POINTS) as f64;
    multiplied / (product(extent) as f64 * (WIDTH * WIDTH * WIDTH) as f64)
}

/// Returns `true` if this method applies to a convolution between features without groups, or its transpose, to a
/// result of this extent, and takes at most half of the products of a direct one.
pub(crate) fn pays(window: &Window, extent: [usize; 3]) -> bool {
    window.stride == [1; 3] && window.is_dense() && window.kernel == [WIDTH; 3] && products(extent) <= 0.5
}

/// The places in the kernel of all taps, in the order in which the source is read: plane by plane, row by row.
type CubeTaps = [[[usize; WIDTH]; WIDTH]; WIDTH];

/// The taps of a convolution that is computed in this way.
fn cube_taps(grid: &TapGrid) -> CubeTaps {
    let phases = grid.phases.iter().flat_map(|phase| &phase.taps);
    let mut taps: Vec<_> = phases.map(|tap| (tap.shift, tap.index)).collect();
    taps.sort_unstable();
    [0, 1, 2].map(|d| [0, 1, 2].map(|h| [0, 1, 2].map(|w| taps[(d * WIDTH + h) * WIDTH + w].1)))
}

#[cfg(test)]
mod tests;
