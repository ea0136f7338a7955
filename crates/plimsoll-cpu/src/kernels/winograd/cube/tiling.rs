//! How the work is tiled, which depends on shapes alone.

use super::products::weight_point;
use super::{PLANE_POINTS, READ, TILE_RESULTS, tiles};
use crate::kernels::chunk::TASKS;
use crate::kernels::f23::RESULTS;
use crate::kernels::geometry::TapGrid;
use crate::lower::product;
use crate::simd::LANES;

/// Output blocks that are summed at a time, at most.
pub(super) const PAIR: usize = 2;
/// Source blocks whose products are summed in registers: 64 products, then they are added to the sums of those before.
pub(super) const GROUP: usize = 4;
/// Tiles of a chunk, at most. Each task transforms the weights for its chunk, so fewer cost more of that, and more do not stay in the
/// second-level cache.
const MOST_TILES: usize = 128;
/// Tiles of a chunk that are not cut further for the sake of the number of tasks.
const TILES: usize = 64;
/// The most tiles of a chunk along the width: longer rows leave fewer beside each other, which have more border.
const MOST_WIDE: usize = 32;
/// The most bytes of a thread's scratch.
const MOST_BYTES: usize = 6 << 20;

/// How the work is tiled. Sizes that no number holds are the largest one, which no budget has room for.
#[derive(Clone, Debug)]
pub(crate) struct CubeTiling {
    pub(super) batch: usize,
    pub(super) source_blocks: usize,
    pub(super) out_blocks: usize,
    /// Tiles of a chunk along each axis, and chunks.
    pub(super) chunk: [usize; 3],
    pub(super) chunks: [usize; 3],
    /// Parts of the pairs of output blocks.
    pub(super) splits: usize,
    pub(super) low: [isize; 3],
    pub(super) source: [usize; 3],
    pub(super) result: [usize; 3],
}

impl CubeTiling {
    /// For a source of `source_blocks` blocks, and `out_blocks` blocks of results.
    pub(crate) fn new(grid: &TapGrid, batch: usize, source_blocks: usize, out_blocks: usize) -> CubeTiling {
        let all = tiles(grid.result);
        let tiling = |most: usize| {
            let chunk = chunk(all, most);
            let chunks = [0, 1, 2].map(|axis| all[axis].div_ceil(chunk[axis]));
            let mut tiling = CubeTiling {
                batch,
                source_blocks,
                out_blocks,
                chunk,
                chunks,
                splits: 1,
                low: grid.low,
                source: grid.source,
                result: grid.result,
            };
            tiling.splits = TASKS.div_ceil(tiling.tasks().max(1)).min(tiling.pairs()).max(1);
            tiling
        };
        let bytes = |most: usize| product([tiling(most).per_thread(), size_of::<f32>()]);
        let mut most = MOST_TILES;
        while most > TILES && tiling(most).tasks() < TASKS {
            most /= 2;
        }
        while most > 1 && bytes(most) > MOST_BYTES {
            most /= 2;
        }
        tiling(most)
    }

    /// Tasks of the kernel.
    pub(super) fn tasks(&self) -> usize {
        product([self.batch, product(self.chunks), self.splits])
    }

    /// Pairs of output blocks, the last of which may be a single one.
    pub(super) fn pairs(&self) -> usize {
        self.out_blocks.div_ceil(PAIR)
    }

    /// Pairs of a task, at most.
    fn pairs_of_task(&self) -> usize {
        self.pairs().div_ceil(self.splits)
    }

    /// Tiles of a chunk.
    pub(super) fn tiles(&self) -> usize {
        product(self.chunk)
    }

    /// Floats of one point of some tiles and a column more, so that the points of a tile do not fall into the same sets of a cache.
    pub(super) fn point(&self) -> usize {
        product([self.tiles().saturating_add(1), LANES])
    }

    /// Planes, rows and columns that a chunk reads.
    pub(super) fn read(&self) -> [usize; 3] {
        self.chunk.map(|tiles| (tiles - 1) * RESULTS + READ)
    }

    /// Floats of a source block before it is transformed.
    pub(super) fn gathered(&self) -> usize {
        product([product(self.read()), LANES])
    }

    /// Floats of a source block that is transformed.
    pub(super) fn transformed(&self) -> usize {
        product([PLANE_POINTS, self.point()])
    }

    /// Floats of the sums of a pair of output blocks.
    pub(super) fn sums(&self) -> usize {
        product([PAIR, PLANE_POINTS, self.point()])
    }

    /// Floats of the results of an output block.
    pub(super) fn results(&self) -> usize {
        product([self.tiles(), TILE_RESULTS, LANES])
    }

    /// Floats of the weights of a group of source blocks and a pair of output blocks.
    pub(super) fn weights(&self) -> usize {
        product([PLANE_POINTS, weight_point(GROUP.min(self.source_blocks), PAIR)])
    }

    /// Floats of scratch of a thread: what is gathered and transformed of all source blocks, sums, results and weights.
    pub(crate) fn per_thread(&self) -> usize {
        let source = product([self.source_blocks, self.gathered().saturating_add(self.transformed())]);
        let results = product([PAIR, self.pairs_of_task(), self.results()]);
        [source, self.sums(), results, self.weights()].into_iter().fold(0, usize::saturating_add)
    }
}

/// The tiles of a chunk along each axis: of `all`, about `most` in all, wide first, and as many in each chunk.
fn chunk(all: [usize; 3], most: usize) -> [usize; 3] {
    let mut chunk = [1, 1, all[2].clamp(1, MOST_WIDE.min(most))];
    loop {
        // Height before depth, so that rows that are read in turn lie close to each other.
        let order = if chunk[1] <= chunk[0] { [1, 0] } else { [0, 1] };
        let axis = order.into_iter().find(|axis| chunk[*axis] < all[*axis] && 2 * product(chunk) <= most);
        let Some(axis) = axis else { break };
        chunk[axis] = (2 * chunk[axis]).min(all[axis]);
    }
    let even = |axis: usize| all[axis].div_ceil(all[axis].div_ceil(chunk[axis]).max(1)).max(1);
    [0, 1, 2].map(even)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_wide_then_high_then_deep() {
        assert_eq!(chunk([64, 64, 64], 64), [1, 2, 32]);
        assert_eq!(chunk([64, 64, 64], 128), [2, 2, 32]);
        assert_eq!(chunk([4, 4, 4], 64), [4, 4, 4]);
        assert_eq!(chunk([2, 2, 2], 64), [2, 2, 2]);
        // 33 tiles are two chunks of 17 and 16, not of 32 and one.
        assert_eq!(chunk([1, 1, 33], 64), [1, 1, 17]);
        assert_eq!(chunk([1, 1, 1], 1), [1, 1, 1]);
    }
}
