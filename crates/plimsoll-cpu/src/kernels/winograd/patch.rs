//! The part of a source that some tiles read, transformed: `[point][plane][row][tile][16]` for each block.
//!
//! Transformed tiles share no columns, so the tiles of a plane are contiguous, and a tap is the same
//! offset for all of them.

use plimsoll_parallel::each;

use super::transform::TileTransform;
use super::{POINTS, RESULTS};
use crate::kernels::geometry::TapGrid;
use crate::kernels::patch::{PatchShape, Source};
use crate::simd::{LANES, Simd};

/// The shape of transformed patches.
#[derive(Clone, Debug)]
pub(super) struct TilePatch {
    /// Rows gathered at a time along depth and height; all of the width.
    pub(super) chunk: [usize; 2],
    /// Tiles of a row.
    pub(super) tiles: usize,
    planes: usize,
    rows: usize,
    low: [isize; 2],
    span: [usize; 2],
    source: [usize; 3],
    /// One row before it is transformed.
    row: PatchShape,
}

impl TilePatch {
    /// Returns the patch that a grid reads for chunks of some rows, by tiles of `columns` columns.
    pub(super) fn new(grid: &TapGrid, chunk: [usize; 2], columns: usize) -> TilePatch {
        let tiles = grid.positions[2].div_ceil(RESULTS);
        let row = TapGrid {
            low: [0, 0, grid.low[2]],
            span: [0, 0, columns - RESULTS],
            positions: [1, 1, tiles * RESULTS],
            phases: Vec::new(),
            ..*grid
        };
        TilePatch {
            chunk,
            tiles,
            planes: chunk[0] + grid.span[0],
            rows: chunk[1] + grid.span[1],
            low: [grid.low[0], grid.low[1]],
            span: [grid.span[0], grid.span[1]],
            source: grid.source,
            row: PatchShape::new(&row, [1, 1], LANES),
        }
    }

    /// Floats of the tiles of a plane, of one point.
    pub(super) fn plane(&self) -> usize {
        self.rows * self.tiles * LANES
    }

    /// Floats of one point, and a column more, so that the points of a tile do not fall into the same sets of a cache.
    pub(super) fn point(&self) -> usize {
        self.planes * self.plane() + LANES
    }

    /// Floats of one block of channels.
    pub(super) fn block(&self) -> usize {
        POINTS * self.point()
    }

    /// Floats of a row that is to be transformed.
    pub(super) fn row(&self) -> usize {
        self.row.row()
    }

    /// The place of the row of a tap relative to the position's.
    #[inline]
    pub(super) fn tap_offset(&self, shift: [isize; 2]) -> usize {
        let [d, h] = each([0, 1], |axis| (shift[axis] - self.low[axis]) as usize);
        d * self.plane() + h * self.tiles * LANES
    }

    /// Gathers and transforms one block, for `count` positions along depth and height from `first` on.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. The source's buffers are as its fields say, with the extent of the grid,
    /// and initialised; `block` and `sample` are of it. `first` and `count` are positions of the grid, at most
    /// [`TilePatch::chunk`]. `row` is valid for reads and writes of [`TilePatch::row`] floats and `patch` for writes of
    /// [`TilePatch::block`].
    #[inline(always)]
    pub(super) unsafe fn gather<S: Simd, T: TileTransform>(
        &self,
        source: &Source,
        block: usize,
        sample: usize,
        first: [usize; 2],
        count: [usize; 2],
        row: *mut f32,
        patch: *mut f32,
    ) {
        let Source::Features(blocks) = source else { unreachable!("images are convolved directly") };
        let inside = |axis: usize, at: usize| {
            let place = at as isize + self.low[axis];
            (place >= 0 && (place as usize) < self.source[axis]).then_some(place as usize)
        };
        for plane in 0..count[0] + self.span[0] {
            for height in 0..count[1] + self.span[1] {
                let to = (plane * self.rows + height) * self.tiles * LANES;
                // SAFETY: `count` is at most the chunk, so planes and rows are below the bounds of the patch, and a row of all
                // points is in it. `inside` yields planes and rows of the source only.
                unsafe {
                    let to = patch.add(to);
                    match (inside(0, first[0] + plane), inside(1, first[1] + height)) {
                        (Some(d), Some(h)) => {
                            blocks.gather::<S>(block, &self.row, sample, [d, h], row);
                            self.transform_row::<S, T>(row, to);
                        }
                        _ => {
                            for point in 0..POINTS {
                                to.add(point * self.point()).write_bytes(0, self.tiles * LANES);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Transforms a row.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. `row` has [`TilePatch::row`] floats, and `to` is the place of a row in a
    /// patch of [`TilePatch::block`] floats.
    #[inline(always)]
    unsafe fn transform_row<S: Simd, T: TileTransform>(&self, row: *const f32, to: *mut f32) {
        for tile in 0..self.tiles {
            // SAFETY: a row has columns for all its tiles, of `RESULTS` columns and those that the last one reads beyond;
            // `to` has a place for each of `tiles` tiles in each point.
            unsafe {
                let points = T::transform::<S>(row.add(tile * RESULTS * LANES));
                for (i, point) in points.iter().enumerate() {
                    S::store(to.add(i * self.point() + tile * LANES), *point);
                }
            }
        }
    }
}
