//! The part of a source that the tiles of a chunk read, and the points of it with the same depth.

use super::conv::Chunk;
use super::{CubeTiling, READ};
use crate::kernels::f23::{POINTS, RESULTS, inputs};
use crate::kernels::patch::Blocks;
use crate::simd::{LANES, Simd};

/// Planes, rows and columns that the tiles of a chunk read.
fn read_by(chunk: &Chunk) -> [usize; 3] {
    chunk.count.map(|tiles| (tiles - 1) * RESULTS + READ)
}

/// The columns of a chunk's rows.
struct Columns {
    /// Columns before those of the source.
    border: usize,
    /// Columns of the source.
    from: usize,
    end: usize,
}

impl CubeTiling {
    fn columns(&self, chunk: &Chunk) -> Columns {
        let [_, _, read] = read_by(chunk);
        let left = chunk.first[2] as isize + self.low[2];
        let border = left.min(0).unsigned_abs().min(read);
        let from = left.max(0) as usize;
        Columns { border, from, end: (from + read - border).min(self.source[2]).max(from) }
    }

    /// The first voxel of the source's row that a chunk reads as its `plane`th and `row`th, if there is one.
    fn row_of(&self, chunk: &Chunk, at: [usize; 2]) -> Option<usize> {
        let inside = |axis: usize| {
            let place = (chunk.first[axis] + at[axis]) as isize + self.low[axis];
            usize::try_from(place).ok().filter(|place| *place < self.source[axis])
        };
        Some((inside(0)? * self.source[1] + inside(1)?) * self.source[2])
    }

    /// Gathers what a chunk reads of a source block, `[plane][row][column][16]`, with zeroes beyond the borders.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`. The source's buffers are as its fields say, with the extent of the tiling's source, and
    /// initialised; `block` is of it and `chunk` of the tiling. `to` is valid for writes of [`CubeTiling::gathered`] floats.
    #[inline(always)]
    pub(super) unsafe fn gather<S: Simd>(&self, source: &Blocks, block: usize, chunk: &Chunk, to: *mut f32) {
        let [_, rows, columns] = self.read();
        let read = read_by(chunk);
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
    /// The machine has the instruction set of `S`. `from` is what [`CubeTiling::gather`] wrote for the chunk, and `to` is valid for
    /// writes of [`CubeTiling::transformed`] floats.
    #[inline(always)]
    pub(super) unsafe fn transform<S: Simd, const Z: usize>(
        &self,
        chunk: &Chunk,
        from: *const f32,
        to: *mut f32,
    ) {
        let [_, rows, columns] = self.read();
        let (row, plane) = (columns * LANES, rows * columns * LANES);
        let [deep, high, wide] = chunk.count;
        let mut tile = 0;
        for d in 0..deep {
            for h in 0..high {
                for w in 0..wide {
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
                    tile += 1;
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
