//! The weight gradient kernel: six sums of products over tiles, then the three weights of each row of taps.
//!
//! A task has two output blocks, two source blocks and a part of the positions. It gathers and transforms source and gradient
//! chunk by chunk and adds their products to sums of its own, point by point. Parts are added up as those of
//! [`super::super::weight_grad`].

use super::patch::TilePatch;
use super::transform::{Gradients, Inputs, Spread, weight_gradients};
use super::{POINTS, RESULTS, RowTap, WIDTH, row_taps};
use crate::kernel::{Kernel, Ptr};
use crate::kernels::geometry::TapGrid;
use crate::kernels::patch::{Blocks, Source};
use crate::kernels::weight_grad::SumParts;
use crate::simd::{Body, LANES, Simd};

/// Output blocks of a task, and source blocks: all pairs of them share what is gathered.
const GROUP: usize = 2;
/// Tasks there should be at least.
const TASKS: usize = 16;
/// Tiles that a part should have at least, for its partial sum to be worth it.
const PART_TILES: usize = 256;
/// The patches of source and gradients should stay in the second-level cache.
const CACHED_BYTES: usize = 1280 << 10;
/// Tiles summed in registers, about: their gradients stay in the first-level cache while all taps go over them, and each
/// run is summed by itself, so that rounding grows with its length and not with the volume.
const RUN_TILES: usize = 128;

/// How the work is cut, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct GradCut {
    source: TilePatch,
    gradient: TilePatch,
    /// Parts that the positions are cut into.
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

impl GradCut {
    /// For sources of `source_blocks` blocks.
    pub(crate) fn new(grid: &TapGrid, batch: usize, source_blocks: usize, out_blocks: usize) -> GradCut {
        let [depth, height, width] = grid.positions;
        let tiles = batch * depth * height * width.div_ceil(RESULTS);
        let mut chunk = [depth.clamp(1, 4), height.clamp(1, 16)];
        loop {
            let source = TilePatch::new(grid, chunk, Inputs::COLUMNS);
            let gradient = TilePatch::new(&point_grid(grid), chunk, RESULTS);
            let floats = GROUP * (source.block() + gradient.block());
            if floats * size_of::<f32>() > CACHED_BYTES && chunk != [1, 1] {
                let axis = if chunk[0] > 1 && (chunk[0] * 4 > chunk[1] || chunk[1] == 1) { 0 } else { 1 };
                chunk[axis] = chunk[axis].div_ceil(2);
                continue;
            }
            let chunks = [depth.div_ceil(chunk[0]), height.div_ceil(chunk[1])];
            let wanted = TASKS.div_ceil(out_blocks.div_ceil(GROUP) * source_blocks.div_ceil(GROUP));
            let parts = wanted.min(tiles / PART_TILES).min(batch * chunks[0] * chunks[1]).max(1);
            return GradCut {
                source,
                gradient,
                parts,
                chunks,
                batch,
                source_blocks,
                out_blocks,
                extent: grid.result,
                taps: row_taps(grid),
            };
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
    cut: GradCut,
    source: Source,
    /// Of the convolution's result.
    gradient: Source,
    /// Where the sums go: the result, or the partial sums.
    sums: Ptr<f32>,
    scratch: Ptr<f32>,
}

impl WinogradWeightGrad {
    /// The kernel, and what adds up its parts, if there are several.
    pub(crate) fn new(
        cut: GradCut,
        source: Source,
        gradient: Blocks,
        (result, partial, scratch): (Ptr<f32>, Ptr<f32>, Ptr<f32>),
    ) -> (WinogradWeightGrad, Option<SumParts>) {
        let several = cut.parts > 1;
        let add = several.then(|| SumParts { partial, result, parts: cut.parts, count: cut.weights() });
        let sums = if several { partial } else { result };
        let gradient = Source::Features(gradient);
        (WinogradWeightGrad { cut, source, gradient, sums, scratch }, add)
    }

    /// Adds a chunk to the sums of `B` output blocks and some source blocks.
    ///
    /// # Safety
    /// As for the kernel; patches must be gathered, for `count` planes and rows.
    #[inline(always)]
    unsafe fn chunk<S: Simd, const B: usize>(&self, scratch: &Scratch, sources: usize, count: [usize; 2]) {
        let cut = &self.cut;
        let tiles = count[1] * cut.source.tiles;
        let runs = tiles.div_ceil(RUN_TILES);
        for point in 0..POINTS {
            for d in 0..count[0] {
                for run in 0..runs {
                    let (from, to) = (tiles * run / runs, tiles * (run + 1) / runs);
                    // SAFETY: runs are inside of the patches, and taps of their tiles too; sums have a place for each lane.
                    unsafe {
                        let source = scratch
                            .source
                            .add(point * cut.source.point() + d * cut.source.plane() + from * LANES);
                        let gradient = scratch
                            .gradient
                            .add(point * cut.gradient.point() + d * cut.gradient.plane() + from * LANES);
                        for s in 0..sources {
                            for (t, tap) in cut.taps.iter().enumerate() {
                                let source =
                                    source.add(s * cut.source.block() + cut.source.tap_offset(tap.shift));
                                let sums = scratch.sums.add(
                                    s * GROUP * POINTS * cut.point()
                                        + point * cut.point()
                                        + t * LANES * LANES,
                                );
                                for lane in (0..LANES).step_by(S::TILE_INPUTS) {
                                    let run = Run {
                                        source: source.add(lane),
                                        gradient,
                                        gradient_stride: cut.gradient.block(),
                                        sums: sums.add(lane * LANES),
                                        sums_stride: POINTS * cut.point(),
                                        tiles: to - from,
                                    };
                                    match S::TILE_INPUTS {
                                        8 => run.accumulate::<S, B, 8>(),
                                        4 => run.accumulate::<S, B, 4>(),
                                        _ => run.accumulate::<S, B, 2>(),
                                    }
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
    /// As for the kernel.
    #[inline(always)]
    unsafe fn part<S: Simd, const B: usize>(&self, at: &At, scratch: &Scratch) {
        let cut = &self.cut;
        let chunks = cut.batch * cut.chunks[0] * cut.chunks[1];
        // SAFETY: passed on to the caller; chunks are those of the grid.
        unsafe {
            for i in (0..GROUP * GROUP * POINTS * cut.point()).step_by(LANES) {
                S::store(scratch.sums.add(i), S::zero());
            }
            for chunk in chunks * at.part / cut.parts..chunks * (at.part + 1) / cut.parts {
                let (chunk_h, chunk) = (chunk % cut.chunks[1], chunk / cut.chunks[1]);
                let (chunk_d, sample) = (chunk % cut.chunks[0], chunk / cut.chunks[0]);
                let first = [chunk_d * cut.source.chunk[0], chunk_h * cut.source.chunk[1]];
                let count = [0, 1].map(|axis| cut.source.chunk[axis].min(cut.extent[axis] - first[axis]));
                let place = (first, count);
                for s in 0..at.sources {
                    let block = (at.source_block + s, sample);
                    let to = scratch.source.add(s * cut.source.block());
                    cut.source.gather::<S, Inputs>(&self.source, block, place, scratch.row, to);
                }
                for b in 0..B {
                    let (block, to) =
                        ((at.block + b, sample), scratch.gradient.add(b * cut.gradient.block()));
                    cut.gradient.gather::<S, Gradients>(&self.gradient, block, place, scratch.row, to);
                }
                self.chunk::<S, B>(scratch, at.sources, count);
            }
            for s in 0..at.sources {
                for b in 0..B {
                    let pair = (at.block + b) * cut.source_blocks + at.source_block + s;
                    let to = self.sums.0.add(at.part * cut.weights() + pair * cut.pair_weights());
                    self.finish::<S>(scratch.sums.add((s * GROUP + b) * POINTS * cut.point()), to);
                }
            }
        }
    }

    /// Makes the weights of a pair of blocks of its sums.
    ///
    /// # Safety
    /// As for the kernel.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, sums: *const f32, to: *mut f32) {
        for (t, tap) in self.cut.taps.iter().enumerate() {
            for lane in 0..LANES {
                // SAFETY: sums have a place for each tap's row and lane, weights one for each tap and lane.
                unsafe {
                    let mut u = [S::zero(); POINTS];
                    for (point, u) in u.iter_mut().enumerate() {
                        *u = S::load(sums.add(point * self.cut.point() + (t * LANES + lane) * LANES));
                    }
                    for (index, g) in tap.index.iter().zip(weight_gradients::<S>(u)) {
                        S::store(to.add((index * LANES + lane) * LANES), g);
                    }
                }
            }
        }
    }
}

/// What a task computes.
struct At {
    /// The first output block.
    block: usize,
    /// The first source block, and how many there are.
    source_block: usize,
    sources: usize,
    part: usize,
}

/// A task's scratch.
struct Scratch {
    source: *mut f32,
    gradient: *mut f32,
    /// `[source block][output block][point][tap][lane][16]`
    sums: *mut f32,
    row: *mut f32,
}

/// A run of tiles of one point, as the innermost loop sees it.
#[derive(Clone, Copy)]
struct Run {
    source: *const f32,
    gradient: *const f32,
    /// From one output block to the next.
    gradient_stride: usize,
    sums: *mut f32,
    /// From one output block to the next.
    sums_stride: usize,
    tiles: usize,
}

impl Run {
    /// Adds the products of `I` lanes of the source with `B` blocks of gradients over all tiles of the run.
    ///
    /// # Safety
    /// As for the kernel.
    #[inline(always)]
    unsafe fn accumulate<S: Simd, const B: usize, const I: usize>(self) {
        // Tiles that the registers cannot hold are never asked for, and so that they are never made:
        if const { I <= S::TILE_INPUTS } {
            // SAFETY: passed on to the caller.
            unsafe { S::call(Sum::<B, I>(self)) }
        }
    }
}

/// A register tile of `B` blocks of gradients and `I` lanes of the source.
struct Sum<const B: usize, const I: usize>(Run);

impl<const B: usize, const I: usize> Body for Sum<B, I> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let run = self.0;
        // SAFETY: passed on to the caller.
        unsafe {
            let mut held = [[S::zero(); I]; B];
            for tile in 0..run.tiles {
                let mut g = [S::zero(); B];
                for (b, g) in g.iter_mut().enumerate() {
                    *g = S::load(run.gradient.add(b * run.gradient_stride + tile * LANES));
                }
                for i in 0..I {
                    let x = S::splat(*run.source.add(tile * LANES + i));
                    for b in 0..B {
                        held[b][i] = S::fma(g[b], x, held[b][i]);
                    }
                }
            }
            for (b, held) in held.iter().enumerate() {
                for (i, held) in held.iter().enumerate() {
                    let sum = run.sums.add(b * run.sums_stride + i * LANES);
                    S::store(sum, S::add(S::load(sum), *held));
                }
            }
        }
    }
}

impl Kernel for WinogradWeightGrad {
    fn tasks(&self) -> usize {
        self.cut.out_blocks.div_ceil(GROUP) * self.cut.source_blocks.div_ceil(GROUP) * self.cut.parts
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let cut = &self.cut;
        let (part, task) = (task % cut.parts, task / cut.parts);
        let pairs = cut.source_blocks.div_ceil(GROUP);
        let (source_block, block) = (task % pairs * GROUP, task / pairs * GROUP);
        let at = At { block, source_block, sources: GROUP.min(cut.source_blocks - source_block), part };
        // SAFETY: each thread has scratch of its own; each task has weights of its own.
        unsafe {
            let source = self.scratch.0.add(thread * cut.per_thread());
            let gradient = source.add(GROUP * cut.source.block());
            let sums = gradient.add(GROUP * cut.gradient.block());
            let row = sums.add(GROUP * GROUP * POINTS * cut.point());
            let scratch = Scratch { source, gradient, sums, row };
            match GROUP.min(cut.out_blocks - at.block) {
                1 => self.part::<S, 1>(&at, &scratch),
                _ => self.part::<S, 2>(&at, &scratch),
            }
        }
    }
}
