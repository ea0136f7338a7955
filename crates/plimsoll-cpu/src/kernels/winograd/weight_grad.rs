//! The weight gradient kernel: six sums of products over tiles, then the three weights of each row of taps.
//!
//! A task has two output blocks, two source blocks and a part of the positions. It gathers and transforms source and
//! gradient chunk by chunk and adds their products to sums of its own, point by point. Parts are added up as those of
//! [`super::super::weight_grad`].

use plimsoll_parallel::{each, pairs};

use super::grad_run::Run;
use super::patch::TilePatch;
use super::transform::{Gradients, Inputs, TileTransform, weight_gradients};
use super::{POINTS, RESULTS, RowTap, WIDTH, row_taps};
use crate::kernel::{Kernel, Ptr};
use crate::kernels::chunk::{TASKS, largest_chunk};
use crate::kernels::geometry::TapGrid;
use crate::kernels::patch::{Blocks, Source};
use crate::kernels::weight_grad::SumParts;
use crate::simd::{LANES, Simd};

/// Output blocks of a task, and source blocks: all pairs of them share what is gathered.
const GROUP: usize = 2;
/// The least tiles of a part, for its partial sum to be worth it.
const PART_TILES: usize = 256;
/// The most bytes of the patches of source and gradients, which should stay in the second-level cache.
const CACHED_BYTES: usize = 1280 << 10;
/// Tiles summed in registers, about: their gradients stay in the first-level cache while all taps go over them, and each
/// run is summed by itself, so that rounding grows with its length and not with the volume.
const RUN_TILES: usize = 128;

/// The tiling of the work, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct WinogradGradTiling {
    source: TilePatch,
    gradient: TilePatch,
    /// Parts that the positions are divided into.
    parts: usize,
    /// Along depth and height.
    chunks: [usize; 2],
    batch: usize,
    source_blocks: usize,
    out_blocks: usize,
    extent: [usize; 3],
    taps: Vec<RowTap>,
}

/// The grid of a map read at its own positions.
fn point_grid(grid: &TapGrid) -> TapGrid {
    TapGrid { source: grid.result, low: [0; 3], span: [0; 3], phases: Vec::new(), ..*grid }
}

impl WinogradGradTiling {
    /// For sources of `source_blocks` blocks.
    pub(crate) fn new(
        grid: &TapGrid,
        batch: usize,
        source_blocks: usize,
        out_blocks: usize,
    ) -> WinogradGradTiling {
        let [depth, height, width] = grid.positions;
        let tiles = batch * depth * height * width.div_ceil(RESULTS);
        let source = |chunk| TilePatch::new(grid, chunk, Inputs::COLUMNS);
        let gradient = |chunk| TilePatch::new(&point_grid(grid), chunk, RESULTS);
        let chunk = largest_chunk(grid.positions, |chunk| {
            let floats = GROUP * (source(chunk).block() + gradient(chunk).block());
            floats * size_of::<f32>() <= CACHED_BYTES
        });
        let chunks = [depth.div_ceil(chunk[0]), height.div_ceil(chunk[1])];
        let wanted = TASKS.div_ceil(out_blocks.div_ceil(GROUP) * source_blocks.div_ceil(GROUP));
        let parts = wanted.min(tiles / PART_TILES).min(batch * chunks[0] * chunks[1]).max(1);
        WinogradGradTiling {
            source: source(chunk),
            gradient: gradient(chunk),
            parts,
            chunks,
            batch,
            source_blocks,
            out_blocks,
            extent: grid.result,
            taps: row_taps(grid),
        }
    }

    /// Floats of the weights of one pair of blocks.
    fn pair_weights(&self) -> usize {
        self.taps.len() * WIDTH * LANES * LANES
    }

    /// Floats of one copy of the gradient.
    pub(crate) fn weights(&self) -> usize {
        self.out_blocks * self.source_blocks * self.pair_weights()
    }

    /// Floats of the partial sums.
    pub(crate) fn partial(&self) -> usize {
        if self.parts > 1 { self.parts * self.weights() } else { 0 }
    }

    /// Floats of the sums of one point of one output block.
    fn point(&self) -> usize {
        self.taps.len() * LANES * LANES
    }

    /// Floats of scratch of a thread: patches of the source and the gradients, sums and a row.
    pub(crate) fn per_thread(&self) -> usize {
        let patches = GROUP * (self.source.block() + self.gradient.block());
        patches + GROUP * GROUP * POINTS * self.point() + self.source.row()
    }
}

/// The weight gradient of a convolution between features, bound to memory.
pub(crate) struct WinogradWeightGrad {
    tiling: WinogradGradTiling,
    source: Source,
    /// The gradient of the convolution's result.
    gradient: Source,
    /// The memory of the sums: `[part][output block][source block][tap][lane][16]`, the result if there is one part.
    sums: Ptr<f32>,
    /// Scratch, per thread: [`WinogradGradTiling::per_thread`] floats.
    scratch: Ptr<f32>,
}

impl WinogradWeightGrad {
    /// The kernel, and what adds up its parts, if there are several.
    pub(crate) fn new(
        tiling: WinogradGradTiling,
        source: Source,
        gradient: Blocks,
        result: Ptr<f32>,
        partial: Ptr<f32>,
        scratch: Ptr<f32>,
    ) -> (WinogradWeightGrad, Option<SumParts>) {
        let several = tiling.parts > 1;
        let add = several.then(|| SumParts { partial, result, parts: tiling.parts, count: tiling.weights() });
        let sums = if several { partial } else { result };
        let gradient = Source::Features(gradient);
        (WinogradWeightGrad { tiling, source, gradient, sums, scratch }, add)
    }

    /// Adds a chunk to the sums of `B` output blocks and some source blocks.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `scratch` is this thread's, with patches of `sources` source
    /// blocks and `B` output blocks, both at most [`GROUP`], gathered for `count` planes and rows of a chunk.
    #[inline(always)]
    unsafe fn chunk<S: Simd, const B: usize>(&self, scratch: &Scratch, sources: usize, count: [usize; 2]) {
        let tiling = &self.tiling;
        let tiles = count[1] * tiling.source.tiles;
        let runs = tiles.div_ceil(RUN_TILES);
        for point in 0..POINTS {
            for d in 0..count[0] {
                for run in 0..runs {
                    let (from, to) = (tiles * run / runs, tiles * (run + 1) / runs);
                    // SAFETY: planes are below `count` and `to` is at most the tiles of `count` rows, so all tiles, and
                    // with them the rows that their taps read, are inside of the patches. Sums are `[source block][output
                    // block][point][tap][lane][16]`, and lanes go by whole steps.
                    unsafe {
                        let source = scratch
                            .source
                            .add(point * tiling.source.point() + d * tiling.source.plane() + from * LANES);
                        let gradient = scratch.gradient.add(
                            point * tiling.gradient.point() + d * tiling.gradient.plane() + from * LANES,
                        );
                        for s in 0..sources {
                            for (t, tap) in tiling.taps.iter().enumerate() {
                                let source = source
                                    .add(s * tiling.source.block() + tiling.source.tap_offset(tap.shift));
                                let sums = scratch.sums.add(
                                    s * GROUP * POINTS * tiling.point()
                                        + point * tiling.point()
                                        + t * LANES * LANES,
                                );
                                for lane in (0..LANES).step_by(S::TILE_INPUTS) {
                                    let run = Run {
                                        source: source.add(lane),
                                        gradient,
                                        gradient_stride: tiling.gradient.block(),
                                        sums: sums.add(lane * LANES),
                                        sums_stride: POINTS * tiling.point(),
                                        tiles: to - from,
                                    };
                                    run.accumulate_tile::<S, B>();
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Computes the weights of `B` output blocks for some source blocks from a part of the positions.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `at` is within the blocks and parts, with `B` and `at.sources`
    /// at most [`GROUP`], and `scratch` is this thread's.
    #[inline(always)]
    unsafe fn part<S: Simd, const B: usize>(&self, at: &TaskBlocks, scratch: &Scratch) {
        let tiling = &self.tiling;
        let chunks = tiling.batch * tiling.chunks[0] * tiling.chunks[1];
        // SAFETY: chunks are below the bounds of the grid, so each begins inside the extent and `count` is at most a chunk;
        // blocks are within those of the operands, and below `GROUP` in scratch. Results belong to the task's part and
        // blocks.
        unsafe {
            for i in (0..GROUP * GROUP * POINTS * tiling.point()).step_by(LANES) {
                S::store(scratch.sums.add(i), S::zero());
            }
            for chunk in chunks * at.part / tiling.parts..chunks * (at.part + 1) / tiling.parts {
                let (chunk_h, chunk) = (chunk % tiling.chunks[1], chunk / tiling.chunks[1]);
                let (chunk_d, sample) = (chunk % tiling.chunks[0], chunk / tiling.chunks[0]);
                let first = [chunk_d * tiling.source.chunk[0], chunk_h * tiling.source.chunk[1]];
                let count =
                    each([0, 1], |axis| tiling.source.chunk[axis].min(tiling.extent[axis] - first[axis]));
                for s in 0..at.sources {
                    let (block, to) = (at.source_block + s, scratch.source.add(s * tiling.source.block()));
                    let source = &self.source;
                    tiling.source.gather::<S, Inputs>(source, block, sample, first, count, scratch.row, to);
                }
                for b in 0..B {
                    let (block, to) = (at.block + b, scratch.gradient.add(b * tiling.gradient.block()));
                    let (gradient, row) = (&self.gradient, scratch.row);
                    tiling.gradient.gather::<S, Gradients>(gradient, block, sample, first, count, row, to);
                }
                self.chunk::<S, B>(scratch, at.sources, count);
            }
            for s in 0..at.sources {
                for b in 0..B {
                    let pair = (at.block + b) * tiling.source_blocks + at.source_block + s;
                    let to = self.sums.0.add(at.part * tiling.weights() + pair * tiling.pair_weights());
                    self.finish::<S>(scratch.sums.add((s * GROUP + b) * POINTS * tiling.point()), to);
                }
            }
        }
    }

    /// Computes the weights of a pair of blocks from its sums.
    ///
    /// # Safety
    /// The machine has the instruction set of `S`; `sums` is valid for reads of `[point][tap][lane][16]`, `to` for writes
    /// of [`WinogradGradTiling::pair_weights`] floats.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, sums: *const f32, to: *mut f32) {
        for (t, tap) in self.tiling.taps.iter().enumerate() {
            for lane in 0..LANES {
                // SAFETY: `t` is below the rows of taps and `lane` below sixteen; a tap's index is below three times those
                // rows.
                unsafe {
                    let mut u = [S::zero(); POINTS];
                    for (point, u) in u.iter_mut().enumerate() {
                        *u = S::load(sums.add(point * self.tiling.point() + (t * LANES + lane) * LANES));
                    }
                    for (index, g) in pairs(tap.index.iter(), weight_gradients::<S>(u)) {
                        S::store(to.add((index * LANES + lane) * LANES), g);
                    }
                }
            }
        }
    }
}

/// The blocks that a task computes.
struct TaskBlocks {
    /// The first output block.
    block: usize,
    /// The first source block, and how many there are.
    source_block: usize,
    sources: usize,
    part: usize,
}

/// A task's scratch, which is its thread's: the parts of [`WinogradGradTiling::per_thread`].
struct Scratch {
    /// A patch for each of [`GROUP`] source blocks.
    source: *mut f32,
    /// A patch for each of [`GROUP`] output blocks.
    gradient: *mut f32,
    /// `[source block][output block][point][tap][lane][16]`
    sums: *mut f32,
    /// [`TilePatch::row`] floats.
    row: *mut f32,
}

impl Kernel for WinogradWeightGrad {
    fn tasks(&self) -> usize {
        self.tiling.out_blocks.div_ceil(GROUP) * self.tiling.source_blocks.div_ceil(GROUP) * self.tiling.parts
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let tiling = &self.tiling;
        let (part, task) = (task % tiling.parts, task / tiling.parts);
        let pairs = tiling.source_blocks.div_ceil(GROUP);
        let (source_block, block) = (task % pairs * GROUP, task / pairs * GROUP);
        let at =
            TaskBlocks { block, source_block, sources: GROUP.min(tiling.source_blocks - source_block), part };
        // SAFETY: scratch has a part for `thread`, and the parts add up to `per_thread`. Blocks and the part are below
        // theirs, since `task` is below `tasks`.
        unsafe {
            let source = self.scratch.0.add(thread * tiling.per_thread());
            let gradient = source.add(GROUP * tiling.source.block());
            let sums = gradient.add(GROUP * tiling.gradient.block());
            let row = sums.add(GROUP * GROUP * POINTS * tiling.point());
            let scratch = Scratch { source, gradient, sums, row };
            match GROUP.min(tiling.out_blocks - at.block) {
                1 => self.part::<S, 1>(&at, &scratch),
                _ => self.part::<S, 2>(&at, &scratch),
            }
        }
    }
}
