//! From sums at the points of one depth to results.

use plimsoll_parallel::each;

use super::chunks::Chunk;
use super::conv::CubeConv;
use super::{PLANE_POINTS, TILE_RESULTS};
use crate::kernel::Ptr;
use crate::kernels::f23::{POINTS, RESULTS, results};
use crate::simd::{Element, LANES, Simd};

/// Results of a tile in one plane.
const PLANE_RESULTS: usize = RESULTS * RESULTS;

/// A plane of results of a tile, row by row.
type Plane<S> = [<S as Simd>::V; PLANE_RESULTS];

/// A plane of results of a tile of a chunk.
struct TilePlane {
    tile: [usize; 3],
    /// 0 or 1.
    plane: usize,
}

impl CubeConv {
    /// Takes the sums at the points of depth `Z`, in the order 1, 2, 0, 3: with those of 0 the first plane of each tile is complete, with
    /// those of 3 the second, and stored.
    ///
    /// # Safety
    /// [`Kernel::task`](crate::kernel::Kernel::task)'s contract for this kernel; `block` is one of the output blocks, `sums` are
    /// `[point][tile][16]` of it, and `held`, `[tile][8][16]`, is what this wrote for the depths before. `result` and `added_to` are the
    /// operands'.
    #[inline(always)]
    pub(super) unsafe fn add_up<S: Simd, T: Element, const Z: usize>(
        &self,
        chunk: &Chunk,
        block: usize,
        sums: *const f32,
        held: *mut f32,
        result: Ptr<T>,
        added_to: Option<Ptr<T>>,
    ) {
        // SAFETY: the bias has sixteen lanes for each output block.
        let bias = unsafe {
            match self.operands.bias {
                Some(bias) => S::load(bias.0.add(block * LANES)),
                None => S::zero(),
            }
        };
        for (tile, [d, h, w]) in chunk.places().enumerate() {
            // SAFETY: sums and results have a place for each tile of the chunk, with sums of all points and two planes of
            // results; what is read of these was written at the depths before. The tile is one of the chunk's.
            unsafe {
                let [first, second] =
                    each([0, 1], |plane| held.add((tile * RESULTS + plane) * PLANE_RESULTS * LANES));
                let y = self.plane_results::<S>(sums.add(tile * LANES));
                let tile = [d, h, w];
                match Z {
                    1 => write::<S>(first, y),
                    2 => {
                        let one = read::<S>(first);
                        write::<S>(first, sum::<S>(one, y));
                        write::<S>(second, difference::<S>(one, y));
                    }
                    0 => {
                        let y = sum::<S>(y, read::<S>(first));
                        self.store::<S, T>(
                            chunk,
                            block,
                            TilePlane { tile, plane: 0 },
                            y,
                            bias,
                            result,
                            added_to,
                        );
                    }
                    _ => {
                        let y = sum::<S>(read::<S>(second), y);
                        self.store::<S, T>(
                            chunk,
                            block,
                            TilePlane { tile, plane: 1 },
                            y,
                            bias,
                            result,
                            added_to,
                        );
                    }
                }
            }
        }
    }

    /// Stores a plane of a tile, as far as it is inside of the result.
    ///
    /// # Safety
    /// [`CubeConv::add_up`]'s contract; the tile is one of the chunk's, and the plane one of its two.
    #[inline(always)]
    unsafe fn store<S: Simd, T: Element>(
        &self,
        chunk: &Chunk,
        block: usize,
        TilePlane { tile, plane }: TilePlane,
        y: Plane<S>,
        bias: S::V,
        result: Ptr<T>,
        added_to: Option<Ptr<T>>,
    ) {
        let [depth, height, width] = self.tiling.result;
        let [d, h, w] = each([0, 1, 2], |axis| chunk.first[axis] + RESULTS * tile[axis]);
        let d = d + plane;
        if d >= depth {
            return;
        }
        let plane = ((chunk.sample * self.tiling.out_blocks + block) * depth + d) * height;
        for (i, y) in y.into_iter().enumerate() {
            let (h, w) = (h + i / RESULTS, w + i % RESULTS);
            if h >= height || w >= width {
                continue;
            }
            // SAFETY: the place is inside of `[sample][block][D][H][W][16]`, as was just checked.
            unsafe {
                let place = ((plane + h) * width + w) * LANES;
                let mut value = S::add(y, bias);
                if let Some(added_to) = added_to {
                    value = S::add(T::load::<S>(added_to.0.add(place)), value);
                }
                T::store::<S>(result.0.add(place), value);
            }
        }
    }

    /// The plane of results that follows from the sums at the points of one depth.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `sums` belong to a tile at all points.
    #[inline(always)]
    unsafe fn plane_results<S: Simd>(&self, sums: *const f32) -> Plane<S> {
        let point = self.tiling.grid.point();
        // SAFETY: there are `PLANE_POINTS` points; the rest is arithmetic.
        unsafe {
            let mut rows = [[S::zero(); RESULTS]; POINTS];
            for (i, row) in rows.iter_mut().enumerate() {
                let mut m = [S::zero(); POINTS];
                for (j, m) in m.iter_mut().enumerate() {
                    *m = S::load(sums.add((i * POINTS + j) * point));
                }
                *row = results::<S>(m);
            }
            let left = results::<S>([rows[0][0], rows[1][0], rows[2][0], rows[3][0]]);
            let right = results::<S>([rows[0][1], rows[1][1], rows[2][1], rows[3][1]]);
            [left[0], right[0], left[1], right[1]]
        }
    }
}

// Functions and not closures: what is called in a kernel must be inlined for the instruction set to reach it.

/// Reads a plane.
///
/// # Safety
/// The machine has the instruction set of `S`; `from` is valid for reads of a plane.
#[inline(always)]
unsafe fn read<S: Simd>(from: *const f32) -> Plane<S> {
    // SAFETY: `i` is below the results of a plane, which `from` has, as this function's contract says.
    unsafe {
        let mut plane = [S::zero(); PLANE_RESULTS];
        for (i, y) in plane.iter_mut().enumerate() {
            *y = S::load(from.add(i * LANES));
        }
        plane
    }
}

/// Writes a plane.
///
/// # Safety
/// The machine has the instruction set of `S`; `to` is valid for writes of a plane.
#[inline(always)]
unsafe fn write<S: Simd>(to: *mut f32, plane: Plane<S>) {
    for (i, y) in plane.into_iter().enumerate() {
        // SAFETY: `i` is below the results of a plane, which `to` has room for, as this function's contract says.
        unsafe { S::store(to.add(i * LANES), y) };
    }
}

/// a + b
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn sum<S: Simd>(a: Plane<S>, b: Plane<S>) -> Plane<S> {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { [S::add(a[0], b[0]), S::add(a[1], b[1]), S::add(a[2], b[2]), S::add(a[3], b[3])] }
}

/// a − b
///
/// # Safety
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn difference<S: Simd>(a: Plane<S>, b: Plane<S>) -> Plane<S> {
    // SAFETY: arithmetic of `S`, whose instruction set is there by this function's contract.
    unsafe { [S::sub(a[0], b[0]), S::sub(a[1], b[1]), S::sub(a[2], b[2]), S::sub(a[3], b[3])] }
}

const _: () = assert!(PLANE_POINTS == POINTS * POINTS && TILE_RESULTS == RESULTS * PLANE_RESULTS);
