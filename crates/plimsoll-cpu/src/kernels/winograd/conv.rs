//! The convolution kernel: six sums of products, a register tile of outputs × tiles at a time.
//!
//! A task gathers and transforms the patch that a chunk of positions reads. Then, for each pair of blocks of outputs and each
//! block of inputs, it transforms the weights into the first- and second-level cache and multiplies them with all tiles of
//! the chunk, point by point.

use super::patch::TilePatch;
use super::transform::{Inputs, Spread, results, weights};
use super::{POINTS, RESULTS, RowTap, WIDTH, row_taps};
use crate::kernel::{Kernel, Ptr};
use crate::kernels::geometry::TapGrid;
use crate::kernels::tap_conv::{Destination, Operands};
use crate::simd::{Bf16, Body, Element, LANES, Simd};

/// Output blocks that are summed at a time, at most.
const PAIR: usize = 2;
/// A block of the patch, and the sums, should stay in the second-level cache beside the weights.
const CACHED_BYTES: usize = 1 << 20;
/// The whole patch should not be larger.
const PATCH_BYTES: usize = 4 << 20;
/// Tasks there should be at least, for threads to share the work evenly.
const TASKS: usize = 16;
/// Tiles of a chunk there should be at least, for the transform of the weights to be little beside their use.
const TILES: usize = 32;

/// How the work is cut, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    patch: TilePatch,
    /// Chunks of positions along depth and height.
    chunks: [usize; 2],
    /// Ranges that the output blocks are cut into.
    splits: usize,
    /// Source blocks whose patch is held at a time: all, or one by one where they are needed once only.
    held: usize,
    batch: usize,
    source_blocks: usize,
    out_blocks: usize,
    /// Of the result.
    extent: [usize; 3],
    taps: Vec<RowTap>,
}

impl Cut {
    /// For a source of `source_blocks` blocks, and `out_blocks` blocks of results.
    pub(crate) fn new(grid: &TapGrid, batch: usize, source_blocks: usize, out_blocks: usize) -> Cut {
        let [depth, height, _] = grid.positions;
        let mut chunk = [depth.clamp(1, 4), height.clamp(1, 16)];
        let pairs = out_blocks.div_ceil(PAIR);
        loop {
            let patch = TilePatch::new(grid, chunk, Inputs::COLUMNS);
            let chunks = [depth.div_ceil(chunk[0]), height.div_ceil(chunk[1])];
            let tasks = batch * chunks[0] * chunks[1];
            let splits = TASKS.div_ceil(tasks).min(pairs).max(1);
            let cut = Cut {
                patch,
                chunks,
                splits,
                held: if splits == pairs { 1 } else { source_blocks },
                batch,
                source_blocks,
                out_blocks,
                extent: grid.result,
                taps: row_taps(grid),
            };
            let bytes = |floats: usize| floats * size_of::<f32>();
            let too_large = bytes(cut.patch.block() + cut.sums()) > CACHED_BYTES
                || bytes(cut.patch.block() * cut.held) > PATCH_BYTES;
            let few_tiles = chunk[0] * chunk[1] * cut.patch.tiles <= TILES;
            let too_few = tasks * cut.splits < TASKS && !few_tiles;
            if !(too_large || too_few) || chunk == [1, 1] {
                return cut;
            }
            // Depth first: a plane more costs a whole plane of border.
            let axis = if chunk[0] > 1 && (chunk[0] * 4 > chunk[1] || chunk[1] == 1) { 0 } else { 1 };
            chunk[axis] = chunk[axis].div_ceil(2);
        }
    }

    /// Floats of the sums of one point, and a column more, as in a patch.
    fn point(&self) -> usize {
        (self.patch.chunk[0] * self.patch.chunk[1] * self.patch.tiles + 1) * LANES
    }

    /// Floats of the sums of some output blocks.
    fn sums(&self) -> usize {
        PAIR * POINTS * self.point()
    }

    /// Floats of the weights of one point, of some output blocks and one source block.
    fn weights(&self) -> usize {
        PAIR * self.taps.len() * LANES * LANES
    }

    /// Floats of scratch of a thread: the patch, sums, weights and a row.
    pub(crate) fn per_thread(&self) -> usize {
        self.held * self.patch.block() + self.sums() + POINTS * self.weights() + self.patch.row()
    }
}

/// A convolution between features or its transpose, bound to memory.
pub(crate) struct WinogradConv {
    cut: Cut,
    /// Taps of the kernel in all.
    taps: usize,
    /// Of each row of taps in the patch.
    offsets: Vec<usize>,
    operands: Operands,
}

/// A task's scratch.
#[derive(Clone, Copy)]
struct Scratch {
    patch: *mut f32,
    /// `[output block][point][plane][row][tile][16]`
    sums: *mut f32,
    /// `[point][tap][lane][output block][16]`
    weights: *mut f32,
    row: *mut f32,
}

/// The positions of a task.
struct Chunk {
    sample: usize,
    /// The first position along depth and height.
    first: [usize; 2],
    count: [usize; 2],
}

impl WinogradConv {
    /// Prepares a convolution of `taps` taps in all. [`Cut::per_thread`] of each thread is where its patches are.
    pub(crate) fn new(cut: Cut, taps: usize, operands: Operands) -> WinogradConv {
        let offsets = cut.taps.iter().map(|tap| cut.patch.tap_offset(tap.shift)).collect();
        WinogradConv { cut, taps, offsets, operands }
    }

    /// Transforms the weights of `B` output blocks for one source block.
    ///
    /// # Safety
    /// As for the kernel; there must be as many output blocks from `block` on.
    #[inline(always)]
    unsafe fn transform<S: Simd, const B: usize>(&self, block: usize, source_block: usize, to: *mut f32) {
        debug_assert!(block + B <= self.cut.out_blocks, "weights of blocks that are not there");
        let pair = self.taps * LANES * LANES;
        for b in 0..B {
            for (t, tap) in self.cut.taps.iter().enumerate() {
                for lane in 0..LANES {
                    // SAFETY: weights have a place for each pair of blocks, tap and lane, and so has the scratch.
                    unsafe {
                        let from =
                            self.operands.weights.0.add(
                                ((block + b) * self.cut.source_blocks + source_block) * pair + lane * LANES,
                            );
                        let mut g = [S::zero(); WIDTH];
                        for (g, index) in g.iter_mut().zip(tap.index) {
                            *g = S::load(from.add(index * LANES * LANES));
                        }
                        let to = to.add(((t * LANES + lane) * B + b) * LANES);
                        for (point, u) in weights::<S>(g).iter().enumerate() {
                            S::store(to.add(point * self.cut.weights()), *u);
                        }
                    }
                }
            }
        }
    }

    /// Gathers and transforms a source block.
    ///
    /// # Safety
    /// As for the kernel.
    #[inline(always)]
    unsafe fn gather<S: Simd>(&self, chunk: &Chunk, source_block: usize, scratch: Scratch) {
        let (cut, source) = (&self.cut, &self.operands.source);
        let place = (chunk.first, chunk.count);
        // SAFETY: the chunk is one of the grid's; the patch has room for the blocks that are held.
        unsafe {
            let to = scratch.patch.add(source_block % cut.held * cut.patch.block());
            cut.patch.gather::<S, Inputs>(source, (source_block, chunk.sample), place, scratch.row, to);
        }
    }

    /// Computes a pair of output blocks of a chunk, or the `count` that are left.
    ///
    /// # Safety
    /// As for the kernel; if all source blocks are held, they must be gathered.
    #[inline(always)]
    unsafe fn pair<S: Simd>(&self, chunk: &Chunk, block: usize, count: usize, scratch: Scratch) {
        for source_block in 0..self.cut.source_blocks {
            // SAFETY: passed on to the caller.
            unsafe {
                if self.cut.held == 1 {
                    self.gather::<S>(chunk, source_block, scratch);
                }
                if count == PAIR && S::TILE_BLOCKS >= PAIR {
                    self.products::<S, PAIR>(chunk, (block, source_block), scratch);
                    continue;
                }
                for b in 0..count {
                    let sums = scratch.sums.add(b * POINTS * self.cut.point());
                    let scratch = Scratch { sums, ..scratch };
                    self.products::<S, 1>(chunk, (block + b, source_block), scratch);
                }
            }
        }
        // SAFETY: passed on to the caller.
        unsafe {
            match self.operands.result {
                Destination::F32(result, added_to) => {
                    self.store::<S, f32>(chunk, (block, count), scratch.sums, (result, added_to));
                }
                Destination::Bf16(result, added_to) => {
                    self.store::<S, Bf16>(chunk, (block, count), scratch.sums, (result, added_to));
                }
            }
        }
    }

    /// Adds the products of a source block to the sums of `B` output blocks.
    ///
    /// # Safety
    /// As for the kernel; the source block must be gathered, and there must be as many output blocks from `block` on.
    #[inline(always)]
    unsafe fn products<S: Simd, const B: usize>(
        &self,
        chunk: &Chunk,
        (block, source_block): (usize, usize),
        scratch: Scratch,
    ) {
        let (cut, patch) = (&self.cut, &self.cut.patch);
        let tiles = chunk.count[1] * patch.tiles;
        let pieces = tiles.div_ceil(S::TILE_POSITIONS);
        // SAFETY: all places are inside of the scratch's parts; the rest is passed on to the caller.
        unsafe {
            self.transform::<S, B>(block, source_block, scratch.weights);
            let held = scratch.patch.add(source_block % cut.held * patch.block());
            for point in 0..POINTS {
                for d in 0..chunk.count[0] {
                    let source = held.add(point * patch.point() + d * patch.plane());
                    let sums =
                        scratch.sums.add(point * cut.point() + d * patch.chunk[1] * patch.tiles * LANES);
                    for piece in 0..pieces {
                        let (from, to) = (tiles * piece / pieces, tiles * (piece + 1) / pieces);
                        let product = Product {
                            taps: &self.offsets,
                            weights: scratch.weights.add(point * cut.weights()),
                            source: source.add(from * LANES),
                            sums: sums.add(from * LANES),
                            sums_stride: POINTS * cut.point(),
                            first: source_block == 0,
                        };
                        product.choose::<S, B>(to - from);
                    }
                }
            }
        }
    }

    /// Makes results of sums, and stores them.
    ///
    /// # Safety
    /// As for the kernel; the sums must be complete.
    #[inline(always)]
    unsafe fn store<S: Simd, T: Element>(
        &self,
        chunk: &Chunk,
        (block, count): (usize, usize),
        sums: *const f32,
        (result, added_to): (Ptr<T>, Option<Ptr<T>>),
    ) {
        let (cut, patch) = (&self.cut, &self.cut.patch);
        let [depth, height, width] = cut.extent;
        for b in 0..count {
            let plane = (chunk.sample * cut.out_blocks + block + b) * depth;
            // SAFETY: results are those of the chunk's positions, inside the result's extent.
            unsafe {
                let bias = match self.operands.bias {
                    Some(bias) => S::load(bias.0.add((block + b) * LANES)),
                    None => S::zero(),
                };
                let sums = sums.add(b * POINTS * cut.point());
                for d in 0..chunk.count[0] {
                    for h in 0..chunk.count[1] {
                        let row = (plane + chunk.first[0] + d) * height + chunk.first[1] + h;
                        let from = sums.add((d * patch.chunk[1] + h) * patch.tiles * LANES);
                        for tile in 0..patch.tiles {
                            let mut m = [S::zero(); POINTS];
                            for (point, m) in m.iter_mut().enumerate() {
                                *m = S::load(from.add(point * cut.point() + tile * LANES));
                            }
                            let first = tile * RESULTS;
                            for (i, y) in results::<S>(m).iter().enumerate().take(width - first) {
                                let place = (row * width + first + i) * LANES;
                                let mut value = S::add(*y, bias);
                                if let Some(added_to) = added_to {
                                    value = S::add(T::load::<S>(added_to.0.add(place)), value);
                                }
                                T::store::<S>(result.0.add(place), value);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The products of one point of some tiles, to be summed over taps and the channels of a block.
#[derive(Clone, Copy)]
struct Product<'a> {
    /// Where the rows of taps are in the patch, against the tiles.
    taps: &'a [usize],
    weights: *const f32,
    source: *const f32,
    sums: *mut f32,
    /// From one output block to the next.
    sums_stride: usize,
    /// Whether there are no sums yet to add to.
    first: bool,
}

impl Product<'_> {
    /// Chooses the compiled tile.
    ///
    /// # Safety
    /// As for the kernel; sources and sums must be those of `width` tiles.
    #[inline(always)]
    unsafe fn choose<S: Simd, const B: usize>(self, width: usize) {
        macro_rules! choose {
            ($($w:literal),*) => {
                match width {
                    $($w => {
                        // Known when compiling, so that tiles too large for the registers are never made.
                        if const { $w <= S::TILE_POSITIONS } {
                            // SAFETY: passed on to the caller.
                            unsafe { S::call(Sum::<B, $w>(self)) }
                        }
                    })*
                    // The caller cuts rows into these widths only.
                    _ => unreachable!("no register tile of {width}"),
                }
            };
        }
        choose!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
    }
}

/// A register tile of `B` blocks of outputs and `W` tiles.
struct Sum<'a, const B: usize, const W: usize>(Product<'a>);

impl<const B: usize, const W: usize> Body for Sum<'_, B, W> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Product { taps, mut weights, source, sums, sums_stride, first } = self.0;
        // SAFETY: passed on to the caller.
        unsafe {
            let mut held = [[S::zero(); W]; B];
            for tap in taps {
                let source = source.add(*tap);
                for lane in 0..LANES {
                    let mut w = [S::zero(); B];
                    for (b, w) in w.iter_mut().enumerate() {
                        *w = S::load(weights.add(b * LANES));
                    }
                    weights = weights.add(B * LANES);
                    for p in 0..W {
                        let x = S::splat(*source.add(p * LANES + lane));
                        for b in 0..B {
                            held[b][p] = S::fma(w[b], x, held[b][p]);
                        }
                    }
                }
            }
            for (b, held) in held.iter().enumerate() {
                for (p, held) in held.iter().enumerate() {
                    let sum = sums.add(b * sums_stride + p * LANES);
                    S::store(sum, if first { *held } else { S::add(S::load(sum), *held) });
                }
            }
        }
    }
}

impl Kernel for WinogradConv {
    fn tasks(&self) -> usize {
        self.cut.batch * self.cut.chunks[0] * self.cut.chunks[1] * self.cut.splits
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let cut = &self.cut;
        let (split, task) = (task % cut.splits, task / cut.splits);
        let (chunk_h, task) = (task % cut.chunks[1], task / cut.chunks[1]);
        let (chunk_d, sample) = (task % cut.chunks[0], task / cut.chunks[0]);
        let first = [chunk_d * cut.patch.chunk[0], chunk_h * cut.patch.chunk[1]];
        let count = [0, 1].map(|axis| cut.patch.chunk[axis].min(cut.extent[axis] - first[axis]));
        let chunk = Chunk { sample, first, count };
        // SAFETY: each thread has scratch of its own; the chunk is one of the grid's.
        unsafe {
            let patch = self.operands.patches.0.add(thread * cut.per_thread());
            let sums = patch.add(cut.held * cut.patch.block());
            let weights = sums.add(cut.sums());
            let row = weights.add(POINTS * cut.weights());
            let scratch = Scratch { patch, sums, weights, row };
            if cut.held > 1 {
                for source_block in 0..cut.source_blocks {
                    self.gather::<S>(&chunk, source_block, scratch);
                }
            }
            // Splits are of whole pairs.
            let pairs = cut.out_blocks.div_ceil(PAIR);
            let mut block = pairs * split / cut.splits * PAIR;
            let end = (pairs * (split + 1) / cut.splits * PAIR).min(cut.out_blocks);
            while block < end {
                self.pair::<S>(&chunk, block, PAIR.min(end - block), scratch);
                block += PAIR;
            }
        }
    }
}
