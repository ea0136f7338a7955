//! The convolution kernel: six sums of products, a register tile of outputs × tiles at a time.
//!
//! A task gathers and transforms the patch that a chunk of positions reads. Then, for each pair of blocks of outputs and
//! each block of inputs, it transforms the weights into the first- and second-level cache and multiplies them with all
//! tiles of the chunk, point by point.

use plimsoll_parallel::{each, pairs};

use super::patch::TilePatch;
use super::product::Product;
use super::transform::{Inputs, TileTransform, results, weights};
use super::{POINTS, RESULTS, RowTap, WIDTH, row_taps};
use crate::kernel::{Kernel, Ptr};
use crate::kernels::chunk::{TASKS, largest_chunk};
use crate::kernels::geometry::TapGrid;
use crate::kernels::tap_conv::{Destination, Operands};
use crate::simd::{Bf16, Element, LANES, Simd};

/// Output blocks that are summed at a time, at most.
const PAIR: usize = 2;
/// The most bytes of a block of the patch and the sums, which should stay in the second-level cache with the weights.
const CACHED_BYTES: usize = 1 << 20;
/// The most bytes of a whole patch.
const PATCH_BYTES: usize = 4 << 20;
/// The least tiles of a chunk, for the transform of the weights to cost little compared with their use.
const TILES: usize = 96;

/// The tiling of the work, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct WinogradTiling {
    patch: TilePatch,
    /// Chunks of positions along depth and height.
    chunks: [usize; 2],
    /// Ranges that the output blocks are divided into.
    splits: usize,
    /// The source blocks whose patch is in memory at a time: all, or one if each is needed only once.
    held: usize,
    batch: usize,
    source_blocks: usize,
    out_blocks: usize,
    /// The extent of the result.
    extent: [usize; 3],
    taps: Vec<RowTap>,
}

impl WinogradTiling {
    /// For a source of `source_blocks` blocks, and `out_blocks` blocks of results.
    pub(crate) fn new(
        grid: &TapGrid,
        batch: usize,
        source_blocks: usize,
        out_blocks: usize,
    ) -> WinogradTiling {
        let tiling = |chunk| WinogradTiling::with_chunk(grid, chunk, batch, source_blocks, out_blocks);
        tiling(largest_chunk(grid.positions, |chunk| tiling(chunk).fits()))
    }

    fn with_chunk(
        grid: &TapGrid,
        chunk: [usize; 2],
        batch: usize,
        source_blocks: usize,
        out_blocks: usize,
    ) -> WinogradTiling {
        let chunks = each([0, 1], |axis| grid.positions[axis].div_ceil(chunk[axis]));
        let pairs = out_blocks.div_ceil(PAIR);
        let splits = TASKS.div_ceil(batch * chunks[0] * chunks[1]).min(pairs).max(1);
        WinogradTiling {
            patch: TilePatch::new(grid, chunk, Inputs::COLUMNS),
            chunks,
            splits,
            held: if splits == pairs { 1 } else { source_blocks },
            batch,
            source_blocks,
            out_blocks,
            extent: grid.result,
            taps: row_taps(grid),
        }
    }

    /// Returns `true` if the chunk is small enough for the caches, and for the threads to share the work.
    fn fits(&self) -> bool {
        let bytes = |floats: usize| floats * size_of::<f32>();
        let too_large = bytes(self.patch.block() + self.sums()) > CACHED_BYTES
            || bytes(self.patch.block() * self.held) > PATCH_BYTES;
        let few_tiles = self.patch.chunk[0] * self.patch.chunk[1] * self.patch.tiles <= TILES;
        !too_large && (self.tasks() >= TASKS || few_tiles)
    }

    /// Tasks of the kernel.
    fn tasks(&self) -> usize {
        self.batch * self.chunks[0] * self.chunks[1] * self.splits
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
    tiling: WinogradTiling,
    /// Taps of the kernel in all.
    taps: usize,
    /// The offset of each row of taps in the patch.
    offsets: Vec<usize>,
    operands: Operands,
}

/// A task's scratch, which is its thread's: the parts of [`WinogradTiling::per_thread`], of the lengths that that adds up.
#[derive(Clone, Copy)]
struct Scratch {
    /// `[held][point][plane][row][tile][16]`
    patch: *mut f32,
    /// `[output block][point][plane][row][tile][16]`
    sums: *mut f32,
    /// `[point][tap][lane][output block][16]`
    weights: *mut f32,
    /// [`TilePatch::row`] floats.
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
    /// Prepares a convolution of `taps` taps in all. [`WinogradTiling::per_thread`] of each thread is where its patches
    /// are.
    pub(crate) fn new(tiling: WinogradTiling, taps: usize, operands: Operands) -> WinogradConv {
        let offsets = tiling.taps.iter().map(|tap| tiling.patch.tap_offset(tap.shift)).collect();
        WinogradConv { tiling, taps, offsets, operands }
    }

    /// Transforms the weights of `B` output blocks for one source block.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `block + B` is at most the output blocks and
    /// `source_block` below the source blocks; `to` is a [`Scratch::weights`].
    #[inline(always)]
    unsafe fn transform<S: Simd, const B: usize>(&self, block: usize, source_block: usize, to: *mut f32) {
        debug_assert!(block + B <= self.tiling.out_blocks, "weights of blocks beyond the last");
        let pair = self.taps * LANES * LANES;
        for b in 0..B {
            for (t, tap) in self.tiling.taps.iter().enumerate() {
                for lane in 0..LANES {
                    // SAFETY: weights are `[output block][source block][tap][lane][16]` and scratch
                    // `[point][tap][lane][B ≤ PAIR][16]`, with indices below those extents.
                    unsafe {
                        let from = self.operands.weights.0.add(
                            ((block + b) * self.tiling.source_blocks + source_block) * pair + lane * LANES,
                        );
                        let mut g = [S::zero(); WIDTH];
                        for (g, index) in pairs(g.iter_mut(), tap.index) {
                            *g = S::load(from.add(index * LANES * LANES));
                        }
                        let to = to.add(((t * LANES + lane) * B + b) * LANES);
                        for (point, u) in weights::<S>(g).iter().enumerate() {
                            S::store(to.add(point * self.tiling.weights()), *u);
                        }
                    }
                }
            }
        }
    }

    /// Gathers and transforms a source block.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `chunk` is one of the grid's, `source_block` below the source
    /// blocks, and `scratch` this thread's.
    #[inline(always)]
    unsafe fn gather<S: Simd>(&self, chunk: &Chunk, source_block: usize, scratch: Scratch) {
        let (tiling, source) = (&self.tiling, &self.operands.source);
        // SAFETY: the chunk is one of the grid's, as this function's contract says; the patch has room for `held` blocks,
        // and the place is below that.
        unsafe {
            let to = scratch.patch.add(source_block % tiling.held * tiling.patch.block());
            let (sample, row) = (chunk.sample, scratch.row);
            tiling.patch.gather::<S, Inputs>(source, source_block, sample, chunk.first, chunk.count, row, to);
        }
    }

    /// Computes a pair of output blocks of a chunk, or the `count` that are left.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `chunk` is one of the grid's, `block + count` at most the output
    /// blocks, `count` at most [`PAIR`], and `scratch` this thread's. If all source blocks are held, they are gathered.
    #[inline(always)]
    unsafe fn pair<S: Simd>(&self, chunk: &Chunk, block: usize, count: usize, scratch: Scratch) {
        for source_block in 0..self.tiling.source_blocks {
            // SAFETY: the chunk, the blocks and the scratch are as this function's contract says; sums of output block `b`
            // are in scratch, for `b < PAIR`.
            unsafe {
                if self.tiling.held == 1 {
                    self.gather::<S>(chunk, source_block, scratch);
                }
                if count == PAIR && S::TILE_BLOCKS >= PAIR {
                    self.products::<S, PAIR>(chunk, block, source_block, scratch);
                    continue;
                }
                for b in 0..count {
                    let sums = scratch.sums.add(b * POINTS * self.tiling.point());
                    let scratch = Scratch { sums, ..scratch };
                    self.products::<S, 1>(chunk, block + b, source_block, scratch);
                }
            }
        }
        // SAFETY: the products of all source blocks are in the sums by now, which is all that `store` asks for beyond this
        // function's contract.
        unsafe {
            match self.operands.result {
                Destination::F32(result, added_to) => {
                    self.store::<S, f32>(chunk, block, count, scratch.sums, result, added_to);
                }
                Destination::Bf16(result, added_to) => {
                    self.store::<S, Bf16>(chunk, block, count, scratch.sums, result, added_to);
                }
            }
        }
    }

    /// Adds the products of a source block to the sums of `B` output blocks.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `chunk` is one of the grid's, and the source block is gathered
    /// for it into `scratch`, which has sums of `B` blocks. `block + B` is at most the output blocks.
    #[inline(always)]
    unsafe fn products<S: Simd, const B: usize>(
        &self,
        chunk: &Chunk,
        block: usize,
        source_block: usize,
        scratch: Scratch,
    ) {
        let (tiling, patch) = (&self.tiling, &self.tiling.patch);
        let tiles = chunk.count[1] * patch.tiles;
        let pieces = tiles.div_ceil(S::TILE_POSITIONS);
        // SAFETY: points, planes and tiles are below the bounds of the patch and of the sums, and `to` is at most `tiles`; the
        // blocks are as `transform` asks by this function's contract.
        unsafe {
            self.transform::<S, B>(block, source_block, scratch.weights);
            let held = scratch.patch.add(source_block % tiling.held * patch.block());
            for point in 0..POINTS {
                for d in 0..chunk.count[0] {
                    let source = held.add(point * patch.point() + d * patch.plane());
                    let sums =
                        scratch.sums.add(point * tiling.point() + d * patch.chunk[1] * patch.tiles * LANES);
                    for piece in 0..pieces {
                        let (from, to) = (tiles * piece / pieces, tiles * (piece + 1) / pieces);
                        let product = Product {
                            taps: &self.offsets,
                            weights: scratch.weights.add(point * tiling.weights()),
                            source: source.add(from * LANES),
                            sums: sums.add(from * LANES),
                            sums_stride: POINTS * tiling.point(),
                            first: source_block == 0,
                        };
                        product.choose::<S, B>(to - from);
                    }
                }
            }
        }
    }

    /// Computes results from sums, and stores them.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `chunk` is one of the grid's, `block + count` at most the
    /// output blocks, and `sums` has those of `count` blocks. `result` and `added_to` belong to the operands.
    #[inline(always)]
    unsafe fn store<S: Simd, T: Element>(
        &self,
        chunk: &Chunk,
        block: usize,
        count: usize,
        sums: *const f32,
        result: Ptr<T>,
        added_to: Option<Ptr<T>>,
    ) {
        let (tiling, patch) = (&self.tiling, &self.tiling.patch);
        let [depth, height, width] = tiling.extent;
        for b in 0..count {
            let plane = (chunk.sample * tiling.out_blocks + block + b) * depth;
            // SAFETY: planes and rows are the chunk's, and no more than `width − first` columns of a tile are stored, so
            // places are inside of `[sample][block][D][H][W][16]`. Sums have a place for each point and tile, the bias for
            // each block.
            unsafe {
                let bias = match self.operands.bias {
                    Some(bias) => S::load(bias.0.add((block + b) * LANES)),
                    None => S::zero(),
                };
                let sums = sums.add(b * POINTS * tiling.point());
                for d in 0..chunk.count[0] {
                    for h in 0..chunk.count[1] {
                        let row = (plane + chunk.first[0] + d) * height + chunk.first[1] + h;
                        let from = sums.add((d * patch.chunk[1] + h) * patch.tiles * LANES);
                        for tile in 0..patch.tiles {
                            let mut m = [S::zero(); POINTS];
                            for (point, m) in m.iter_mut().enumerate() {
                                *m = S::load(from.add(point * tiling.point() + tile * LANES));
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

impl Kernel for WinogradConv {
    fn tasks(&self) -> usize {
        self.tiling.tasks()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let tiling = &self.tiling;
        let (split, task) = (task % tiling.splits, task / tiling.splits);
        let (chunk_h, task) = (task % tiling.chunks[1], task / tiling.chunks[1]);
        let (chunk_d, sample) = (task % tiling.chunks[0], task / tiling.chunks[0]);
        let first = [chunk_d * tiling.patch.chunk[0], chunk_h * tiling.patch.chunk[1]];
        let count = each([0, 1], |axis| tiling.patch.chunk[axis].min(tiling.extent[axis] - first[axis]));
        let chunk = Chunk { sample, first, count };
        // SAFETY: scratch has a part for `thread`, and the parts add up to `per_thread`. The chunk is one of the
        // grid's, whose first position is inside the extent; blocks end at `out_blocks`.
        unsafe {
            let patch = self.operands.patches.0.add(thread * tiling.per_thread());
            let sums = patch.add(tiling.held * tiling.patch.block());
            let weights = sums.add(tiling.sums());
            let row = weights.add(POINTS * tiling.weights());
            let scratch = Scratch { patch, sums, weights, row };
            if tiling.held > 1 {
                for source_block in 0..tiling.source_blocks {
                    self.gather::<S>(&chunk, source_block, scratch);
                }
            }
            // Splits are of whole pairs.
            let pairs = tiling.out_blocks.div_ceil(PAIR);
            let mut block = pairs * split / tiling.splits * PAIR;
            let end = (pairs * (split + 1) / tiling.splits * PAIR).min(tiling.out_blocks);
            while block < end {
                self.pair::<S>(&chunk, block, PAIR.min(end - block), scratch);
                block += PAIR;
            }
        }
    }
}
