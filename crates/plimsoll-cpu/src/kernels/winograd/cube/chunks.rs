//! Chunks of tiles, what they read of a map, and the points of it with the same depth.

use plimsoll_parallel::each;

use super::{PLANE_POINTS, READ};
use crate::kernels::f23::{POINTS, RESULTS, gradients, inputs};
use crate::kernels::geometry::{Places, places};
use crate::kernels::patch::Blocks;
use crate::lower::product;
use crate::simd::{LANES, Simd};

/// The chunks in which the tiles of a result read a map.
#[derive(Clone, Debug)]
pub(super) struct ChunkGrid {
    pub(super) batch: usize,
    /// Tiles of a chunk along each axis, and of the result.
    pub(super) chunk: [usize; 3],
    pub(super) all: [usize; 3],
    /// Voxels that a tile reads along an axis.
    pub(super) reads: usize,
    /// The place of the first of them, relative to the tile's first result.
    pub(super) low: [isize; 3],
    /// Extent of the map.
    pub(super) source: [usize; 3],
}

/// The tiles of a task.
pub(super) struct Chunk {
    pub(super) sample: usize,
    /// The first result along each axis.
    pub(super) first: [usize; 3],
    /// Tiles along each axis.
    pub(super) count: [usize; 3],
}

/// The columns of a chunk's rows.
struct Columns {
    /// Columns before the columns of the source.
    border: usize,
    /// Columns of the source.
    from: usize,
    end: usize,
}

impl Chunk {
    /// The places of its tiles along each axis, row by row.
    #[inline(always)]
    pub(super) fn places(&self) -> Places {
        places(self.count)
    }
}

impl ChunkGrid {
    /// Chunks along each axis.
    #[inline]
    fn chunks(&self) -> [usize; 3] {
        each([0, 1, 2], |axis| self.all[axis].div_ceil(self.chunk[axis]))
    }

    /// Chunks of all samples.
    #[inline]
    pub(super) fn count(&self) -> usize {
        product([self.batch, product(self.chunks())])
    }

    /// The chunk of a number.
    #[inline]
    pub(super) fn chunk(&self, number: usize) -> Chunk {
        let chunks = self.chunks();
        let (w, number) = (number % chunks[2], number / chunks[2]);
        let (h, number) = (number % chunks[1], number / chunks[1]);
        let (d, sample) = (number % chunks[0], number / chunks[0]);
        let at = each([0, 1, 2], |axis| [d, h, w][axis] * self.chunk[axis]);
        let count = each([0, 1, 2], |axis| self.chunk[axis].min(self.all[axis] - at[axis]));
        Chunk { sample, first: each(at, |at| at * RESULTS), count }
    }

    /// Tiles of a chunk.
    #[inline]
    pub(super) fn tiles(&self) -> usize {
        product(self.chunk)
    }

    /// Floats of one point of some tiles and a column more, so that the points of a tile do not fall into the same sets of a cache.
    #[inline]
    pub(super) fn point(&self) -> usize {
        product([self.tiles().saturating_add(1), LANES])
    }

    /// Planes, rows and columns that a number of tiles along each axis reads.
    #[inline]
    fn read_by(&self, tiles: [usize; 3]) -> [usize; 3] {
        each(tiles, |tiles| (tiles - 1) * RESULTS + self.reads)
    }

    /// Floats of a block before it is transformed.
    #[inline]
    pub(super) fn gathered(&self) -> usize {
        product([product(self.read_by(self.chunk)), LANES])
    }

    /// Floats of a block that is transformed.
    #[inline]
    pub(super) fn transformed(&self) -> usize {
        product([PLANE_POINTS, self.point()])
    }

    #[inline]
    fn columns(&self, chunk: &Chunk) -> Columns {
        let [_, _, read] = self.read_by(chunk.count);
        let left = chunk.first[2] as isize + self.low[2];
        let border = left.min(0).unsigned_abs().min(read);
        let from = left.max(0) as usize;
        Columns { border, from, end: (from + read - border).min(self.source[2]).max(from) }
    }

    /// The first voxel of the source's row that a chunk reads as its `plane`th and `row`th, if there is one.
    #[inline]
    fn row_of(&self, chunk: &Chunk, at: [usize; 2]) -> Option<usize> {
        let inside = |axis: usize| {
            let place = (chunk.first[axis] + at[axis]) as isize + self.low[axis];
            usize::try_from(place).ok().filter(|place| *place < self.source[axis])
        };
        Some((inside(0)? * self.source[1] + inside(1)?) * self.source[2])
    }

    /// Gathers what a chunk reads of a block, `[plane][row][column][16]`, with zeroes beyond the borders.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. The source's buffers are as its fields say, with the extent of the map, and
    /// initialised; `block` is of it and `chunk` of this grid. `to` is valid for writes of [`ChunkGrid::gathered`] floats.
    #[inline(always)]
    pub(super) unsafe fn gather<S: Simd>(&self, source: &Blocks, block: usize, chunk: &Chunk, to: *mut f32) {
        let [_, rows, columns] = self.read_by(self.chunk);
        let read = self.read_by(chunk.count);
        let Columns { border, from, end } = self.columns(chunk);
        for plane in 0..read[0] {
            for row in 0..read[1] {
                // SAFETY: `read` is at most the chunk's planes, rows and columns, so all places are below `gathered`; `inside` yields
                // planes and rows of the source only, and columns end at its width.
                unsafe {
                    let to = to.add((plane * rows + row) * columns * LANES);
                    match self.row_of(chunk, [plane, row]) {
                        Some(voxels) if from < end => {
                            clear::<S>(to, 0..border);
                            let middle = to.add(border * LANES);
                            source.widen::<S>(block, chunk.sample, voxels + from..voxels + end, middle);
                            clear::<S>(to, border + end - from..read[2]);
                        }
                        _ => clear::<S>(to, 0..read[2]),
                    }
                }
            }
        }
    }

    /// Transforms a gathered source block to its points of depth `Z`, `[point][tile][16]`.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. Tiles read [`READ`] voxels along each axis. `from` is what [`ChunkGrid::gather`] wrote for the chunk, and `to` is valid for
    /// writes of [`ChunkGrid::transformed`] floats.
    #[inline(always)]
    pub(super) unsafe fn transform<S: Simd, const Z: usize>(
        &self,
        chunk: &Chunk,
        from: *const f32,
        to: *mut f32,
    ) {
        let [_, rows, columns] = self.read_by(self.chunk);
        let (row, plane) = (columns * LANES, rows * columns * LANES);
        for (tile, [d, h, w]) in chunk.places().enumerate() {
            // SAFETY: a chunk's tiles read planes, rows and columns below those that are gathered, and there is a place for
            // each of its tiles in each point.
            unsafe {
                let from = from.add(RESULTS * (d * plane + h * row + w * LANES));
                let mut points = [[S::zero(); POINTS]; READ];
                for (i, points) in points.iter_mut().enumerate() {
                    let from = from.add(i * row);
                    for (j, point) in points.iter_mut().enumerate() {
                        *point = along_depth::<S, Z>(from.add(j * LANES), plane);
                    }
                    *points = inputs::<S>(*points);
                }
                for j in 0..POINTS {
                    let v = inputs::<S>([points[0][j], points[1][j], points[2][j], points[3][j]]);
                    for (i, v) in v.into_iter().enumerate() {
                        S::store(to.add((i * POINTS + j) * self.point() + tile * LANES), v);
                    }
                }
            }
        }
    }

    /// Transforms a gathered block of gradients to their points of depth `Z`, `[point][tile][16]`.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. Tiles read [`RESULTS`] voxels along each axis. `from` is what [`ChunkGrid::gather`]
    /// wrote for the chunk, and `to` is valid for writes of [`ChunkGrid::transformed`] floats.
    #[inline(always)]
    pub(super) unsafe fn transform_gradient<S: Simd, const Z: usize>(
        &self,
        chunk: &Chunk,
        from: *const f32,
        to: *mut f32,
    ) {
        let [_, rows, columns] = self.read_by(self.chunk);
        let (row, plane) = (columns * LANES, rows * columns * LANES);
        for (tile, [d, h, w]) in chunk.places().enumerate() {
            // SAFETY: as in `transform`.
            unsafe {
                let from = from.add(RESULTS * (d * plane + h * row + w * LANES));
                let mut points = [[S::zero(); POINTS]; RESULTS];
                for (i, points) in points.iter_mut().enumerate() {
                    let from = from.add(i * row);
                    let left = gradient_along_depth::<S, Z>(from, plane);
                    let right = gradient_along_depth::<S, Z>(from.add(LANES), plane);
                    *points = gradients::<S>([left, right]);
                }
                for j in 0..POINTS {
                    let v = gradients::<S>([points[0][j], points[1][j]]);
                    for (i, v) in v.into_iter().enumerate() {
                        S::store(to.add((i * POINTS + j) * self.point() + tile * LANES), v);
                    }
                }
            }
        }
    }
}

/// Row `Z` of Bᵀ d, for the planes of a column.
///
/// # Safety
/// The machine has the instruction set of `S`; `from` is valid for reads of sixteen floats in each of [`READ`] planes.
#[inline(always)]
unsafe fn along_depth<S: Simd, const Z: usize>(from: *const f32, plane: usize) -> S::V {
    // SAFETY: the four planes are there, as this function's contract says; what of them is not used is not read either.
    unsafe {
        let d = |at: usize| S::load(from.add(at * plane));
        match Z {
            0 => S::sub(d(0), d(2)),
            1 => S::add(d(1), d(2)),
            2 => S::sub(d(2), d(1)),
            _ => S::sub(d(3), d(1)),
        }
    }
}

/// Row `Z` of A dy, for the planes of a column.
///
/// # Safety
/// The machine has the instruction set of `S`; `from` is valid for reads of sixteen floats in each of [`RESULTS`] planes.
#[inline(always)]
unsafe fn gradient_along_depth<S: Simd, const Z: usize>(from: *const f32, plane: usize) -> S::V {
    // SAFETY: both planes are there, as this function's contract says; what of them is not used is not read either.
    unsafe {
        let y = |at: usize| S::load(from.add(at * plane));
        match Z {
            0 => y(0),
            1 => S::add(y(0), y(1)),
            2 => S::sub(y(0), y(1)),
            _ => y(1),
        }
    }
}

/// Writes zeroes to some columns of a row.
///
/// # Safety
/// The machine has the instruction set of `S`; `row` is valid for writes of these columns.
#[inline(always)]
unsafe fn clear<S: Simd>(row: *mut f32, columns: std::ops::Range<usize>) {
    for column in columns {
        // SAFETY: the column is there, as this function's contract says.
        unsafe { S::store(row.add(column * LANES), S::zero()) };
    }
}

/// The tiles of a chunk along each axis: of `all`, about `most` in all and `widest` along the width, wide first, and as many in each chunk.
#[inline]
pub(super) fn chunk(all: [usize; 3], most: usize, widest: usize) -> [usize; 3] {
    let mut chunk = [1, 1, all[2].clamp(1, widest.min(most))];
    loop {
        // Height before depth, so that rows that are read in turn lie close to each other.
        let order = if chunk[1] <= chunk[0] { [1, 0] } else { [0, 1] };
        let axis = order.into_iter().find(|axis| chunk[*axis] < all[*axis] && 2 * product(chunk) <= most);
        let Some(axis) = axis else { break };
        chunk[axis] = (2 * chunk[axis]).min(all[axis]);
    }
    let even = |axis: usize| all[axis].div_ceil(all[axis].div_ceil(chunk[axis]).max(1)).max(1);
    each([0, 1, 2], even)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_wide_then_high_then_deep() {
        assert_eq!(chunk([64, 64, 64], 64, 32), [1, 2, 32]);
        assert_eq!(chunk([64, 64, 64], 128, 32), [2, 2, 32]);
        assert_eq!(chunk([4, 4, 4], 64, 32), [4, 4, 4]);
        assert_eq!(chunk([2, 2, 2], 64, 32), [2, 2, 2]);
        // 33 tiles are two chunks of 17 and 16, not of 32 and one.
        assert_eq!(chunk([1, 1, 33], 64, 32), [1, 1, 17]);
        assert_eq!(chunk([1, 1, 1], 1, 32), [1, 1, 1]);
    }
}
