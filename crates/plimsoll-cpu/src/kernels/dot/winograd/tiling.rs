//! The convolutions that the method pays for, and the tiling of their work.

use plimsoll_graph::Window;
use plimsoll_parallel::LINE;

use crate::kernels::chunk::TASKS;
use crate::kernels::dot::SQUARE;
use crate::kernels::f23::{POINTS, RESULTS, WIDTH};
use crate::kernels::geometry::TapGrid;
use crate::lower::product;
use crate::simd::LANES;

/// Points of a tile.
pub(in crate::kernels::dot) const SQUARE_POINTS: usize = POINTS * POINTS;
/// Columns or rows that a tile reads.
pub(in crate::kernels::dot) const READ: usize = RESULTS + WIDTH - 1;
/// Output blocks that are summed at a time, at most.
pub(super) const BLOCKS: usize = 2;
/// The most bytes of the ring and the sums: half of a second-level cache of a mebibyte, which weights, sources and results stream through.
const CACHED_BYTES: usize = 450 << 10;
/// The approximate number of tiles whose sums are in memory at a time.
const HELD_TILES: usize = 32;
/// The most rows of tiles in a strip, and tiles in a row of it.
const STRIP: [usize; 2] = [16, 32];
/// The fewest planes of a walk: the planes of its ring are gathered once more than if the depth were not divided.
const WALK: usize = 8;
/// The fewest tiles of a plane for which it pays: weights are 16/9 as large as in a direct convolution, and are read for each plane.
const PLANE_TILES: usize = 9;

/// Returns `true` if this method applies to a convolution between features without groups, or its transpose, to a
/// result of this extent, and takes at most three fifths of the products.
pub(crate) fn pays(window: &Window, [_, height, width]: [usize; 3]) -> bool {
    let tiles = product([height.div_ceil(RESULTS), width.div_ceil(RESULTS)]);
    window.stride == [1; 3]
        && window.is_dense()
        && window.kernel[1..] == [WIDTH; 2]
        && tiles >= PLANE_TILES
        && product([5 * SQUARE_POINTS, tiles]) <= product([3 * WIDTH * WIDTH, height, width])
}

/// Products for a plane of results, as a share of the products of a direct convolution.
pub(crate) fn products([_, height, width]: [usize; 3]) -> f64 {
    let tiles = height.div_ceil(RESULTS) * width.div_ceil(RESULTS);
    (SQUARE_POINTS * tiles) as f64 / (WIDTH * WIDTH * height * width) as f64
}

/// The places in the kernel of the taps of one plane, row by row.
pub(crate) type PlaneTaps = [[usize; WIDTH]; WIDTH];

/// The taps of a convolution that is computed in this way, plane by plane of the source.
pub(crate) fn plane_taps(grid: &TapGrid) -> Vec<PlaneTaps> {
    let phases = grid.phases.iter().flat_map(|phase| &phase.taps);
    let mut taps: Vec<_> = phases.map(|tap| (tap.shift, tap.index)).collect();
    taps.sort_unstable();
    let plane = |taps: &[([isize; 3], usize)]| {
        [0, 1, 2].map(|row| [0, 1, 2].map(|column| taps[row * WIDTH + column].1))
    };
    taps.chunks_exact(WIDTH * WIDTH).map(plane).collect()
}

/// The place of what is read, if it is inside of an extent: the least shift of all taps from a position.
#[inline]
pub(in crate::kernels::dot) fn inside(low: isize, at: usize, extent: usize) -> Option<usize> {
    usize::try_from(at as isize + low).ok().filter(|place| *place < extent)
}

/// The tiling of the work, which depends on shapes alone. Sizes beyond `usize` are `usize::MAX`, which exceeds every budget.
#[derive(Clone, Debug)]
pub(crate) struct StripTiling {
    pub(super) batch: usize,
    pub(super) source_blocks: usize,
    pub(super) out_blocks: usize,
    /// Planes of the kernel.
    pub(super) planes: usize,
    /// Rows of tiles of a strip, and tiles of a row of it.
    pub(super) rows: usize,
    pub(super) tiles: usize,
    /// Strips below and beside one another.
    pub(super) strips: [usize; 2],
    /// The number of rows of tiles whose sums are in memory at a time.
    pub(super) held: usize,
    /// Planes of results of a walk, and walks.
    pub(super) walk: usize,
    pub(super) walks: usize,
    /// Parts of the output blocks.
    pub(super) splits: usize,
    pub(super) low: [isize; 3],
    pub(super) source: [usize; 3],
    pub(super) result: [usize; 3],
}

impl StripTiling {
    /// For a source of `source_blocks` blocks, and `out_blocks` blocks of results.
    pub(crate) fn new(grid: &TapGrid, batch: usize, source_blocks: usize, out_blocks: usize) -> StripTiling {
        let [depth, height, width] = grid.result;
        let all = [height, width].map(|extent| extent.div_ceil(RESULTS));
        // In equal parts of at most so many: their size, and how many there are.
        let parts = |axis: usize, most: usize| {
            let size = all[axis].div_ceil(all[axis].div_ceil(most).max(1)).max(1);
            (size, all[axis].div_ceil(size))
        };
        let (tiles, across) = parts(1, STRIP[1]);
        let mut tiling = StripTiling {
            batch,
            source_blocks,
            out_blocks,
            planes: grid.span[0] + 1,
            rows: all[0].clamp(1, STRIP[0]),
            tiles,
            strips: [1, across],
            held: (HELD_TILES / tiles).max(1),
            walk: depth,
            walks: 1,
            splits: 1,
            low: grid.low,
            source: grid.source,
            result: grid.result,
        };
        while tiling.rows > 1 && tiling.ring_bytes().saturating_add(tiling.sum_bytes()) > CACHED_BYTES {
            tiling.rows -= 1;
        }
        (tiling.rows, tiling.strips[0]) = parts(0, tiling.rows);
        let strips = product([batch, tiling.strips[0], tiling.strips[1]]);
        while product([strips, tiling.walks]) < TASKS && depth / (2 * tiling.walks) >= WALK {
            tiling.walks *= 2;
        }
        tiling.walk = depth.div_ceil(tiling.walks).max(1);
        tiling.walks = depth.div_ceil(tiling.walk);
        let pairs = out_blocks.div_ceil(BLOCKS);
        tiling.splits = TASKS.div_ceil(product([strips, tiling.walks]).max(1)).min(pairs).max(1);
        tiling
    }

    /// Elements of a plane of the ring, of one point.
    #[inline]
    pub(super) fn plane(&self) -> usize {
        product([self.rows, self.tiles, LANES])
    }

    /// Elements of the ring of one point and a column more, so that the points of a tile do not fall into the same sets of a cache.
    #[inline]
    pub(super) fn point(&self) -> usize {
        product([self.planes, self.plane()]).saturating_add(LANES)
    }

    /// Floats of the sums of one point, and a column more.
    #[inline]
    pub(super) fn sum_point(&self) -> usize {
        product([product([self.held, self.tiles]).saturating_add(1), LANES])
    }

    #[inline]
    pub(super) fn ring_bytes(&self) -> usize {
        let bytes = product([self.source_blocks, SQUARE_POINTS, self.point(), size_of::<u16>()]);
        bytes.checked_next_multiple_of(LINE).unwrap_or(usize::MAX)
    }

    pub(super) fn sum_bytes(&self) -> usize {
        product([BLOCKS, SQUARE_POINTS, self.sum_point(), size_of::<f32>()])
    }

    /// Bytes of scratch of a thread: the ring and the sums.
    pub(crate) fn per_thread(&self) -> usize {
        self.ring_bytes().saturating_add(self.sum_bytes())
    }

    /// Packed weights.
    pub(crate) fn packed(&self) -> usize {
        product([SQUARE, SQUARE_POINTS, self.out_blocks, self.source_blocks, self.planes])
    }
}
