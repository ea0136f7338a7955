//! Convolutions of any window as sums over taps, a register tile of outputs × positions at a time.
//!
//! A task gathers the patch that a chunk of positions reads, in bf16, then walks its tiles. The whole sum over input channels and taps
//! of a tile stays in registers: products of bf16 round by 2⁻⁹, beside which sums of some thousand f32 count for nothing.

use std::ops::Range;

use super::tile::{MOST_SUMS, Tap, Tile};
use super::{DotOperands, SQUARE};
use crate::kernel::DotKernel;
use crate::kernels::chunk::{TASKS, largest_chunk, pairs_of_blocks};
use crate::kernels::geometry::{GridTap, TapGrid};
use crate::kernels::patch::PatchShape;
use crate::layout::WeightBlocks;
use crate::lower::product;
use crate::simd::dot::Dot;
use crate::simd::{LANES, Simd};

/// The most bytes of a patch, which should stay in the second-level cache together with the weights that stream through it.
const PATCH_BYTES: usize = 448 << 10;
/// The fewest rows of positions that are cut further for the sake of the number of tasks.
const ROWS: usize = 8;
/// The most rows of a tile.
const TILE_ROWS: usize = 3;

/// The tiling of the work, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct DirectTiling {
    shape: PatchShape,
    /// Chunks of positions along depth and height.
    chunks: [usize; 2],
    /// Ranges of output blocks, one to a task; the blocks of a range read the same blocks of the source.
    splits: Vec<Range<usize>>,
    /// Elements of a patch, of all blocks that are read at a time.
    patch: usize,
}

impl DirectTiling {
    /// For weights of this layout.
    pub(crate) fn new(grid: &TapGrid, batch: usize, blocks: &WeightBlocks) -> DirectTiling {
        let runs = blocks.runs();
        let shape = |chunk: [usize; 2]| PatchShape::new(grid, chunk, LANES);
        let patch = |chunk: [usize; 2]| product([shape(chunk).block(), blocks.reach]);
        let chunks = |chunk: [usize; 2]| [0, 1].map(|axis| grid.positions[axis].div_ceil(chunk[axis]));
        let tasks = |chunk: [usize; 2]| {
            let [depth, height] = chunks(chunk);
            product([runs.len(), batch, depth, height])
        };
        let chunk = largest_chunk(grid.positions, |chunk| {
            let too_large = product([patch(chunk), size_of::<u16>()]) > PATCH_BYTES;
            let too_few = tasks(chunk) < TASKS && chunk[0] * chunk[1] > ROWS;
            !too_large && !too_few
        });
        let parts = TASKS.div_ceil(tasks(chunk).max(1));
        let splits = runs.iter().flat_map(|run| pairs_of_blocks(run.clone(), parts)).collect();
        DirectTiling { shape: shape(chunk), chunks: chunks(chunk), splits, patch: patch(chunk) }
    }

    /// Bytes of scratch of a thread, whole cache lines; the largest number, which no budget has room for, where none holds them.
    pub(crate) fn per_thread(&self) -> usize {
        product([self.patch, size_of::<u16>()]).checked_next_multiple_of(64).unwrap_or(usize::MAX)
    }
}

/// The positions of a grid that have the same taps.
struct PhaseTaps {
    start: [usize; 3],
    count: [usize; 3],
    taps: Vec<Tap>,
}

/// A convolution or transposed convolution between features, bound to memory.
pub(crate) struct DirectConv {
    tiling: DirectTiling,
    batch: usize,
    operands: DotOperands,
    blocks: WeightBlocks,
    /// Taps of the kernel in all.
    taps: usize,
    phases: Vec<PhaseTaps>,
    out_stride: [usize; 3],
    /// The extent of the result.
    extent: [usize; 3],
}

/// The place of a task.
struct Chunk {
    sample: usize,
    /// The first position along depth and height.
    first: [usize; 2],
}

/// The positions of a tile.
struct TileExtent {
    /// The first position.
    first: [usize; 3],
    rows: usize,
    columns: usize,
}

impl DirectConv {
    /// Prepares a convolution of `taps` taps in all.
    pub(crate) fn new(
        grid: &TapGrid,
        tiling: DirectTiling,
        batch: usize,
        taps: usize,
        blocks: WeightBlocks,
        operands: DotOperands,
    ) -> DirectConv {
        let phases = grid.phases.iter().map(|phase| {
            let tap = |tap: &GridTap| Tap {
                source: tiling.shape.tap_offset(tap.shift),
                weight: tap.index * SQUARE,
            };
            PhaseTaps { start: phase.start, count: phase.count, taps: phase.taps.iter().map(tap).collect() }
        });
        let phases = phases.collect();
        let (out_stride, extent) = (grid.out_stride, grid.result);
        DirectConv { tiling, batch, operands, blocks, taps, phases, out_stride, extent }
    }

    /// Sums and stores all positions of one phase within a chunk, for some output blocks.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel. `chunk` is one of the grid's, `block` and the next `count − 1`, at most
    /// `D::BLOCKS`, are output blocks of the task's split, and `patch` is gathered for `chunk`.
    #[inline(always)]
    unsafe fn phase<D: Dot>(
        &self,
        chunk: &Chunk,
        phase: &PhaseTaps,
        block: usize,
        count: usize,
        patch: *const u16,
    ) {
        let shape = &self.tiling.shape;
        let strides = shape.position_strides();
        let width = phase.count[2];
        let rows_at_once = (D::POSITIONS / width.max(1)).clamp(1, TILE_ROWS);
        let tiles = width.div_ceil(D::POSITIONS);
        let out_block = self.blocks.reach * self.taps * SQUARE;
        let end = |axis: usize| phase.count[axis].min(chunk.first[axis] + shape.chunk[axis]);
        let mut sums = [0.0f32; MOST_SUMS * LANES];
        for d in chunk.first[0]..end(0) {
            let mut h = chunk.first[1];
            while h < end(1) {
                // As many rows in each tile, or one less.
                let left = end(1) - h;
                let rows = left.div_ceil(left.div_ceil(rows_at_once));
                for tile in 0..tiles {
                    let (from, to) = (width * tile / tiles, width * (tile + 1) / tiles);
                    let place = (d - chunk.first[0]) * strides[0] + (h - chunk.first[1]) * strides[1];
                    // SAFETY: `d` and `h` are below the chunk's end and `from` below the width, so the positions are the chunk's, and
                    // the patch, as large as `PatchShape::block` says, has columns for all their taps in `reach` blocks. Weights are
                    // `[output block][reach][tap]` squares, with blocks below their number. `rows` times the width of a tile is at
                    // most `D::POSITIONS`, and there are `D::BLOCKS` blocks at most, so the sums have room.
                    unsafe {
                        let tile = Tile {
                            source: patch.add(place + from * LANES),
                            row_stride: strides[1],
                            block_stride: shape.block(),
                            source_blocks: self.blocks.reach,
                            taps: &phase.taps,
                            weights: self.operands.packed.0.add(block * out_block),
                            input_stride: self.taps * SQUARE,
                            output_stride: out_block,
                            sums: sums.as_mut_ptr(),
                        };
                        match count {
                            1 => tile.sum::<D, 1>(rows, to - from),
                            _ => tile.sum::<D, 2>(rows, to - from),
                        }
                        let extent = TileExtent { first: [d, h, from], rows, columns: to - from };
                        self.store::<D>(chunk, phase, block, count, extent, &sums);
                    }
                }
                h += rows;
            }
        }
    }

    /// Stores the sums of a tile, `[block][row][column][16]`, of some rows and columns from a position on.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel; the blocks and positions are of the task.
    #[inline(always)]
    unsafe fn store<D: Dot>(
        &self,
        chunk: &Chunk,
        phase: &PhaseTaps,
        block: usize,
        count: usize,
        TileExtent { first: [d, h, w], rows, columns }: TileExtent,
        sums: &[f32; MOST_SUMS * LANES],
    ) {
        let [depth, height, width] = self.extent;
        let voxels = depth * height * width;
        let (start, stride) = (phase.start, self.out_stride);
        for b in 0..count {
            let plane = (chunk.sample * self.blocks.out_blocks() + block + b) * voxels;
            // SAFETY: a phase's positions are those whose result, start + position · stride, is inside the extent, so the voxel is
            // one of `[sample][block][voxel][16]`. There are at most `MOST_SUMS` sums.
            unsafe {
                let bias = self.operands.bias::<D>(block + b);
                for r in 0..rows {
                    let row = (d * stride[0] + start[0]) * height + (h + r) * stride[1] + start[1];
                    for p in 0..columns {
                        let voxel = row * width + (w + p) * stride[2] + start[2];
                        let sum = D::S::load(sums.as_ptr().add(((b * rows + r) * columns + p) * LANES));
                        self.operands.store::<D>((plane + voxel) * LANES, D::S::add(sum, bias));
                    }
                }
            }
        }
    }
}

impl DotKernel for DirectConv {
    fn tasks(&self) -> usize {
        self.batch * self.tiling.chunks[0] * self.tiling.chunks[1] * self.tiling.splits.len()
    }

    #[inline(always)]
    unsafe fn task<D: Dot>(&self, task: usize, thread: usize) {
        let DirectTiling { shape, chunks, splits, .. } = &self.tiling;
        let (split, task) = (&splits[task % splits.len()], task / splits.len());
        let (chunk_h, task) = (task % chunks[1], task / chunks[1]);
        let (chunk_d, sample) = (task % chunks[0], task / chunks[0]);
        let chunk = Chunk { sample, first: [chunk_d * shape.chunk[0], chunk_h * shape.chunk[1]] };
        // SAFETY: scratch has a patch for `thread`. The chunk is one of the grid's, whose first position is inside it; source blocks
        // from `first` on are `reach` by the layout of the weights, as many as a patch has room for. A split's blocks are output blocks.
        unsafe {
            let patch = self.operands.scratch.0.add(thread * self.tiling.per_thread()).cast::<u16>();
            let first = self.blocks.first[split.start];
            for i in 0..self.blocks.reach {
                let patch = patch.add(i * shape.block());
                self.operands.source.gather_operands::<D>(first + i, shape, sample, chunk.first, patch);
            }
            let mut block = split.start;
            while block < split.end {
                let count = D::BLOCKS.min(split.end - block);
                for phase in &self.phases {
                    self.phase::<D>(&chunk, phase, block, count, patch);
                }
                block += count;
            }
        }
    }
}
