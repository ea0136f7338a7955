//! The weight gradient kernel.
//!
//! The sums run over positions, so each of them is held in a register over a run of positions while the gradient's
//! sixteen outputs are multiplied with one input at a time. A pair of (output blocks, source block) that has many
//! positions is divided into parts with a partial sum each, added up afterwards in a fixed order: their number depends
//! on shapes, not on threads.

mod run;

use plimsoll_parallel::each;
use std::ops::Range;

use run::{ALL, DEPTHWISE, OWN, OWN_HALVES, OWN_QUARTERS, Run, is_tile, tile_inputs};

pub(crate) use super::sum_parts::SumParts;

use super::chunk::TASKS;
use super::geometry::TapGrid;
use super::patch::{Blocks, PatchShape, Source};
use crate::kernel::{Kernel, Ptr};
use crate::layout::{Lanes, WeightBlocks};
use crate::simd::{LANES, Simd};

/// Output blocks that share a gathered patch, at most.
const SHARING: usize = 8;
/// Source blocks that share a chunk of gradients while that is in the second-level cache, at most.
const SOURCES: usize = 8;
/// The least number of tasks that source blocks are joined to.
const JOINED_TASKS: usize = TASKS / 2;
/// Floats of the sums of blocks that share a patch: with the patch they stay in the second-level cache.
const SHARED_SUMS: usize = 16 << 10;
/// The most of these that are summed at once: [`Simd::GRAD_BLOCKS`] of each instruction set.
const TOGETHER: usize = 2;
/// The least positions of a part, for its partial sum to be worth it.
const PART_POSITIONS: usize = 1024;
/// Positions gathered at a time, about: more would share their borders better, fewer stay in the second-level cache.
const CHUNK_POSITIONS: usize = 1024;
/// Positions summed in registers, at most: their gradients stay in the first-level cache while all taps go over them. Each
/// run is summed by itself, so that rounding grows with its length and not with the volume.
const RUN_POSITIONS: usize = 128;

/// The tiling of the work, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct GradTiling {
    /// The patch of a chunk of planes and rows.
    shape: PatchShape,
    /// Planes and rows of a run.
    run: [usize; 2],
    /// Parts that the positions are divided into.
    pub(super) parts: usize,
    /// Along depth and height.
    chunks: [usize; 2],
    batch: usize,
    /// The phases of the grid, each with chunks of its own: there are several if it is interleaved.
    phases: Vec<GradPhase>,
    /// The extent of the gradient.
    extent: [usize; 3],
    /// Its planes and rows from one of a phase to the next.
    spacing: [usize; 2],
    /// Output blocks that share a gathered patch.
    shared: Vec<Range<usize>>,
    /// Source blocks of a task, whose sums do not depend on it.
    sources: usize,
    pub(crate) blocks: WeightBlocks,
    /// Floats of one output block's weights.
    out_block_weights: usize,
    /// Floats of the weights of one pair of blocks.
    pair_weights: usize,
    positions: [usize; 3],
}

/// The positions of a phase.
#[derive(Clone, Copy, Debug)]
struct GradPhase {
    start: [usize; 3],
    count: [usize; 3],
}

/// Planes and rows of about `positions` positions, whole rows first.
fn planes_and_rows([depth, height, width]: [usize; 3], positions: usize) -> [usize; 2] {
    let rows = (positions / width.max(1)).clamp(1, height);
    let planes = if rows == height { positions / (height * width).max(1) } else { 1 };
    [planes.clamp(1, depth), rows]
}

impl GradTiling {
    /// For weights of this layout with `taps` taps.
    pub(crate) fn new(grid: &TapGrid, batch: usize, blocks: WeightBlocks, taps: usize) -> GradTiling {
        let [depth, height, width] = grid.positions;
        let run = planes_and_rows(grid.positions, RUN_POSITIONS);
        // Half the chunk in one plane and half in the next: a plane more is a border less.
        let mut chunk = planes_and_rows(grid.positions, CHUNK_POSITIONS / 2);
        chunk[1] = (chunk[1] / run[1]).max(1) * run[1];
        chunk[0] = (CHUNK_POSITIONS / (chunk[1] * width).max(1)).clamp(run[0], depth);
        let shape = PatchShape::new(grid, chunk, blocks.column());
        let chunks = [depth.div_ceil(chunk[0]), height.div_ceil(chunk[1])];
        let pair_weights = taps * blocks.tap();
        let sharing = (SHARED_SUMS / pair_weights.max(1)).clamp(TOGETHER, SHARING);
        let shared: Vec<Range<usize>> = blocks
            .runs()
            .into_iter()
            .flat_map(|run| {
                let starts = run.clone().step_by(sharing);
                starts.map(move |start| start..run.end.min(start + sharing))
            })
            .collect();
        let positions = batch * grid.result.iter().product::<usize>();
        let phases: Vec<GradPhase> =
            grid.phases.iter().map(|phase| GradPhase { start: phase.start, count: phase.count }).collect();
        let wanted = TASKS.div_ceil(shared.len() * blocks.reach);
        let parts =
            wanted.min(positions / PART_POSITIONS).min(batch * phases.len() * chunks[0] * chunks[1]).max(1);
        let tasks = |sources: usize| shared.len() * blocks.reach.div_ceil(sources) * parts;
        let mut sources = 1;
        while sources < SOURCES && tasks(2 * sources) >= JOINED_TASKS {
            sources *= 2;
        }
        GradTiling {
            shape,
            run,
            sources,
            parts,
            chunks,
            batch,
            phases,
            extent: grid.result,
            spacing: grid.spacing,
            shared,
            out_block_weights: blocks.reach * pair_weights,
            pair_weights,
            blocks,
            positions: grid.positions,
        }
    }

    /// Floats of one copy of the gradient.
    pub(crate) fn weights(&self) -> usize {
        self.blocks.out_blocks() * self.out_block_weights
    }

    /// Floats of the partial sums.
    pub(crate) fn partial(&self) -> usize {
        if self.parts > 1 { self.parts * self.weights() } else { 0 }
    }

    /// Floats of a chunk of one block of the gradient.
    fn gradient(&self) -> usize {
        self.shape.chunk[0] * self.shape.chunk[1] * self.positions[2] * LANES
    }

    /// Floats that each thread gathers into: a patch, and the gradients that are summed at once.
    pub(crate) fn per_thread(&self) -> usize {
        self.shape.block() + TOGETHER * self.gradient()
    }
}

/// The weight gradient of a convolution to features, bound to memory.
pub(crate) struct WeightGrad {
    tiling: GradTiling,
    source: Source,
    /// The gradient of the convolution's result.
    gradient: Blocks,
    /// Offsets in the patch of each tap and channel, in the order of the sums.
    inputs: Vec<usize>,
    own_lanes: Vec<[i32; LANES]>,
    /// The memory of the sums: `[part][output block][reach][tap][input][16]`, the result if there is one part.
    sums: Ptr<f32>,
    /// Scratch, per thread: [`GradTiling::per_thread`] floats.
    gathered: Ptr<f32>,
}

impl WeightGrad {
    pub(crate) fn new(
        grid: &TapGrid,
        tiling: GradTiling,
        source: Source,
        gradient: Blocks,
        result: Ptr<f32>,
        partial: Ptr<f32>,
        gathered: Ptr<f32>,
    ) -> WeightGrad {
        let mut taps: Vec<(usize, usize)> =
            grid.phases[0].taps.iter().map(|tap| (tap.index, tiling.shape.tap_offset(tap.shift))).collect();
        taps.sort_unstable();
        // Inputs of an own group are in the lanes that these say.
        let own_lanes = tiling.blocks.own_lanes();
        let apart = usize::from(own_lanes.is_empty());
        let count = tiling.blocks.inputs();
        let sums = if tiling.parts > 1 { partial } else { result };
        let inputs =
            taps.iter().flat_map(|(_, tap)| (0..count).map(move |input| tap + input * apart)).collect();
        WeightGrad { tiling, source, gradient, inputs, own_lanes, sums, gathered }
    }

    /// Adds a chunk to the sums of one pair of blocks, run by run.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `patch` is gathered for a chunk of `count` planes and rows, of which
    /// `gradient` has the blocks. `sums` is valid for reads and writes of [`GradTiling::pair_weights`] floats, and so for
    /// each of `B` blocks [`GradTiling::out_block_weights`] apart.
    #[inline(always)]
    unsafe fn chunk<S: Simd, const B: usize, const L: u8>(
        &self,
        sums: *mut f32,
        patch: *const f32,
        gradient: &Gradient<B>,
        count: [usize; 2],
    ) {
        let [planes, rows] = self.tiling.run;
        let strides = self.tiling.shape.position_strides();
        for d in (0..count[0]).step_by(planes) {
            for h in (0..count[1]).step_by(rows) {
                let (width, rows) = (self.tiling.positions[2], rows.min(count[1] - h));
                // Rows that lie side by side are one long row.
                let is_line =
                    strides[1] == width * self.tiling.shape.lanes && gradient.strides[1] == width * LANES;
                let (rows, width) = if is_line { (1, rows * width) } else { (rows, width) };
                let run = Run {
                    planes: planes.min(count[0] - d),
                    rows,
                    width,
                    source_strides: strides,
                    column: self.tiling.shape.lanes,
                    gradient_strides: gradient.strides,
                    sums_stride: self.tiling.out_block_weights,
                    own_lanes: &self.own_lanes,
                };
                // SAFETY: `d`, `h` and the run end at `count`, so what its taps read is in the patch and its gradients in
                // the chunk. `pair_weights` are sixteen sums for each of `inputs`, of which `tile` at most are left.
                unsafe {
                    let source = patch.add(d * strides[0] + h * strides[1]);
                    let mut from = gradient.blocks;
                    for from in &mut from {
                        *from = from.add(d * gradient.strides[0] + h * gradient.strides[1]);
                    }
                    let (mut sums, mut inputs) = (sums, self.inputs.as_slice());
                    let mut first = 0;
                    while !inputs.is_empty() {
                        let tile = tile_inputs::<S, L>(inputs.len());
                        macro_rules! accumulate {
                            ($($inputs:literal),*) => {
                                match tile {
                                    $($inputs if const { is_tile::<S, B, L>($inputs) } => {
                                        run.accumulate::<S, B, $inputs, L>(sums, source, inputs, first, from);
                                    })*
                                    _ => unreachable!("no tile of {tile} inputs"),
                                }
                            };
                        }
                        accumulate!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
                        sums = sums.add(tile * LANES);
                        (first, inputs) = (first + tile, &inputs[tile..]);
                    }
                }
            }
        }
    }

    /// Reads a chunk of the source.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `at` is a chunk of the grid, `block` is of the source, and `patch` is
    /// this thread's scratch.
    #[inline(always)]
    unsafe fn gather<S: Simd>(&self, block: usize, at: &Chunk, patch: *mut f32) {
        let of_phase;
        let shape = match self.tiling.phases.len() {
            1 => &self.tiling.shape,
            _ => {
                of_phase = self.tiling.shape.of_phase(at.start);
                &of_phase
            }
        };
        // SAFETY: the chunk and the block are the operand's, as this function's contract says, and scratch has a patch.
        unsafe {
            match &self.source {
                Source::Image(image) => image.gather(shape, at.sample, at.first, patch),
                Source::Features(blocks) => blocks.gather::<S>(block, shape, at.sample, at.first, patch),
            }
        }
    }

    /// Reads a chunk of the gradients of `B` blocks, and adds its products with the source to their sums.
    ///
    /// # Safety
    /// [`Kernel::task`]'s contract for this kernel; `at` is a chunk of the grid, `B` blocks from `block` on are of the
    /// gradient, `patch` is this thread's scratch with the chunk of the source, and `sums` is as [`WeightGrad::chunk`] asks.
    #[inline(always)]
    unsafe fn add<S: Simd, const B: usize, const L: u8>(
        &self,
        block: usize,
        at: &Chunk,
        sums: *mut f32,
        patch: *mut f32,
    ) {
        let tiling = &self.tiling;
        let ([_, height, width], [planes, rows]) = (tiling.extent, tiling.spacing);
        // SAFETY: the chunk and the blocks are the operands', as this function's contract says. Scratch has a patch and
        // then a chunk of the gradient for each of `TOGETHER` blocks; rows of a chunk that is stored as f32 are inside of
        // its block.
        unsafe {
            let row = (at.start[0] + at.first[0] * planes) * height + at.start[1] + at.first[1] * rows;
            let first = row * width;
            let mut blocks = [std::ptr::null(); B];
            let mut strides = [planes * height * width * LANES, rows * width * LANES];
            for (b, chunk) in blocks.iter_mut().enumerate() {
                if let Some(stored) = self.gradient.as_f32(block + b, at.sample) {
                    *chunk = stored.add(first * LANES);
                    continue;
                }
                let to = patch.add(tiling.shape.block() + b * tiling.gradient());
                for plane in 0..at.count[0] {
                    for row in 0..at.count[1] {
                        let from = first + (plane * planes * height + row * rows) * width;
                        let to = to.add((plane * at.count[1] + row) * width * LANES);
                        self.gradient.widen::<S>(block + b, at.sample, from..from + width, to);
                    }
                }
                strides = [at.count[1] * width * LANES, width * LANES];
                *chunk = to.cast_const();
            }
            self.chunk::<S, B, L>(sums, patch, &Gradient { blocks, strides }, at.count);
        }
    }

    /// [`WeightGrad::add`] for all output blocks of a task.
    ///
    /// # Safety
    /// [`WeightGrad::add`]'s contract, for each of the blocks, whose sums are [`GradTiling::out_block_weights`] apart.
    #[inline(always)]
    unsafe fn add_all<S: Simd>(&self, shared: Range<usize>, at: &Chunk, sums: *mut f32, patch: *mut f32) {
        const { assert!(S::GRAD_BLOCKS <= TOGETHER, "scratch has no room for so many gradients") };
        let tiling = &self.tiling;
        for b in (0..shared.len()).step_by(S::GRAD_BLOCKS) {
            // SAFETY: at most `GRAD_BLOCKS` blocks are left from `b` on, so this function's contract includes the contract of the calls.
            unsafe {
                let (block, sums) = (shared.start + b, sums.add(b * tiling.out_block_weights));
                match (tiling.blocks.lanes, S::GRAD_BLOCKS.min(shared.len() - b)) {
                    // Each block of results reads a block of its own, so none are shared.
                    (Lanes::Own(1), _) => self.add::<S, 1, DEPTHWISE>(block, at, sums, patch),
                    (Lanes::Own(..=4), _) => self.add::<S, 1, OWN_QUARTERS>(block, at, sums, patch),
                    (Lanes::Own(_), _) if S::READS_HALVES => {
                        self.add::<S, 1, OWN_HALVES>(block, at, sums, patch);
                    }
                    (Lanes::Own(_), _) => self.add::<S, 1, OWN>(block, at, sums, patch),
                    (_, 1) => self.add::<S, 1, ALL>(block, at, sums, patch),
                    (_, _) => self.add::<S, 2, ALL>(block, at, sums, patch),
                }
            }
        }
    }
}

/// A chunk of the gradients of some blocks, with sixteen floats for each position.
struct Gradient<const B: usize> {
    blocks: [*const f32; B],
    /// From one plane to the next, and from one row.
    strides: [usize; 2],
}

/// A chunk.
struct Chunk {
    sample: usize,
    /// The first position of its phase.
    start: [usize; 3],
    /// The first position along depth and height.
    first: [usize; 2],
    /// Their number.
    count: [usize; 2],
}

impl Kernel for WeightGrad {
    fn tasks(&self) -> usize {
        let groups = self.tiling.blocks.reach.div_ceil(self.tiling.sources);
        self.tiling.shared.len() * groups * self.tiling.parts
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let tiling = &self.tiling;
        let (part, task) = (task % tiling.parts, task / tiling.parts);
        let groups = tiling.blocks.reach.div_ceil(tiling.sources);
        let (group, shared) = (task % groups, &tiling.shared[task / groups]);
        let block = shared.start;
        let group = group * tiling.sources..tiling.blocks.reach.min((group + 1) * tiling.sources);
        let chunks = tiling.batch * tiling.phases.len() * tiling.chunks[0] * tiling.chunks[1];
        // SAFETY: scratch has a part for `thread`; the part, the blocks and the group are below theirs, so the sums are the
        // task's own. Chunks are below the bounds of the grid, so each begins inside the extent.
        unsafe {
            let sums = self
                .sums
                .0
                .add(part * tiling.weights() + block * tiling.out_block_weights)
                .add(group.start * tiling.pair_weights);
            for b in 0..shared.len() {
                for i in (0..group.len() * tiling.pair_weights).step_by(LANES) {
                    S::store(sums.add(b * tiling.out_block_weights + i), S::zero());
                }
            }
            let scratch = self.gathered.0.add(thread * tiling.per_thread());
            for chunk in chunks * part / tiling.parts..chunks * (part + 1) / tiling.parts {
                let (chunk_h, chunk) = (chunk % tiling.chunks[1], chunk / tiling.chunks[1]);
                let (chunk_d, chunk) = (chunk % tiling.chunks[0], chunk / tiling.chunks[0]);
                let (phase, sample) = (chunk % tiling.phases.len(), chunk / tiling.phases.len());
                let GradPhase { start, count } = tiling.phases[phase];
                let first = [chunk_d * tiling.shape.chunk[0], chunk_h * tiling.shape.chunk[1]];
                // A phase may have fewer positions than the first, and none in its last chunk.
                let left = |axis: usize| count[axis].saturating_sub(first[axis]);
                let count = each([0, 1], |axis| tiling.shape.chunk[axis].min(left(axis)));
                if count.contains(&0) {
                    continue;
                }
                let at = Chunk { sample, start, first, count };
                for (i, source) in group.clone().enumerate() {
                    self.gather::<S>(tiling.blocks.first[block] + source, &at, scratch);
                    self.add_all::<S>(shared.clone(), &at, sums.add(i * tiling.pair_weights), scratch);
                }
            }
        }
    }
}
