//! The convolution kernel: sums over taps, a register tile of outputs × positions at a time.
//!
//! A task gathers the patch that a chunk of positions reads, then walks its tiles. A pointwise convolution of f32 features
//! that are not normalised as they are read needs no patch: its tiles read the stored features. Within a tile the whole
//! sum over input channels and taps stays in registers: each step loads the weights of sixteen outputs per block and
//! multiplies them with one input of each position.

mod tile;

use std::ops::Range;

use tile::{IMAGE_POSITIONS, Tile};

use super::chunk::{TASKS, largest_chunk, pairs_of_blocks};
use super::geometry::TapGrid;
use super::patch::{PatchShape, Source};
use crate::kernel::{Kernel, Ptr};
use crate::layout::{Lanes, WeightBlocks};
use crate::simd::{Bf16, LANES, Simd};

/// The results, `[sample][block][voxel][16]`, and a volume that is added to them, which they may alias.
#[derive(Clone, Copy)]
pub(crate) enum Destination {
    F32(Ptr<f32>, Option<Ptr<f32>>),
    Bf16(Ptr<Bf16>, Option<Ptr<Bf16>>),
}

/// One term of the sum over taps.
#[derive(Clone, Copy)]
struct Tap {
    /// Floats from the position's place in the patch.
    source: usize,
    /// Floats from the first tap of a pair of blocks.
    weight: usize,
}

struct PhaseTaps {
    start: [usize; 3],
    count: [usize; 3],
    taps: Vec<Tap>,
}

/// The tiling of the work, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct ConvTiling {
    pub(crate) shape: PatchShape,
    /// Chunks of positions along depth and height.
    chunks: [usize; 2],
    /// Ranges of output blocks, one to a task; the blocks of a range read the same blocks of the source.
    splits: Vec<Range<usize>>,
    /// Floats of a patch, of all blocks that are read at a time.
    pub(crate) patch: usize,
    /// Sets of phases that share a patch, each with tasks of its own: all phases, or each by itself.
    phase_sets: usize,
    order: Order,
}

/// The order of the tasks, which is chosen so that the larger operand is read from memory once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// All output blocks of a chunk of positions, then the next chunk.
    ByChunk,
    /// All chunks of positions for a range of output blocks, whose weights stay in the cache, then the next range.
    ByWeights,
}

/// The most bytes of a patch, which should stay in the second-level cache together with the weights that stream through it.
const PATCH_BYTES: usize = 1024 << 10;
/// The most bytes of weights that stay in the second-level cache while chunks of positions stream through it.
const CACHED_WEIGHTS: usize = 512 << 10;

impl ConvTiling {
    /// For weights of this layout.
    pub(crate) fn new(grid: &TapGrid, batch: usize, blocks: &WeightBlocks) -> ConvTiling {
        let runs = blocks.runs();
        let shape = |chunk: [usize; 2]| PatchShape::new(grid, chunk, blocks.column());
        let patch = |chunk: [usize; 2]| shape(chunk).block() * blocks.reach;
        let chunks = |chunk: [usize; 2]| [0, 1].map(|axis| grid.positions[axis].div_ceil(chunk[axis]));
        let phase_sets = if grid.is_interleaved() { grid.phases.len() } else { 1 };
        let tasks = |chunk: [usize; 2]| {
            let [depth, height] = chunks(chunk);
            runs.len() * batch * phase_sets * depth * height
        };
        let chunk = largest_chunk(grid.positions, |chunk| {
            let too_large = patch(chunk) * size_of::<f32>() > PATCH_BYTES;
            let too_few = tasks(chunk) < TASKS && chunk[0] * chunk[1] > 8;
            !too_large && !too_few
        });
        let parts = TASKS.div_ceil(tasks(chunk));
        let splits: Vec<_> = runs.iter().flat_map(|run| pairs_of_blocks(run.clone(), parts)).collect();
        let chunks = chunks(chunk);
        let all_chunks = batch * phase_sets * chunks[0] * chunks[1];
        // Phases that share a patch have different taps, the others the same.
        let taps = grid.phases.iter().map(|phase| phase.taps.len()).sum::<usize>() / phase_sets;
        let (weights, source) = (blocks.count(taps), all_chunks * patch(chunk));
        let reads_weights_often = weights * size_of::<f32>() > CACHED_WEIGHTS;
        let order = match reads_weights_often && weights * all_chunks > source * splits.len() {
            true => Order::ByWeights,
            false => Order::ByChunk,
        };
        ConvTiling { shape: shape(chunk), chunks, splits, patch: patch(chunk), phase_sets, order }
    }
}

/// A convolution or transposed convolution to features, bound to memory.
pub(crate) struct TapConv {
    tiling: ConvTiling,
    batch: usize,
    operands: Operands,
    blocks: WeightBlocks,
    own_lanes: Vec<[i32; LANES]>,
    /// Inputs in each block of sources that is read by blocks.
    held_lanes: Vec<usize>,
    taps: usize,
    phases: Vec<PhaseTaps>,
    out_stride: [usize; 3],
    extent: [usize; 3],
    /// `true` if consecutive positions make consecutive results from one input voxel each.
    is_pointwise: bool,
}

/// The operands of a convolution.
pub(crate) struct Operands {
    pub(crate) source: Source,
    /// `[output block][reach][tap][input][16]`, as [`WeightBlocks`] says.
    pub(crate) weights: Ptr<f32>,
    /// `[output block][16]`
    pub(crate) bias: Option<Ptr<f32>>,
    pub(crate) result: Destination,
    /// Scratch, per thread: [`ConvTiling::patch`] floats, or those that `per_thread` of the Winograd kernels' tilings says.
    pub(crate) patches: Ptr<f32>,
}

impl TapConv {
    /// Prepares a convolution of `kernel_taps` taps in all.
    pub(crate) fn new(
        grid: &TapGrid,
        tiling: ConvTiling,
        batch: usize,
        kernel_taps: usize,
        blocks: WeightBlocks,
        operands: Operands,
    ) -> TapConv {
        let phases = grid
            .phases
            .iter()
            .map(|phase| PhaseTaps {
                start: phase.start,
                count: phase.count,
                taps: phase
                    .taps
                    .iter()
                    .map(|tap| Tap {
                        source: tiling.shape.tap_offset(tap.shift),
                        weight: tap.index * blocks.tap(),
                    })
                    .collect(),
            })
            .collect();
        let is_pointwise = grid.span == [0; 3]
            && grid.out_stride == [1; 3]
            && grid.phases.iter().all(|phase| phase.start == [0; 3] && phase.count == grid.result);
        TapConv {
            tiling,
            batch,
            operands,
            own_lanes: blocks.own_lanes(),
            held_lanes: blocks.held_lanes(),
            blocks,
            taps: kernel_taps,
            phases,
            out_stride: grid.out_stride,
            extent: grid.result,
            is_pointwise,
        }
    }

    /// Planes, rows and columns of the positions of a chunk. Rows or planes that lie side by side in the patch and in the
    /// result are one long row, which full tiles cover best.
    fn lines(&self, count: [usize; 3], strides: [usize; 2]) -> [usize; 3] {
        let [planes, rows, width] = count;
        if !self.is_pointwise || strides[1] != width * self.tiling.shape.lanes {
            return count;
        }
        match rows == self.extent[1] && strides[0] == rows * strides[1] {
            true => [1, 1, planes * rows * width],
            false => [planes, 1, rows * width],
        }
    }

    /// The stored features that a chunk reads, if the convolution is pointwise and reads them as they are stored.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel. `at` is a chunk of the grid, and `first` the first of `reach` blocks
    /// of the source.
    #[inline(always)]
    unsafe fn in_place(&self, at: &TaskOrigin, first: usize) -> Option<Patch> {
        let Source::Features(blocks) = &self.operands.source else { return None };
        let strides = self.tiling.shape.source_strides()?;
        let chunk = at.first[0] * strides[0] + at.first[1] * strides[1];
        debug_assert!(chunk < self.tiling.shape.stored_block(), "a chunk beyond the source");
        // SAFETY: the blocks are the source's, `at.sample` is one of its samples, and all of them are in the arena. The
        // chunk's first position is on the grid, and so by `source_strides` a voxel of each block.
        unsafe {
            let run = blocks.run_of_f32(first..first + self.blocks.reach, at.sample)?;
            Some(Patch { from: run.start.add(chunk), block: run.stride, strides })
        }
    }

    /// A copy in scratch of the features that a chunk reads.
    ///
    /// # Safety
    /// [`TapConv::in_place`]'s contract; `patch` is valid for writes of [`ConvTiling::patch`] floats.
    #[inline(always)]
    unsafe fn gathered<S: Simd>(&self, at: &TaskOrigin, first: usize, patch: *mut f32) -> Patch {
        let of_phase;
        let shape = match self.tiling.phase_sets {
            1 => &self.tiling.shape,
            _ => {
                of_phase = self.tiling.shape.of_phase(self.phases[at.phases.start].start);
                &of_phase
            }
        };
        // SAFETY: the chunk and the blocks are the source's, as this function's contract says, and the patch has room for
        // `reach` blocks.
        unsafe {
            match &self.operands.source {
                Source::Image(image) => image.gather(shape, at.sample, at.first, patch),
                Source::Features(blocks) => {
                    for i in 0..self.blocks.reach {
                        let to = patch.add(i * shape.block());
                        blocks.gather::<S>(first + i, shape, at.sample, at.first, to);
                    }
                }
            }
        }
        Patch { from: patch, block: shape.block(), strides: shape.position_strides() }
    }

    /// Walks the rows of one phase within a chunk, for some output blocks.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel. `at` is a chunk of the grid, `blocks` are the first output block and
    /// one or two of them, of the task's split, and `patch` has all features that the chunk reads, of `reach` blocks.
    #[inline(always)]
    unsafe fn phase<S: Simd>(
        &self,
        at: &TaskOrigin,
        phase: &PhaseTaps,
        blocks: (usize, usize),
        patch: &Patch,
    ) {
        let shape = &self.tiling.shape;
        let strides = patch.strides;
        // A phase may have fewer positions than the grid, and none in its last chunk.
        let count = |axis: usize| phase.count[axis].saturating_sub(at.first[axis]).min(shape.chunk[axis]);
        let [planes, rows, width] = self.lines([count(0), count(1), phase.count[2]], strides);
        // Images are a small part of the work and have narrower tiles, of one row.
        let (rows_at_once, widest) = match self.blocks.lanes {
            Lanes::Image(_) => (1, S::TILE_POSITIONS.min(IMAGE_POSITIONS)),
            _ => ((S::TILE_POSITIONS / width.max(1)).clamp(1, 3), S::TILE_POSITIONS),
        };
        let tiles = width.div_ceil(widest);
        for plane in 0..planes {
            let mut row = 0;
            while row < rows {
                let together = rows_at_once.min(rows - row);
                for tile in 0..tiles {
                    let (from, to) = (width * tile / tiles, width * (tile + 1) / tiles);
                    let place = plane * strides[0] + row * strides[1];
                    let args = Tile {
                        // SAFETY: the plane, the row and `from` are below the counts of `lines`, so the position is one
                        // of the chunk's. A gathered patch has a column for each of them; stored features have a voxel for
                        // each position of the grid, if `source_strides` says that they are read in place.
                        source: unsafe { patch.from.add(place + from * shape.lanes) },
                        block_stride: patch.block,
                        row_stride: strides[1],
                        phase,
                        position: [at.first[0] + plane, at.first[1] + row, from],
                        sample: at.sample,
                        block: blocks.0,
                    };
                    // SAFETY: rows end at the chunk's and the tile's columns at the line's; `blocks.1` blocks are the
                    // split's, as this function's contract says.
                    unsafe {
                        match blocks.1 {
                            1 => self.tile_of_rows::<S, 1>(&args, together, to - from),
                            _ => self.tile_of_rows::<S, 2>(&args, together, to - from),
                        }
                    }
                }
                row += together;
            }
        }
    }
}

/// The features that a chunk of positions reads: gathered in scratch, or as stored.
struct Patch {
    /// The column of the chunk's first position in the first block.
    from: *const f32,
    /// Floats from one block to the next.
    block: usize,
    /// Floats from one position to the next along depth and height.
    strides: [usize; 2],
}

/// The place of a task.
struct TaskOrigin {
    sample: usize,
    /// The phases whose results it computes.
    phases: Range<usize>,
    /// The first position along depth and height.
    first: [usize; 2],
}

impl Kernel for TapConv {
    fn tasks(&self) -> usize {
        let ConvTiling { chunks, phase_sets, splits, .. } = &self.tiling;
        self.batch * phase_sets * chunks[0] * chunks[1] * splits.len()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let ConvTiling { shape, chunks, splits, patch: length, phase_sets, order } = &self.tiling;
        let all_chunks = self.batch * phase_sets * chunks[0] * chunks[1];
        let (split, task) = match order {
            Order::ByChunk => (&splits[task % splits.len()], task / splits.len()),
            Order::ByWeights => (&splits[task / all_chunks], task % all_chunks),
        };
        let (chunk_h, task) = (task % chunks[1], task / chunks[1]);
        let (chunk_d, task) = (task % chunks[0], task / chunks[0]);
        let (set, sample) = (task % phase_sets, task / phase_sets);
        let phases = self.phases.len() * set / phase_sets..self.phases.len() * (set + 1) / phase_sets;
        let first = [chunk_d * shape.chunk[0], chunk_h * shape.chunk[1]];
        let at = TaskOrigin { sample, phases, first };
        // SAFETY: scratch has a patch for `thread`. The chunk is one of the grid's, whose first position is inside
        // it; source blocks from `first` on are `reach` by the layout of the weights, as many as a patch has room for.
        unsafe {
            let first = self.blocks.first[split.start];
            let patch = self.in_place(&at, first).unwrap_or_else(
                #[inline(always)]
                || self.gathered::<S>(&at, first, self.operands.patches.0.add(thread * length)),
            );
            let mut block = split.start;
            while block < split.end {
                let count = S::TILE_BLOCKS.min(2).min(split.end - block);
                for phase in &self.phases[at.phases.clone()] {
                    self.phase::<S>(&at, phase, (block, count), &patch);
                }
                block += count;
            }
        }
    }
}
