//! The weight gradient: dg = Gᵀ [(A dy) ⊙ (Bᵀ d)] along all three axes, where the products of each point are summed over all tiles.
//!
//! A task has some output blocks, some source blocks and a part of the chunks. It gathers a chunk of source and gradients, and takes the
//! points depth by depth as the convolution does; each chunk is summed in registers and added to sums of the task's own. Parts are added
//! up as in `kernels::weight_grad`.

use super::chunks::{Chunk, ChunkGrid, chunk};
use super::{CubeTaps, PLANE_POINTS, READ, cube_taps, tiles};
use crate::kernel::{Kernel, Ptr};
use crate::kernels::chunk::TASKS;
use crate::kernels::f23::{POINTS, RESULTS, WIDTH, weight_gradients};
use crate::kernels::geometry::TapGrid;
use crate::kernels::patch::Blocks;
use crate::kernels::weight_grad::SumParts;
use crate::kernels::winograd::grad_run::Run;
use crate::lower::product;
use crate::simd::{LANES, Simd};

/// Source blocks of a task, and output blocks: all pairs of them share what is gathered and transformed.
const SOURCES: usize = 2;
const OUTS: usize = 2;
/// Output blocks that are summed in registers at a time, at most.
const PAIR: usize = 2;
/// Tiles of a chunk, at most: their points of one depth stay in the second-level cache, and the values of one point in the first.
const TILES: usize = 64;
/// The most tiles of a chunk along the width: longer rows leave fewer beside each other, which have more border.
const MOST_WIDE: usize = 8;
/// The least tiles of a part, for its partial sum to be worth it.
const PART_TILES: usize = 128;
/// Weights of sixteen inputs and sixteen outputs at one place.
const SQUARE: usize = LANES * LANES;
/// Floats of the sums of a pair of blocks, and a vector more, so that pairs do not fall into the same sets of a cache.
const PAIR_SUMS: usize = POINTS * PLANE_POINTS * SQUARE + LANES;

/// The tiling of the work, which depends on shapes alone. Sizes beyond `usize` are `usize::MAX`, which exceeds every budget.
#[derive(Clone, Debug)]
pub(crate) struct CubeGradTiling {
    source: ChunkGrid,
    gradient: ChunkGrid,
    source_blocks: usize,
    out_blocks: usize,
    /// Parts that the chunks are divided into.
    parts: usize,
    places: CubeTaps,
}

impl CubeGradTiling {
    /// For a source of `source_blocks` blocks, and `out_blocks` blocks of results.
    pub(crate) fn new(
        grid: &TapGrid,
        batch: usize,
        source_blocks: usize,
        out_blocks: usize,
    ) -> CubeGradTiling {
        let all = tiles(grid.result);
        let chunk = chunk(all, TILES, MOST_WIDE);
        let source = ChunkGrid { batch, chunk, all, reads: READ, low: grid.low, source: grid.source };
        let gradient = ChunkGrid { reads: RESULTS, low: [0; 3], source: grid.result, ..source.clone() };
        let groups = product([source_blocks.div_ceil(SOURCES), out_blocks.div_ceil(OUTS)]).max(1);
        let most = (product([batch, product(all)]) / PART_TILES).min(source.count());
        let parts = TASKS.div_ceil(groups).min(most).max(1);
        CubeGradTiling { source, gradient, source_blocks, out_blocks, parts, places: cube_taps(grid) }
    }

    /// Floats of the weights of one pair of blocks.
    fn pair_weights(&self) -> usize {
        self.places.as_flattened().as_flattened().len() * SQUARE
    }

    /// Floats of one copy of the gradient.
    fn weights(&self) -> usize {
        product([self.out_blocks, self.source_blocks, self.pair_weights()])
    }

    /// Floats of the partial sums.
    pub(crate) fn partial(&self) -> usize {
        if self.parts > 1 { product([self.parts, self.weights()]) } else { 0 }
    }

    /// Floats of scratch of a thread: source and gradients, gathered and at the points of a depth, and sums.
    pub(crate) fn per_thread(&self) -> usize {
        let blocks =
            |count, grid: &ChunkGrid| product([count, grid.gathered().saturating_add(grid.transformed())]);
        let floats =
            [blocks(SOURCES, &self.source), blocks(OUTS, &self.gradient), SOURCES * OUTS * PAIR_SUMS];
        floats.into_iter().fold(0, usize::saturating_add)
    }
}

/// The weight gradient of a convolution between features, bound to memory.
pub(crate) struct CubeWeightGrad {
    tiling: CubeGradTiling,
    source: Blocks,
    /// The gradient of the convolution's result.
    gradient: Blocks,
    /// The memory of the sums: `[part][output block][source block][tap][lane][16]`, the result if there is one part.
    sums: Ptr<f32>,
    /// Scratch, per thread: [`CubeGradTiling::per_thread`] floats.
    scratch: Ptr<f32>,
}

/// The blocks that a task computes.
struct TaskBlocks {
    /// The first source block, and how many there are.
    source: (usize, usize),
    /// The same of output blocks.
    out: (usize, usize),
    part: usize,
}

/// A task's scratch, which is its thread's: the parts of [`CubeGradTiling::per_thread`].
#[derive(Clone, Copy)]
struct Scratch {
    /// `[source block][plane][row][column][16]`
    source: *mut f32,
    /// `[source block][point][tile][16]`
    source_points: *mut f32,
    /// `[output block][plane][row][column][16]`
    gradient: *mut f32,
    /// `[output block][point][tile][16]`
    gradient_points: *mut f32,
    /// `[output block][source block][point of all depths][lane][16]`, pairs of blocks [`PAIR_SUMS`] apart.
    sums: *mut f32,
}

impl Scratch {
    /// The sums of a pair of blocks.
    fn sums_of(&self, out: usize, source: usize) -> *mut f32 {
        self.sums.wrapping_add((out * SOURCES + source) * PAIR_SUMS)
    }
}

impl CubeWeightGrad {
    /// The kernel, and what adds up its parts, if there are several.
    pub(crate) fn new(
        tiling: CubeGradTiling,
        source: Blocks,
        gradient: Blocks,
        result: Ptr<f32>,
        partial: Ptr<f32>,
        scratch: Ptr<f32>,
    ) -> (CubeWeightGrad, Option<SumParts>) {
        let several = tiling.parts > 1;
        let add = several.then(|| SumParts { partial, result, parts: tiling.parts, count: tiling.weights() });
        let sums = if several { partial } else { result };
        (CubeWeightGrad { tiling, source, gradient, sums, scratch }, add)
    }

    /// Adds the products of a chunk at the points of depth `Z` to the sums.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `chunk` is one of the tiling's, of which the blocks of `at`, at most [`SOURCES`] and
    /// [`OUTS`], are gathered in `scratch`, which is this thread's.
    #[inline(always)]
    unsafe fn depth<S: Simd, const Z: usize>(&self, chunk: &Chunk, at: &TaskBlocks, scratch: Scratch) {
        let CubeGradTiling { source, gradient, .. } = &self.tiling;
        // SAFETY: each block has a place among those that are gathered and that are transformed, and each pair of them sums. Points are
        // below the bounds of a depth, and lanes go by whole steps.
        unsafe {
            for s in 0..at.source.1 {
                let to = scratch.source_points.add(s * source.transformed());
                source.transform::<S, Z>(chunk, scratch.source.add(s * source.gathered()), to);
            }
            for b in 0..at.out.1 {
                let to = scratch.gradient_points.add(b * gradient.transformed());
                gradient.transform_gradient::<S, Z>(chunk, scratch.gradient.add(b * gradient.gathered()), to);
            }
            for point in 0..PLANE_POINTS {
                for s in 0..at.source.1 {
                    for b in (0..at.out.1).step_by(PAIR) {
                        for lane in (0..LANES).step_by(S::TILE_INPUTS) {
                            let place = (Z * PLANE_POINTS + point) * SQUARE + lane * LANES;
                            let run = Run {
                                source: scratch
                                    .source_points
                                    .add(s * source.transformed() + point * source.point() + lane),
                                gradient: scratch
                                    .gradient_points
                                    .add(b * gradient.transformed() + point * gradient.point()),
                                gradient_stride: gradient.transformed(),
                                sums: scratch.sums_of(b, s).add(place),
                                sums_stride: SOURCES * PAIR_SUMS,
                                tiles: product(chunk.count),
                            };
                            match PAIR.min(at.out.1 - b) {
                                1 => run.accumulate_tile::<S, 1>(),
                                _ => run.accumulate_tile::<S, 2>(),
                            }
                        }
                    }
                }
            }
        }
    }

    /// Gathers a chunk, and adds its products to the sums.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `chunk` is one of the tiling's, the blocks of `at` those of source and result, at most
    /// [`SOURCES`] and [`OUTS`] of them, and `scratch` is this thread's.
    #[inline(always)]
    unsafe fn chunk<S: Simd>(&self, chunk: &Chunk, at: &TaskBlocks, scratch: Scratch) {
        let CubeGradTiling { source, gradient, .. } = &self.tiling;
        // SAFETY: this function's contract includes the contract of the calls, and each block has a place among those that are gathered.
        unsafe {
            for s in 0..at.source.1 {
                let to = scratch.source.add(s * source.gathered());
                source.gather::<S>(&self.source, at.source.0 + s, chunk, to);
            }
            for b in 0..at.out.1 {
                let to = scratch.gradient.add(b * gradient.gathered());
                gradient.gather::<S>(&self.gradient, at.out.0 + b, chunk, to);
            }
            self.depth::<S, 0>(chunk, at, scratch);
            self.depth::<S, 1>(chunk, at, scratch);
            self.depth::<S, 2>(chunk, at, scratch);
            self.depth::<S, 3>(chunk, at, scratch);
        }
    }

    /// Computes the weights of a pair of blocks from its sums.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `sums` is valid for reads of `[point of all depths][lane][16]`, `to` for writes of
    /// [`CubeGradTiling::pair_weights`] floats.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, sums: *const f32, to: *mut f32) {
        for lane in 0..LANES {
            // SAFETY: points are below the bounds of all depths, lanes below sixteen, and places below the taps.
            unsafe {
                let mut planes = [[[S::zero(); WIDTH]; WIDTH]; POINTS];
                for (z, plane) in planes.iter_mut().enumerate() {
                    let mut rows = [[S::zero(); WIDTH]; POINTS];
                    for (i, row) in rows.iter_mut().enumerate() {
                        let mut u = [S::zero(); POINTS];
                        for (j, u) in u.iter_mut().enumerate() {
                            let point = z * PLANE_POINTS + i * POINTS + j;
                            *u = S::load(sums.add(point * SQUARE + lane * LANES));
                        }
                        *row = weight_gradients::<S>(u);
                    }
                    for w in 0..WIDTH {
                        let column = weight_gradients::<S>([rows[0][w], rows[1][w], rows[2][w], rows[3][w]]);
                        for (h, weight) in column.into_iter().enumerate() {
                            plane[h][w] = weight;
                        }
                    }
                }
                for h in 0..WIDTH {
                    for w in 0..WIDTH {
                        let [a, b, c, d] = &planes;
                        let weights = weight_gradients::<S>([a[h][w], b[h][w], c[h][w], d[h][w]]);
                        for (z, weight) in weights.into_iter().enumerate() {
                            S::store(to.add((self.tiling.places[z][h][w] * LANES + lane) * LANES), weight);
                        }
                    }
                }
            }
        }
    }
}

impl Kernel for CubeWeightGrad {
    fn tasks(&self) -> usize {
        let CubeGradTiling { source_blocks, out_blocks, parts, .. } = &self.tiling;
        source_blocks.div_ceil(SOURCES) * out_blocks.div_ceil(OUTS) * parts
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let tiling = &self.tiling;
        let (part, task) = (task % tiling.parts, task / tiling.parts);
        let groups = tiling.source_blocks.div_ceil(SOURCES);
        let (source, out) = (task % groups * SOURCES, task / groups * OUTS);
        let at = TaskBlocks {
            source: (source, SOURCES.min(tiling.source_blocks - source)),
            out: (out, OUTS.min(tiling.out_blocks - out)),
            part,
        };
        let chunks = tiling.source.count();
        // SAFETY: scratch has a part for `thread`, and the parts add up to `per_thread`. Blocks and the part are below theirs, since
        // `task` is below `tasks`, so the results are the task's own; chunks are below the bounds of the grid.
        unsafe {
            let source = self.scratch.0.add(thread * tiling.per_thread());
            let source_points = source.add(SOURCES * tiling.source.gathered());
            let gradient = source_points.add(SOURCES * tiling.source.transformed());
            let gradient_points = gradient.add(OUTS * tiling.gradient.gathered());
            let sums = gradient_points.add(OUTS * tiling.gradient.transformed());
            let scratch = Scratch { source, source_points, gradient, gradient_points, sums };
            for i in (0..SOURCES * OUTS * PAIR_SUMS).step_by(LANES) {
                S::store(sums.add(i), S::zero());
            }
            for number in chunks * at.part / tiling.parts..chunks * (at.part + 1) / tiling.parts {
                self.chunk::<S>(&tiling.source.chunk(number), &at, scratch);
            }
            for s in 0..at.source.1 {
                for b in 0..at.out.1 {
                    let pair = (at.out.0 + b) * tiling.source_blocks + at.source.0 + s;
                    let to = self.sums.0.add(at.part * tiling.weights() + pair * tiling.pair_weights());
                    self.finish::<S>(scratch.sums_of(b, s), to);
                }
            }
        }
    }
}
