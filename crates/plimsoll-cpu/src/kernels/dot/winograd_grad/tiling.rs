//! The tiling of the work, which depends on shapes alone.

use plimsoll_graph::Window;
use plimsoll_parallel::LINE;

use super::{GROUP, PAIR_RESULTS, RUN_PAIRS};

use crate::kernels::chunk::TASKS;
use crate::kernels::dot::grad_run::COLUMN;
use crate::kernels::dot::winograd::{PlaneTaps, READ, SQUARE_POINTS, plane_taps};
use crate::kernels::f23::{RESULTS, WIDTH};
use crate::kernels::geometry::TapGrid;
use crate::lower::product;
use crate::simd::LANES;
use crate::simd::dot::PAIR;

/// The most bytes of planes and sums, which should stay in the second-level cache.
const CACHED_BYTES: usize = 900 << 10;
/// The most rows of tiles in a strip.
const STRIP_ROWS: usize = 16;
/// The fewest planes of a walk: the planes that its first gradients need are gathered once more than if the depth were
/// not divided.
const WALK: usize = 8;
/// The least pairs of tiles of a part, for its partial sum to be worth it.
const PART_PAIRS: usize = 256;

/// Pairs of tiles that the results of a plane are divided into.
fn plane_pairs([_, height, width]: [usize; 3]) -> usize {
    product([height.div_ceil(RESULTS), width.div_ceil(PAIR_RESULTS)])
}

/// Returns `true` if this method applies to the weight gradient of a convolution between features without groups, with
/// a result of this extent, and takes at most three fifths of the products.
pub(crate) fn pays(window: &Window, result: [usize; 3]) -> bool {
    let [_, height, width] = result;
    window.stride == [1; 3]
        && window.is_dense()
        && window.kernel[1..] == [WIDTH; 2]
        && product([5 * PAIR * SQUARE_POINTS, plane_pairs(result)])
            <= product([3 * WIDTH * WIDTH, height, width])
}

/// Products for a plane of gradients, as a share of the products of a direct kernel.
pub(crate) fn products(result: [usize; 3]) -> f64 {
    let [_, height, width] = result;
    (SQUARE_POINTS * PAIR * plane_pairs(result)) as f64 / (WIDTH * WIDTH * height * width) as f64
}

/// The tiling of the work, which depends on shapes alone. Sizes beyond `usize` are `usize::MAX`, which exceeds every budget.
#[derive(Clone, Debug)]
pub(crate) struct StripGradTiling {
    pub(super) batch: usize,
    pub(super) source_blocks: usize,
    pub(super) out_blocks: usize,
    /// Planes of the kernel.
    pub(super) taps: Vec<PlaneTaps>,
    /// Rows of tiles of a strip, and strips.
    pub(super) rows: usize,
    pub(super) strips: usize,
    /// Pairs of tiles of a row.
    pub(super) pairs: usize,
    /// Planes of gradients at a time.
    pub(super) step: usize,
    /// Planes of gradients of a walk, and walks.
    pub(super) walk: usize,
    pub(super) walks: usize,
    /// Parts that the walks of all strips are divided into.
    pub(super) parts: usize,
    pub(super) low: [isize; 3],
    pub(super) source: [usize; 3],
    pub(super) result: [usize; 3],
}

impl StripGradTiling {
    /// For sources of `source_blocks` blocks, and `out_blocks` blocks of results.
    pub(crate) fn new(
        grid: &TapGrid,
        batch: usize,
        source_blocks: usize,
        out_blocks: usize,
    ) -> StripGradTiling {
        let [depth, height, width] = grid.result;
        let all_rows = height.div_ceil(RESULTS);
        let mut tiling = StripGradTiling {
            batch,
            source_blocks,
            out_blocks,
            taps: plane_taps(grid),
            rows: all_rows.clamp(1, STRIP_ROWS),
            strips: 1,
            pairs: width.div_ceil(PAIR_RESULTS).max(1),
            step: 1,
            walk: depth,
            walks: 1,
            parts: 1,
            low: grid.low,
            source: grid.source,
            result: grid.result,
        };
        while tiling.rows > 1 && tiling.per_thread() > CACHED_BYTES {
            tiling.rows -= 1;
        }
        tiling.strips = all_rows.div_ceil(tiling.rows).max(1);
        tiling.rows = all_rows.div_ceil(tiling.strips).max(1);
        tiling.strips = all_rows.div_ceil(tiling.rows);
        tiling.step = RUN_PAIRS.div_ceil(product([tiling.rows, tiling.pairs])).clamp(1, depth.max(1));
        while tiling.step > 1 && tiling.per_thread() > CACHED_BYTES {
            tiling.step -= 1;
        }
        let wanted = TASKS.div_ceil(tiling.groups().max(1));
        let wanted = wanted.min(product([batch, depth, plane_pairs(grid.result)]) / PART_PAIRS).max(1);
        while product([batch, tiling.strips, tiling.walks]) < wanted && depth / (2 * tiling.walks) >= WALK {
            tiling.walks *= 2;
        }
        tiling.walk = depth.div_ceil(tiling.walks).max(1);
        tiling.walks = depth.div_ceil(tiling.walk);
        tiling.parts = wanted.min(tiling.all_walks()).max(1);
        tiling
    }

    /// Pairs of groups of blocks.
    pub(super) fn groups(&self) -> usize {
        product([self.out_blocks.div_ceil(GROUP), self.source_blocks.div_ceil(GROUP)])
    }

    /// Walks of all strips and samples.
    pub(super) fn all_walks(&self) -> usize {
        product([self.batch, self.strips, self.walks])
    }

    /// Elements of some planes of one point and a line more, so that the points of a tile do not fall into the same sets of a cache.
    fn point(&self, planes: usize) -> usize {
        product([planes, self.rows, self.pairs, COLUMN]).saturating_add(COLUMN)
    }

    /// The same of the source, and of the gradients.
    #[inline]
    pub(super) fn source_point(&self) -> usize {
        self.point(self.step.saturating_add(self.taps.len() - 1))
    }

    #[inline]
    pub(super) fn gradient_point(&self) -> usize {
        self.point(self.step)
    }

    /// Bytes of all points of a group of blocks.
    #[inline]
    pub(super) fn group_bytes(point: usize) -> usize {
        product([GROUP, SQUARE_POINTS, point, size_of::<u16>()])
    }

    /// Floats of the sums of one point of a pair of blocks.
    #[inline]
    pub(super) fn sum_point(&self) -> usize {
        product([self.taps.len(), LANES, LANES])
    }

    #[inline]
    pub(super) fn sum_bytes(&self) -> usize {
        product([GROUP * GROUP * SQUARE_POINTS, self.sum_point(), size_of::<f32>()])
    }

    /// Columns that the tiles of a row read.
    #[inline]
    pub(super) fn columns(&self) -> usize {
        product([self.pairs, PAIR_RESULTS]).saturating_add(WIDTH - 1)
    }

    /// Bytes of scratch of a thread, whole cache lines: planes of source and gradients, sums, and the rows that are transformed.
    pub(crate) fn per_thread(&self) -> usize {
        let rows = product([READ, self.columns(), LANES, size_of::<f32>()]);
        let planes = [self.source_point(), self.gradient_point()].map(StripGradTiling::group_bytes);
        let bytes = [planes[0], planes[1], self.sum_bytes(), rows].into_iter().fold(0, usize::saturating_add);
        bytes.checked_next_multiple_of(LINE).unwrap_or(usize::MAX)
    }

    /// Floats of the weights of one pair of blocks.
    #[inline]
    pub(super) fn pair_weights(&self) -> usize {
        product([self.taps.len(), WIDTH * WIDTH * LANES * LANES])
    }

    /// Floats of one copy of the gradient.
    #[inline]
    pub(super) fn weights(&self) -> usize {
        product([self.out_blocks, self.source_blocks, self.pair_weights()])
    }

    /// Floats of the partial sums.
    pub(crate) fn partial(&self) -> usize {
        if self.parts > 1 { product([self.parts, self.weights()]) } else { 0 }
    }
}
