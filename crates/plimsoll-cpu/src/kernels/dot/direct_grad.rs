//! The weight gradient of any window: pairs are two neighbouring positions along the width.
//!
//! A tap meets positions whose first is at an even column of the gradient, but at any column of the source. So the source has a pair
//! for each column, that and the next, and the gradient one for every two.

use plimsoll_parallel::each;
use std::ops::Range;

use plimsoll_parallel::LINE;

use super::grad_run::{COLUMN, GradRun};

use crate::kernel::{DotKernel, Ptr};
use crate::kernels::chunk::TASKS;
use crate::kernels::geometry::TapGrid;
use crate::kernels::patch::{Blocks, PatchShape};
use crate::kernels::sum_parts::SumParts;
use crate::lower::product;
use crate::simd::dot::{Dot, PAIR};
use crate::simd::{LANES, Simd};

/// Output blocks that share a gathered patch, at most.
const SHARING: usize = 8;
/// The number of these that are gathered at once.
const TOGETHER: usize = 2;
/// The least positions of a part, for its partial sum to be worth it.
const PART_POSITIONS: usize = 1024;
/// Positions gathered at a time, about: more would share their borders better, fewer stay in the second-level cache.
const CHUNK_POSITIONS: usize = 1024;
/// Positions summed in registers, about: their gradients stay in the first-level cache while all taps go over them.
const RUN_POSITIONS: usize = 128;

/// The tiling of the work, which depends on shapes alone. Sizes beyond `usize` are `usize::MAX`, which exceeds every budget.
#[derive(Clone, Debug)]
pub(crate) struct DirectGradTiling {
    /// The patch of a chunk of planes and rows, with sixteen elements for each column.
    shape: PatchShape,
    /// Planes and rows of a run.
    run: [usize; 2],
    /// Parts that the chunks are divided into.
    parts: usize,
    /// Along depth and height.
    chunks: [usize; 2],
    batch: usize,
    source_blocks: usize,
    out_blocks: usize,
    /// Output blocks that share a gathered patch.
    shared: Vec<Range<usize>>,
    /// Elements of the patch from the position of a tap on, in the order of the weights.
    taps: Vec<usize>,
    positions: [usize; 3],
}

/// Planes and rows of about `positions` positions, whole rows first.
fn planes_and_rows([depth, height, width]: [usize; 3], positions: usize) -> [usize; 2] {
    let rows = (positions / width.max(1)).clamp(1, height);
    let planes = if rows == height { positions / (height * width).max(1) } else { 1 };
    [planes.clamp(1, depth), rows]
}

impl DirectGradTiling {
    /// For sources of `source_blocks` blocks, and `out_blocks` blocks of results.
    pub(crate) fn new(
        grid: &TapGrid,
        batch: usize,
        source_blocks: usize,
        out_blocks: usize,
    ) -> DirectGradTiling {
        let [depth, height, width] = grid.positions;
        let run = planes_and_rows(grid.positions, RUN_POSITIONS);
        // Half the chunk in one plane and half in the next: a plane more is a border less.
        let mut chunk = planes_and_rows(grid.positions, CHUNK_POSITIONS / 2);
        chunk[1] = (chunk[1] / run[1]).max(1) * run[1];
        chunk[0] = (CHUNK_POSITIONS / (chunk[1] * width).max(1)).clamp(run[0], depth);
        let shape = PatchShape::new(grid, chunk, LANES);
        let chunks = [depth.div_ceil(chunk[0]), height.div_ceil(chunk[1])];
        let shared: Vec<Range<usize>> =
            (0..out_blocks).step_by(SHARING).map(|start| start..out_blocks.min(start + SHARING)).collect();
        let wanted = TASKS.div_ceil(product([shared.len(), source_blocks]).max(1));
        let positions = product([batch, depth, height, width]);
        let all_chunks = product([batch, chunks[0], chunks[1]]);
        let parts = wanted.min(positions / PART_POSITIONS).min(all_chunks).max(1);
        // A convolution has one phase.
        let mut taps: Vec<(usize, usize)> = grid
            .phases
            .iter()
            .flat_map(|phase| &phase.taps)
            .map(|tap| (tap.index, PAIR * shape.tap_offset(tap.shift)))
            .collect();
        taps.sort_unstable();
        let taps = taps.into_iter().map(|(_, offset)| offset).collect();
        DirectGradTiling {
            shape,
            run,
            parts,
            chunks,
            batch,
            source_blocks,
            out_blocks,
            shared,
            taps,
            positions: grid.positions,
        }
    }

    /// Pairs of a row.
    fn pairs(&self) -> usize {
        self.positions[2].div_ceil(PAIR)
    }

    /// Elements of a chunk of one block of the gradient.
    #[inline]
    fn gradient(&self) -> usize {
        product([self.shape.chunk[0], self.shape.chunk[1], self.pairs(), COLUMN])
    }

    /// Elements of a patch.
    fn patch(&self) -> usize {
        product([PAIR, self.shape.block()])
    }

    /// Bytes of scratch of a thread, whole cache lines: a patch, gradients, and a row of these before they are rounded.
    pub(crate) fn per_thread(&self) -> usize {
        let elements = self.patch().saturating_add(product([TOGETHER, self.gradient()]));
        let row = product([self.pairs(), COLUMN, size_of::<f32>()]);
        let bytes = product([elements, size_of::<u16>()]).saturating_add(row);
        bytes.checked_next_multiple_of(LINE).unwrap_or(usize::MAX)
    }

    /// Floats of the weights of one pair of blocks.
    #[inline]
    fn pair_weights(&self) -> usize {
        product([self.taps.len(), LANES * LANES])
    }

    /// Floats of the weights of one output block.
    #[inline]
    fn out_block_weights(&self) -> usize {
        product([self.source_blocks, self.pair_weights()])
    }

    /// Floats of one copy of the gradient.
    #[inline]
    fn weights(&self) -> usize {
        product([self.out_blocks, self.out_block_weights()])
    }

    /// Floats of the partial sums.
    pub(crate) fn partial(&self) -> usize {
        if self.parts > 1 { product([self.parts, self.weights()]) } else { 0 }
    }
}

/// The weight gradient of a convolution between features, bound to memory.
pub(crate) struct DirectGrad {
    tiling: DirectGradTiling,
    source: Blocks,
    /// The gradient of the convolution's result.
    gradient: Blocks,
    /// The memory of the sums: `[part][output block][source block][tap][lane][16]`, the result if there is one part.
    sums: Ptr<f32>,
    /// Scratch, per thread: [`DirectGradTiling::per_thread`] bytes.
    scratch: Ptr<u8>,
}

/// A task's scratch, which is its thread's: the parts of [`DirectGradTiling::per_thread`].
#[derive(Clone, Copy)]
struct Scratch {
    /// `[plane][row][phase][column][16][2]`
    patch: *mut u16,
    /// `[output block][plane][row][pair][16][2]`
    gradient: *mut u16,
    /// `[column][16]`
    row: *mut f32,
}

/// A chunk.
struct Chunk {
    sample: usize,
    /// The first position along depth and height.
    first: [usize; 2],
    /// Their number.
    count: [usize; 2],
}

impl DirectGrad {
    /// The kernel, and what adds up its parts, if there are several.
    pub(crate) fn new(
        tiling: DirectGradTiling,
        source: Blocks,
        gradient: Blocks,
        result: Ptr<f32>,
        partial: Ptr<f32>,
        scratch: Ptr<u8>,
    ) -> (DirectGrad, Option<SumParts>) {
        let several = tiling.parts > 1;
        let add = several.then(|| SumParts { partial, result, parts: tiling.parts, count: tiling.weights() });
        let sums = if several { partial } else { result };
        (DirectGrad { tiling, source, gradient, sums, scratch }, add)
    }

    /// Gathers a chunk of the gradients of a block.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel; `chunk` is one of the grid's, `block` one of the gradient, `row` this thread's, and
    /// `to` the place of a block of [`Scratch::gradient`].
    #[inline(always)]
    unsafe fn gather_gradient<D: Dot>(&self, chunk: &Chunk, block: usize, row: *mut f32, to: *mut u16) {
        let [_, height, width] = self.tiling.positions;
        let pairs = self.tiling.pairs();
        for d in 0..chunk.count[0] {
            for h in 0..chunk.count[1] {
                // SAFETY: planes and rows are the chunk's, inside of the gradient; the row has two columns for each pair, and the block a
                // place for each pair of each row.
                unsafe {
                    let from = (chunk.first[0] + d) * height + chunk.first[1] + h;
                    self.gradient.row::<D>(block, chunk.sample, Some(from), 0, width, PAIR * pairs, row);
                    let to = to.add((d * chunk.count[1] + h) * pairs * COLUMN);
                    for pair in 0..pairs {
                        let from = row.add(pair * COLUMN);
                        let values = [D::S::load(from), D::S::load(from.add(LANES))];
                        D::store_pairs(to.add(pair * COLUMN), values);
                    }
                }
            }
        }
    }

    /// Adds the products of a chunk to the sums of `count` output blocks with a source block, run by run.
    ///
    /// # Safety
    /// [`DotKernel::task`]'s contract for this kernel; `scratch` is this thread's with the patch of `chunk` and its gradients of `count`
    /// blocks, at most [`TOGETHER`], and `sums` the place of the pair of the first of these and the source block.
    #[inline(always)]
    unsafe fn add<D: Dot>(&self, chunk: &Chunk, count: usize, scratch: Scratch, sums: *mut f32) {
        let tiling = &self.tiling;
        let [planes, rows] = tiling.run;
        let source_strides = each(tiling.shape.position_strides(), |stride| PAIR * stride);
        let (pairs, gradient_block) = (tiling.pairs(), tiling.gradient());
        let out_block = tiling.out_block_weights();
        let row = pairs * COLUMN;
        let gradient_strides = [chunk.count[1] * row, row];
        for d in (0..chunk.count[0]).step_by(planes) {
            for h in (0..chunk.count[1]).step_by(rows) {
                let at = |strides: [usize; 2]| d * strides[0] + h * strides[1];
                for (tap, offset) in tiling.taps.iter().enumerate() {
                    for b in (0..count).step_by(D::BLOCKS) {
                        // SAFETY: the run ends with the chunk, so what the tap reads is in the patch, and the gradients are there for
                        // `count` blocks; there are sums of sixteen lanes for each tap of each pair of blocks.
                        unsafe {
                            let run = GradRun {
                                planes: planes.min(chunk.count[0] - d),
                                rows: rows.min(chunk.count[1] - h),
                                pairs,
                                source: scratch.patch.add(at(source_strides) + offset),
                                source_step: PAIR * COLUMN,
                                source_strides,
                                gradient: scratch.gradient.add(b * gradient_block + at(gradient_strides)),
                                gradient_strides,
                                gradient_block,
                                sums: sums.add(b * out_block + tap * LANES * LANES),
                                sums_block: out_block,
                            };
                            run.add::<D>(D::BLOCKS.min(count - b));
                        }
                    }
                }
            }
        }
    }
}

impl DotKernel for DirectGrad {
    fn tasks(&self) -> usize {
        self.tiling.shared.len() * self.tiling.source_blocks * self.tiling.parts
    }

    #[inline(always)]
    unsafe fn task<D: Dot>(&self, task: usize, thread: usize) {
        let tiling = &self.tiling;
        let (part, task) = (task % tiling.parts, task / tiling.parts);
        let (source, shared) = (task % tiling.source_blocks, &tiling.shared[task / tiling.source_blocks]);
        let chunks = tiling.batch * tiling.chunks[0] * tiling.chunks[1];
        // SAFETY: scratch has `per_thread` bytes for `thread`, in whole cache lines, which the parts add up to. Chunks are below the bounds of
        // the grid, so each begins inside of it; blocks and the part are below theirs, so the sums are the task's own.
        unsafe {
            let patch = self.scratch.0.add(thread * tiling.per_thread()).cast::<u16>();
            let gradient = patch.add(tiling.patch());
            let row = gradient.add(TOGETHER * tiling.gradient()).cast();
            let scratch = Scratch { patch, gradient, row };
            let of_block = |block: usize| {
                let place = block * tiling.out_block_weights() + source * tiling.pair_weights();
                self.sums.0.wrapping_add(part * tiling.weights() + place)
            };
            for block in shared.clone() {
                for i in (0..tiling.pair_weights()).step_by(LANES) {
                    D::S::store(of_block(block).add(i), D::S::zero());
                }
            }
            for chunk in chunks * part / tiling.parts..chunks * (part + 1) / tiling.parts {
                let (chunk_h, chunk) = (chunk % tiling.chunks[1], chunk / tiling.chunks[1]);
                let (chunk_d, sample) = (chunk % tiling.chunks[0], chunk / tiling.chunks[0]);
                let first = [chunk_d * tiling.shape.chunk[0], chunk_h * tiling.shape.chunk[1]];
                let count =
                    each([0, 1], |axis| tiling.shape.chunk[axis].min(tiling.positions[axis] - first[axis]));
                let chunk = Chunk { sample, first, count };
                self.source.gather_pairs::<D>(source, &tiling.shape, sample, first, patch);
                for block in shared.clone().step_by(TOGETHER) {
                    let count = TOGETHER.min(shared.end - block);
                    for b in 0..count {
                        let to = gradient.add(b * tiling.gradient());
                        self.gather_gradient::<D>(&chunk, block + b, scratch.row, to);
                    }
                    self.add::<D>(&chunk, count, scratch, of_block(block));
                }
            }
        }
    }
}
