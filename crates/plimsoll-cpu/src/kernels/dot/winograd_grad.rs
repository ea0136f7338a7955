//! The weight gradient with Winograd's F(2, 3) along height and width: 16 products for 36 of a direct one.
//!
//! The sum runs over tiles, so the two values of a pair belong to neighbouring tiles of a row: `[…][pair of tiles][16][2]`. A task has
//! some source blocks, some output blocks and a part of the positions. It walks down the depth of strips of rows, with the transformed
//! planes of the source that the next planes of gradients meet: each is gathered and transformed once. Values are rounded to bf16 when
//! they are transformed; products are summed in registers over runs of tiles, and runs in f32.

mod tiling;
mod transform;

pub(crate) use tiling::{StripGradTiling, pays, products};

use self::transform::{TransformGradient, TransformSource};
use super::grad_run::{COLUMN, GradRun};
use super::winograd::{READ, SQUARE_POINTS, inside};
use crate::kernel::{DotKernel, Ptr};
use crate::kernels::f23::{POINTS, RESULTS, WIDTH, weight_gradients};
use crate::kernels::patch::Blocks;
use crate::kernels::sum_parts::SumParts;
use crate::simd::dot::{Dot, PAIR};
use crate::simd::{LANES, Simd};

/// Output blocks of a task, and source blocks: all pairs of them share what is gathered.
const GROUP: usize = 2;
/// Columns that a pair of tiles is the results of.
const PAIR_RESULTS: usize = PAIR * RESULTS;
/// Pairs of tiles that are summed in registers, about: their gradients stay in the first-level cache while all lanes go over them.
const RUN_PAIRS: usize = 64;

/// The weight gradient of a convolution between features, bound to memory.
pub(crate) struct StripGrad {
    tiling: StripGradTiling,
    /// Constants of the tiling, computed once: elements and floats of one point.
    source_point: usize,
    gradient_point: usize,
    sum_point: usize,
    source: Blocks,
    /// The gradient of the convolution's result.
    gradient: Blocks,
    /// The memory of the sums: `[part][output block][source block][tap][lane][16]`, the result if there is one part.
    sums: Ptr<f32>,
    /// Scratch, per thread: [`StripGradTiling::per_thread`] bytes.
    scratch: Ptr<u8>,
}

/// A task's scratch, which is its thread's: the parts of [`StripGradTiling::per_thread`].
#[derive(Clone, Copy)]
struct Scratch {
    /// `[source block][point][plane][row][pair of tiles][16][2]`
    source: *mut u16,
    /// `[output block][point][plane][row][pair of tiles][16][2]`
    gradient: *mut u16,
    /// `[source block][output block][point][plane of the kernel][lane][16]`
    sums: *mut f32,
    /// `[row][column][16]`
    rows: *mut f32,
}

/// The blocks that a task computes.
struct TaskBlocks {
    /// The first source block, and how many there are.
    source: (usize, usize),
    /// The same of output blocks.
    out: (usize, usize),
    part: usize,
}

/// A strip of a walk.
struct Strip {
    sample: usize,
    /// The first row of results.
    first: usize,
    /// Rows of tiles.
    rows: usize,
}

impl StripGrad {
    /// The kernel, and what adds up its parts, if there are several.
    pub(crate) fn new(
        tiling: StripGradTiling,
        source: Blocks,
        gradient: Blocks,
        result: Ptr<f32>,
        partial: Ptr<f32>,
        scratch: Ptr<u8>,
    ) -> (StripGrad, Option<SumParts>) {
        let several = tiling.parts > 1;
        let add = several.then(|| SumParts { partial, result, parts: tiling.parts, count: tiling.weights() });
        let sums = if several { partial } else { result };
        let points = [tiling.source_point(), tiling.gradient_point(), tiling.sum_point()];
        let [source_point, gradient_point, sum_point] = points;
        let kernel =
            StripGrad { tiling, source_point, gradient_point, sum_point, source, gradient, sums, scratch };
        (kernel, add)
    }

    /// Gathers and transforms a plane of the source, numbered from the first that any tap of the first results reads.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel. `strip` is one of the result's, `block` one of the source, `rows` this thread's, and
    /// `to` the place of a plane of [`Scratch::source`].
    #[inline(always)]
    unsafe fn gather_source<D: Dot>(
        &self,
        strip: &Strip,
        block: usize,
        plane: usize,
        rows: *mut f32,
        to: *mut u16,
    ) {
        let tiling = &self.tiling;
        let [depth, height, width] = tiling.source;
        let point = self.source_point;
        let row_elements = tiling.pairs * COLUMN;
        let columns = tiling.columns();
        // SAFETY: each point has a plane of `strip.rows` rows of tiles at `to`; there is room for `READ` rows of `columns` columns, and
        // planes and rows of the source are checked to be inside of it.
        unsafe {
            let Some(d) = inside(tiling.low[0], plane, depth) else {
                for point in (0..SQUARE_POINTS).map(|i| i * point) {
                    to.add(point).write_bytes(0, strip.rows * row_elements);
                }
                return;
            };
            for at in 0..strip.rows * RESULTS + WIDTH - 1 {
                let row = inside(tiling.low[1], strip.first + at, height).map(|h| d * height + h);
                let line = rows.add(at % READ * columns * LANES);
                self.source.row::<D>(block, strip.sample, row, tiling.low[2], width, columns, line);
                // The last row of a row of tiles.
                if at + 1 >= READ && (at + 1 - READ).is_multiple_of(RESULTS) {
                    let first = at + 1 - READ;
                    let to = to.add(first / RESULTS * row_elements);
                    self.transform_source::<D>(first, rows, to);
                }
            }
        }
    }

    /// Transforms a row of tiles of the source, whose first row of inputs is `first`.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`. `rows` are `READ` rows, each at its number modulo that, and `to` is the place of a row
    /// of tiles of the source.
    #[inline(always)]
    unsafe fn transform_source<D: Dot>(&self, first: usize, rows: *const f32, to: *mut u16) {
        let stride = self.tiling.columns() * LANES;
        // SAFETY: a row has columns for all that its tiles read, and the source has a place for each pair in each point.
        unsafe {
            let row = |i: usize| rows.wrapping_add((first + i) % READ * stride);
            let body = TransformSource {
                rows: [row(0), row(1), row(2), row(3)],
                to,
                point: self.source_point,
                pairs: self.tiling.pairs,
            };
            D::call(body);
        }
    }

    /// Gathers and transforms a plane of the gradients of a block.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel. `strip` is one of the result's, `block` and `d` one of its blocks and planes, `rows`
    /// this thread's, and `to` the place of a plane of [`Scratch::gradient`].
    #[inline(always)]
    unsafe fn gather_gradient<D: Dot>(
        &self,
        strip: &Strip,
        block: usize,
        d: usize,
        rows: *mut f32,
        to: *mut u16,
    ) {
        let tiling = &self.tiling;
        let [_, height, width] = tiling.result;
        let columns = tiling.columns();
        for row in 0..strip.rows {
            // SAFETY: there is room for `READ` rows of `columns` columns, at least as many as the pairs have results. Rows of the gradient
            // are checked to be inside of it, and each point has a place for each row and pair.
            unsafe {
                for i in 0..RESULTS {
                    let h = strip.first + row * RESULTS + i;
                    let from = (h < height).then_some(d * height + h);
                    let line = rows.add(i * columns * LANES);
                    self.gradient.row::<D>(block, strip.sample, from, 0, width, columns, line);
                }
                let rows = rows.cast_const();
                let body = TransformGradient {
                    rows: [rows, rows.add(columns * LANES)],
                    to: to.add(row * tiling.pairs * COLUMN),
                    point: self.gradient_point,
                    pairs: tiling.pairs,
                };
                D::call(body);
            }
        }
    }

    /// Adds the products of `pairs` pairs of tiles of some blocks to their sums.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel. `scratch` is this thread's; the source has planes of `plane` pairs for `sources`
    /// blocks, one for each plane of the kernel behind one another from every pair on, and the gradients have as many pairs for `outs`
    /// blocks.
    #[inline(always)]
    unsafe fn add<D: Dot>(&self, scratch: Scratch, sources: usize, outs: usize, plane: usize, pairs: usize) {
        let tiling = &self.tiling;
        let (source_point, gradient_point) = (self.source_point, self.gradient_point);
        let runs = pairs.div_ceil(RUN_PAIRS);
        for point in 0..SQUARE_POINTS {
            for run in 0..runs {
                let (from, to) = (pairs * run / runs, pairs * (run + 1) / runs);
                for s in 0..sources {
                    for k in 0..tiling.taps.len() {
                        for b in (0..outs).step_by(D::BLOCKS) {
                            // SAFETY: blocks, points and pairs are those that this function's contract names; sums are there for all
                            // pairs of blocks of a group, points and planes.
                            unsafe {
                                let run = GradRun {
                                    planes: 1,
                                    rows: 1,
                                    pairs: to - from,
                                    source_strides: [0; 2],
                                    source_step: COLUMN,
                                    source: scratch.source.add(
                                        (s * SQUARE_POINTS + point) * source_point
                                            + (k * plane + from) * COLUMN,
                                    ),
                                    gradient: scratch
                                        .gradient
                                        .add((b * SQUARE_POINTS + point) * gradient_point + from * COLUMN),
                                    gradient_strides: [0; 2],
                                    gradient_block: SQUARE_POINTS * gradient_point,
                                    sums: scratch.sums.add(
                                        ((s * GROUP + b) * SQUARE_POINTS + point) * self.sum_point
                                            + k * LANES * LANES,
                                    ),
                                    sums_block: SQUARE_POINTS * self.sum_point,
                                };
                                run.add::<D>(D::BLOCKS.min(outs - b));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Sums a walk down a strip.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel; `strip` is one of the result's, `first..end` planes of it, the blocks of `at` those
    /// of source and result, at most [`GROUP`] of each, and `scratch` is this thread's.
    #[inline(always)]
    unsafe fn walk<D: Dot>(
        &self,
        strip: &Strip,
        first: usize,
        end: usize,
        at: &TaskBlocks,
        scratch: Scratch,
    ) {
        let tiling = &self.tiling;
        let plane_pairs = strip.rows * tiling.pairs;
        let plane = plane_pairs * COLUMN;
        let before = tiling.taps.len() - 1;
        let (source_point, gradient_point) = (self.source_point, self.gradient_point);
        // SAFETY: the source has `before` planes and as many as a step has, of `strip.rows` rows at most; all blocks, planes and points are
        // below those that scratch has room for.
        unsafe {
            for s in 0..at.source.1 {
                for i in 0..before {
                    let to = scratch.source.add(s * SQUARE_POINTS * source_point + i * plane);
                    self.gather_source::<D>(strip, at.source.0 + s, first + i, scratch.rows, to);
                }
            }
            let mut d = first;
            while d < end {
                let count = tiling.step.min(end - d);
                for s in 0..at.source.1 {
                    for i in before..before + count {
                        let to = scratch.source.add(s * SQUARE_POINTS * source_point + i * plane);
                        self.gather_source::<D>(strip, at.source.0 + s, d + i, scratch.rows, to);
                    }
                }
                for b in 0..at.out.1 {
                    for i in 0..count {
                        let to = scratch.gradient.add(b * SQUARE_POINTS * gradient_point + i * plane);
                        self.gather_gradient::<D>(strip, at.out.0 + b, d + i, scratch.rows, to);
                    }
                }
                self.add::<D>(scratch, at.source.1, at.out.1, plane_pairs, count * plane_pairs);
                d += count;
                if d < end {
                    // The last planes are the first of the next step.
                    for point in 0..at.source.1 * SQUARE_POINTS {
                        let planes = scratch.source.add(point * source_point);
                        planes.copy_from(planes.add(count * plane), before * plane);
                    }
                }
            }
        }
    }

    /// Computes the weights of a pair of blocks from its sums.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`; `sums` is valid for reads of `[point][plane][lane][16]`, `to` for writes of
    /// [`StripGradTiling::pair_weights`] floats.
    #[inline(always)]
    unsafe fn finish<D: Dot>(&self, sums: *const f32, to: *mut f32) {
        for (k, taps) in self.tiling.taps.iter().enumerate() {
            for lane in 0..LANES {
                // SAFETY: planes are below the kernel's, lanes below sixteen, and the indices of taps below nine times the planes.
                unsafe {
                    let sums = sums.add((k * LANES + lane) * LANES);
                    let mut rows = [[D::S::zero(); WIDTH]; POINTS];
                    for (i, row) in rows.iter_mut().enumerate() {
                        let mut u = [D::S::zero(); POINTS];
                        for (j, u) in u.iter_mut().enumerate() {
                            *u = D::S::load(sums.add((i * POINTS + j) * self.sum_point));
                        }
                        *row = weight_gradients::<D::S>(u);
                    }
                    for column in 0..WIDTH {
                        let [a, b, c, d] = &rows;
                        let weights = weight_gradients::<D::S>([a[column], b[column], c[column], d[column]]);
                        for (row, weight) in weights.iter().enumerate() {
                            D::S::store(to.add((taps[row][column] * LANES + lane) * LANES), *weight);
                        }
                    }
                }
            }
        }
    }
}

impl DotKernel for StripGrad {
    fn tasks(&self) -> usize {
        self.tiling.groups() * self.tiling.parts
    }

    #[inline(always)]
    unsafe fn task<D: Dot>(&self, task: usize, thread: usize) {
        let tiling = &self.tiling;
        let (part, task) = (task % tiling.parts, task / tiling.parts);
        let groups = tiling.source_blocks.div_ceil(GROUP);
        let (source, out) = (task % groups * GROUP, task / groups * GROUP);
        let at = TaskBlocks {
            source: (source, GROUP.min(tiling.source_blocks - source)),
            out: (out, GROUP.min(tiling.out_blocks - out)),
            part,
        };
        let all_rows = tiling.result[1].div_ceil(RESULTS);
        let walks = tiling.all_walks();
        // SAFETY: scratch has `per_thread` bytes for `thread`, in whole cache lines, which the parts add up to. Walks are below all walks,
        // so strips and planes are inside of the result; blocks and the part are below theirs, so the results are the task's own.
        unsafe {
            let planes = self.scratch.0.add(thread * tiling.per_thread());
            let gradient = planes.add(StripGradTiling::group_bytes(tiling.source_point()));
            let sums = gradient.add(StripGradTiling::group_bytes(tiling.gradient_point()));
            let rows = sums.add(tiling.sum_bytes()).cast();
            let scratch =
                Scratch { source: planes.cast(), gradient: gradient.cast(), sums: sums.cast(), rows };
            for i in (0..GROUP * GROUP * SQUARE_POINTS * self.sum_point).step_by(LANES) {
                D::S::store(scratch.sums.add(i), D::S::zero());
            }
            for walk in walks * at.part / tiling.parts..walks * (at.part + 1) / tiling.parts {
                let (segment, walk) = (walk % tiling.walks, walk / tiling.walks);
                let (strip, sample) = (walk % tiling.strips, walk / tiling.strips);
                let rows = tiling.rows.min(all_rows - strip * tiling.rows);
                let strip = Strip { sample, first: strip * tiling.rows * RESULTS, rows };
                let first = segment * tiling.walk;
                let end = tiling.result[0].min(first + tiling.walk);
                self.walk::<D>(&strip, first, end, &at, scratch);
            }
            for s in 0..at.source.1 {
                for b in 0..at.out.1 {
                    let pair = (at.out.0 + b) * tiling.source_blocks + at.source.0 + s;
                    let to = self.sums.0.add(at.part * tiling.weights() + pair * tiling.pair_weights());
                    let from = scratch.sums.add((s * GROUP + b) * SQUARE_POINTS * self.sum_point);
                    self.finish::<D>(from, to);
                }
            }
        }
    }
}
