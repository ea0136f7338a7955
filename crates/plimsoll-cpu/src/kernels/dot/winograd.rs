//! Winograd's F(2, 3) along height and width: 16 products for 36 of a direct convolution.
//!
//! A task walks down the depth of a strip, which is some rows of tiles high and some columns wide. It holds as many transformed planes as
//! the kernel has, in a ring, so that each plane is gathered and transformed once; the sums over all planes and channels are taken in
//! registers. What it gathers next is fetched from memory while it sums. Values are rounded to bf16 once, when they are transformed;
//! weights as well.

mod tiling;

use self::tiling::BLOCKS;
pub(crate) use self::tiling::{PlaneTaps, StripTiling, pays, plane_taps, products};
pub(super) use self::tiling::{READ, SQUARE_POINTS, inside};
use super::winograd_gather::TransformPlane;
use super::{DotOperands, ROW, SQUARE};
use crate::kernel::DotKernel;
use crate::kernels::f23::{POINTS, RESULTS, WIDTH, results};
use crate::simd::dot::{Dot, DotBody};
use crate::simd::{LANES, Products, Simd};
use plimsoll_parallel::each;

/// A convolution between features or its transpose, bound to memory.
pub(crate) struct StripConv {
    tiling: StripTiling,
    operands: DotOperands,
}

/// A task's scratch, which is its thread's: the parts of [`StripTiling::per_thread`].
#[derive(Clone, Copy)]
struct Scratch {
    /// `[source block][point][plane of the ring][row][tile][16]`
    ring: *mut u16,
    /// `[output block][point][row][tile][16]`
    sums: *mut f32,
}

/// A strip of a task.
struct Strip {
    sample: usize,
    /// The first row and column of results.
    first: [usize; 2],
    /// Rows of tiles, and tiles of a row.
    tiles: [usize; 2],
}

impl Strip {
    /// Rows and columns that it reads.
    #[inline]
    fn read(&self) -> [usize; 2] {
        each(self.tiles, |tiles| tiles * RESULTS + WIDTH - 1)
    }
}

/// Rows of tiles of a strip that are summed at a time.
struct TileRows {
    /// The plane of the results.
    plane: usize,
    /// The first row of tiles.
    first: usize,
    /// The number of rows.
    held: usize,
}

/// The part of the next plane that is fetched from memory while results are summed.
#[derive(Clone, Copy)]
struct Ahead {
    /// Numbered as those that are gathered.
    plane: usize,
    part: usize,
    parts: usize,
}

impl StripConv {
    /// Prepares a convolution.
    pub(crate) fn new(tiling: StripTiling, operands: DotOperands) -> StripConv {
        StripConv { tiling, operands }
    }

    /// Gathers and transforms a plane of all source blocks into the ring: that which the `plane`th of all taps reads
    /// for the first plane of results, or the plane at this distance below it.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel; `strip` is one of the result's and `scratch` this thread's.
    #[inline(always)]
    unsafe fn gather<D: Dot>(&self, strip: &Strip, plane: usize, scratch: Scratch) {
        let tiling = &self.tiling;
        let [depth, height, width] = tiling.source;
        for block in 0..tiling.source_blocks {
            // SAFETY: the ring has `planes` planes of each point of each source block, with rows and tiles below the strip's.
            unsafe {
                let place = block * SQUARE_POINTS * tiling.point() + plane % tiling.planes * tiling.plane();
                let to = scratch.ring.add(place);
                let Some(plane) = inside(tiling.low[0], plane, depth) else {
                    for point in 0..SQUARE_POINTS {
                        to.add(point * tiling.point())
                            .write_bytes(0, strip.tiles[0] * strip.tiles[1] * LANES);
                    }
                    continue;
                };
                D::call(TransformPlane {
                    source: &self.operands.source,
                    block,
                    sample: strip.sample,
                    plane,
                    extent: [height, width],
                    low: each([0, 1], |axis| strip.first[axis] as isize + tiling.low[axis + 1]),
                    tiles: strip.tiles,
                    to,
                    point: tiling.point(),
                });
            }
        }
    }

    /// Asks the processor for a part of a plane of all source blocks, so that gathering it does not wait for memory.
    #[inline(always)]
    fn fetch(&self, strip: &Strip, Ahead { plane, part, parts }: Ahead) {
        let tiling = &self.tiling;
        let [depth, height, width] = tiling.source;
        let Some(d) = inside(tiling.low[0], plane, depth) else { return };
        let [rows, columns] = strip.read();
        let left = strip.first[1].saturating_add_signed(tiling.low[2]).min(width);
        let columns = columns.min(width - left);
        let all = tiling.source_blocks * rows;
        for row in all * part / parts..all * (part + 1) / parts {
            if let Some(h) = inside(tiling.low[1], strip.first[0] + row % rows, height) {
                self.operands.source.fetch(
                    row / rows,
                    strip.sample,
                    (d * height + h) * width + left,
                    columns,
                );
            }
        }
    }

    /// Sums all products of `count` output blocks for `held` rows of tiles from `first` on, and stores the results. Meanwhile it fetches
    /// what is `ahead`.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel. `strip` is one of the result's, with `first + held` rows of tiles or more, and the
    /// ring holds the planes that plane `d` of the results reads. `block + count` is at most the output blocks, `count` at most
    /// [`Dot::BLOCKS`], and `held` at most those whose sums are held.
    #[inline(always)]
    unsafe fn rows<D: Dot>(
        &self,
        strip: &Strip,
        TileRows { plane: d, first, held }: TileRows,
        block: usize,
        count: usize,
        ahead: Option<Ahead>,
        scratch: Scratch,
    ) {
        let tiling = &self.tiling;
        let tiles = held * strip.tiles[1];
        let pieces = tiles.div_ceil(D::POSITIONS);
        let out_block = tiling.source_blocks * tiling.planes * SQUARE;
        for point in 0..SQUARE_POINTS {
            if let Some(Ahead { plane, part, parts }) = ahead {
                let (part, parts) = (part * SQUARE_POINTS + point, parts * SQUARE_POINTS);
                self.fetch(strip, Ahead { plane, part, parts });
            }
            for piece in 0..pieces {
                let (from, to) = (tiles * piece / pieces, tiles * (piece + 1) / pieces);
                // SAFETY: the point, rows and tiles are below the bounds of the ring and of the sums, and the blocks below the bounds of weights.
                unsafe {
                    let piece = Piece {
                        tiling,
                        plane: d,
                        source: scratch
                            .ring
                            .add(point * tiling.point() + (first * strip.tiles[1] + from) * LANES),
                        weights: self.operands.packed.0.add((point * tiling.out_blocks + block) * out_block),
                        sums: scratch.sums.add(point * tiling.sum_point() + from * LANES),
                    };
                    match count {
                        1 => piece.sum::<D, 1>(to - from),
                        _ => piece.sum::<D, 2>(to - from),
                    }
                }
            }
        }
        for b in 0..count {
            for row in 0..held {
                // SAFETY: the sums of `count` blocks of all points are there, and the rows are the strip's.
                unsafe {
                    let from = scratch
                        .sums
                        .add(b * SQUARE_POINTS * tiling.sum_point() + row * strip.tiles[1] * LANES);
                    let at = [d, strip.first[0] + (first + row) * RESULTS, strip.first[1]];
                    self.store::<D>(strip.sample, block + b, at, from, strip.tiles[1]);
                }
            }
        }
    }

    /// Transforms the sums of a row of tiles and stores what is inside of the result.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel; sample, block, plane, first row and first column are of the
    /// task, and `from` the place of a row of this number of tiles among the sums of a block.
    #[inline(always)]
    unsafe fn store<D: Dot>(
        &self,
        sample: usize,
        block: usize,
        [d, h, left]: [usize; 3],
        from: *const f32,
        tiles: usize,
    ) {
        let tiling = &self.tiling;
        let [depth, height, width] = tiling.result;
        let plane = ((sample * tiling.out_blocks + block) * depth + d) * height;
        let sum_point = tiling.sum_point();
        // SAFETY: all points have sums of so many tiles; rows and columns are checked to be inside of the result.
        unsafe {
            let bias = self.operands.bias::<D>(block);
            for tile in 0..tiles {
                let mut rows = [[D::S::zero(); RESULTS]; POINTS];
                for (i, row) in rows.iter_mut().enumerate() {
                    let mut m = [D::S::zero(); POINTS];
                    for (j, m) in m.iter_mut().enumerate() {
                        *m = D::S::load(from.add((i * POINTS + j) * sum_point + tile * LANES));
                    }
                    *row = results::<D::S>(m);
                }
                for j in 0..RESULTS {
                    let w = left + tile * RESULTS + j;
                    let y = results::<D::S>([rows[0][j], rows[1][j], rows[2][j], rows[3][j]]);
                    for (i, y) in y.into_iter().enumerate() {
                        if h + i < height && w < width {
                            let place = ((plane + h + i) * width + w) * LANES;
                            self.operands.store::<D>(place, D::S::add(y, bias));
                        }
                    }
                }
            }
        }
    }
}

impl DotKernel for StripConv {
    fn tasks(&self) -> usize {
        let StripTiling { batch, strips, walks, splits, .. } = self.tiling;
        batch * strips[0] * strips[1] * walks * splits
    }

    #[inline(always)]
    unsafe fn task<D: Dot>(&self, task: usize, thread: usize) {
        let tiling = &self.tiling;
        let (split, task) = (task % tiling.splits, task / tiling.splits);
        let (beside, task) = (task % tiling.strips[1], task / tiling.strips[1]);
        let (below, task) = (task % tiling.strips[0], task / tiling.strips[0]);
        let (walk, sample) = (task % tiling.walks, task / tiling.walks);
        let first = [below * tiling.rows, beside * tiling.tiles];
        let left = |axis: usize| tiling.result[axis + 1].div_ceil(RESULTS) - first[axis];
        let tiles = [tiling.rows.min(left(0)), tiling.tiles.min(left(1))];
        let strip = Strip { sample, first: first.map(|tile| tile * RESULTS), tiles };
        let pairs = tiling.out_blocks.div_ceil(BLOCKS);
        let of_split = |split: usize| (BLOCKS * (pairs * split / tiling.splits)).min(tiling.out_blocks);
        let first = walk * tiling.walk;
        // SAFETY: scratch has `per_thread` bytes for `thread`, in whole cache lines, which the parts add up to. The strip is inside the
        // result, and when a plane of results is summed, the planes that it reads were the last to be gathered.
        unsafe {
            let ring = self.operands.scratch.0.add(thread * tiling.per_thread());
            let sums = ring.add(tiling.ring_bytes());
            let scratch = Scratch { ring: ring.cast(), sums: sums.cast() };
            for plane in first..first + tiling.planes - 1 {
                self.gather::<D>(&strip, plane, scratch);
            }
            let end = tiling.result[0].min(first + tiling.walk);
            let blocks = of_split(split)..of_split(split + 1);
            let runs = strip.tiles[0].div_ceil(tiling.held);
            let parts = blocks.len().div_ceil(D::BLOCKS) * runs;
            for d in first..end {
                self.gather::<D>(&strip, d + tiling.planes - 1, scratch);
                let mut part = 0;
                for block in blocks.clone().step_by(D::BLOCKS) {
                    let count = D::BLOCKS.min(blocks.end - block);
                    for row in (0..strip.tiles[0]).step_by(tiling.held) {
                        let held = tiling.held.min(strip.tiles[0] - row);
                        let ahead = (d + 1 < end).then_some(Ahead { plane: d + tiling.planes, part, parts });
                        let rows = TileRows { plane: d, first: row, held };
                        self.rows::<D>(&strip, rows, block, count, ahead, scratch);
                        part += 1;
                    }
                }
            }
        }
    }
}

/// The sums of some tiles at one point.
struct Piece<'a> {
    tiling: &'a StripTiling,
    /// The plane of the results.
    plane: usize,
    /// The first tile in the first plane of the ring.
    source: *const u16,
    /// Packed weights of the point and the first block of outputs.
    weights: *const u16,
    sums: *mut f32,
}

/// A piece to be summed. To run it asks for [`Piece::sum`]'s contract.
struct SumPiece<'a, const B: usize, const W: usize>(&'a Piece<'a>);

impl Piece<'_> {
    /// Sums the products of `B` blocks of outputs and `width` tiles.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`. The ring has all planes of the tiles in each source block; weights are there for `B`
    /// blocks of outputs, and so are places of sums.
    ///
    /// # Panics
    /// Panics if there are more blocks than [`Dot::BLOCKS`], or more tiles than [`Dot::POSITIONS`].
    #[inline(always)]
    unsafe fn sum<D: Dot, const B: usize>(&self, width: usize) {
        macro_rules! choose {
            ($($w:literal)+) => {
                match width {
                    $($w => {
                        // Known when compiling, so that tiles too large for the registers are not compiled.
                        if const { B <= D::BLOCKS && $w <= D::POSITIONS } {
                            // SAFETY: this function's contract includes the body's, for so many tiles.
                            unsafe { D::call(SumPiece::<B, $w>(self)) }
                        } else {
                            unreachable!("a piece of {B} × {width} sums is too large")
                        }
                    })+
                    // Tiles are divided into these widths only.
                    _ => unreachable!("no piece of {width} tiles"),
                }
            };
        }
        choose!(1 2 3 4 5 6 7 8 9 10 11 12 13 14);
    }
}

impl<const B: usize, const W: usize> DotBody for SumPiece<'_, B, W> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        let Piece { tiling, plane, source, weights, sums: to } = *self.0;
        let out_block = tiling.source_blocks * tiling.planes * SQUARE;
        let (ring_block, ring_plane) = (SQUARE_POINTS * tiling.point(), tiling.plane());
        // SAFETY: whoever runs this body answers for `Piece::sum`'s contract: planes are below the bounds of the ring, and blocks below those
        // of the source and of the weights.
        unsafe {
            let mut sums = [[[D::no_sum(); W]]; B];
            let mut weights = weights;
            for source_block in 0..tiling.source_blocks {
                let source = source.add(source_block * ring_block);
                for k in 0..tiling.planes {
                    let source = source.add((plane + k) % tiling.planes * ring_plane);
                    let of = Products {
                        weights,
                        weight_step: ROW,
                        weight_block: out_block,
                        source,
                        source_row: 0,
                    };
                    D::add_products(&mut sums, &of);
                    weights = weights.add(SQUARE);
                }
            }
            let sums = D::finish(sums);
            let sum_block = SQUARE_POINTS * tiling.sum_point();
            for (b, [sums]) in sums.iter().enumerate() {
                for (p, sum) in sums.iter().enumerate() {
                    D::S::store(to.add(b * sum_block + p * LANES), *sum);
                }
            }
        }
    }
}
