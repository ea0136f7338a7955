//! The tiling of the work, which depends on shapes alone.

use super::chunks::{ChunkGrid, chunk};
use super::{PLANE_POINTS, READ, TILE_RESULTS, tiles};
use crate::kernels::chunk::TASKS;
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

/// Floats of the weights of one point, of a group of source blocks and some output blocks, and a vector more, so that the points do not
/// fall into the same sets of a cache.
pub(super) fn weight_point(group: usize, out_blocks: usize) -> usize {
    (group * LANES * out_blocks + 1) * LANES
}

/// The tiling of the work. Sizes beyond `usize` are `usize::MAX`, which exceeds every budget.
#[derive(Clone, Debug)]
pub(crate) struct CubeTiling {
    /// The grid of the source, as the tiles of the result read it.
    pub(super) grid: ChunkGrid,
    pub(super) source_blocks: usize,
    pub(super) out_blocks: usize,
    /// Parts of the pairs of output blocks.
    pub(super) splits: usize,
    pub(super) result: [usize; 3],
}

impl CubeTiling {
    /// For a source of `source_blocks` blocks, and `out_blocks` blocks of results.
    pub(crate) fn new(grid: &TapGrid, batch: usize, source_blocks: usize, out_blocks: usize) -> CubeTiling {
        let all = tiles(grid.result);
        let tiling = |most: usize| {
            let chunk = chunk(all, most, MOST_WIDE);
            let mut tiling = CubeTiling {
                grid: ChunkGrid { batch, chunk, all, reads: READ, low: grid.low, source: grid.source },
                source_blocks,
                out_blocks,
                splits: 1,
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
        product([self.grid.count(), self.splits])
    }

    /// Pairs of output blocks, the last of which may be a single one.
    pub(super) fn pairs(&self) -> usize {
        self.out_blocks.div_ceil(PAIR)
    }

    /// Pairs of a task, at most.
    fn pairs_of_task(&self) -> usize {
        self.pairs().div_ceil(self.splits)
    }

    /// Floats of the sums of a pair of output blocks.
    pub(super) fn sums(&self) -> usize {
        product([PAIR, PLANE_POINTS, self.grid.point()])
    }

    /// Floats of the results of an output block.
    #[inline]
    pub(super) fn results(&self) -> usize {
        product([self.grid.tiles(), TILE_RESULTS, LANES])
    }

    /// Floats of the weights of a group of source blocks and a pair of output blocks.
    pub(super) fn weights(&self) -> usize {
        product([PLANE_POINTS, weight_point(GROUP.min(self.source_blocks), PAIR)])
    }

    /// Floats of scratch of a thread: what is gathered and transformed of all source blocks, sums, results and weights.
    pub(crate) fn per_thread(&self) -> usize {
        let source =
            product([self.source_blocks, self.grid.gathered().saturating_add(self.grid.transformed())]);
        let results = product([PAIR, self.pairs_of_task(), self.results()]);
        [source, self.sums(), results, self.weights()].into_iter().fold(0, usize::saturating_add)
    }
}
