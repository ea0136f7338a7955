//! The weight gradient kernel.
//!
//! The sums run over positions, so each of them is held in a register over a run of positions while the gradient's sixteen
//! outputs are multiplied with one input at a time. A pair of (output blocks, source block) that has many positions is cut
//! into parts with a partial sum each, added up afterwards in a fixed order: how many is a matter of shapes, not of threads.

use std::ops::Range;

use super::geometry::TapGrid;
use super::patch::{Blocks, PatchShape, Source};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};
use crate::weight_blocks::{Lanes, WeightBlocks};

/// Output blocks that share a gathered patch, at most.
const SHARING: usize = 2;
/// Tasks there should be at least.
const TASKS: usize = 16;
/// Positions that a part should have at least, for its partial sum to be worth it.
const PART_POSITIONS: usize = 1024;
/// Positions gathered at a time, about: more would share their borders better, fewer stay in the second-level cache.
const CHUNK_POSITIONS: usize = 1024;
/// Positions summed in registers, at most: their gradients stay in the first-level cache while all taps go over them. Each
/// run is summed by itself, so that rounding grows with its length and not with the volume.
const RUN_POSITIONS: usize = 128;

/// How the work is cut, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct GradCut {
    /// Of a chunk of planes and rows.
    shape: PatchShape,
    /// Planes and rows of a run.
    run: [usize; 2],
    /// Parts that the positions are cut into.
    parts: usize,
    /// Along depth and height.
    chunks: [usize; 2],
    batch: usize,
    /// Output blocks that share a gathered patch.
    shared: Vec<Range<usize>>,
    pub(crate) blocks: WeightBlocks,
    /// Floats of one output block's weights.
    out_block_weights: usize,
    /// Floats of the weights of one pair of blocks.
    pair_weights: usize,
    positions: [usize; 3],
}

/// Planes and rows of about so many positions, whole rows first.
fn planes_and_rows([depth, height, width]: [usize; 3], positions: usize) -> [usize; 2] {
    let rows = (positions / width.max(1)).clamp(1, height);
    let planes = if rows == height { positions / (height * width).max(1) } else { 1 };
    [planes.clamp(1, depth), rows]
}

impl GradCut {
    /// For weights of so many taps that lie so.
    pub(crate) fn new(grid: &TapGrid, batch: usize, blocks: WeightBlocks, taps: usize) -> GradCut {
        let [depth, height, width] = grid.positions;
        let run = planes_and_rows(grid.positions, RUN_POSITIONS);
        // Half the chunk in one plane and half in the next: a plane more is a border less.
        let mut chunk = planes_and_rows(grid.positions, CHUNK_POSITIONS / 2);
        chunk[1] = (chunk[1] / run[1]).max(1) * run[1];
        chunk[0] = (CHUNK_POSITIONS / (chunk[1] * width).max(1)).clamp(run[0], depth);
        let shape = PatchShape::new(grid, chunk, blocks.column());
        let chunks = [depth.div_ceil(chunk[0]), height.div_ceil(chunk[1])];
        let shared: Vec<Range<usize>> = blocks
            .runs()
            .into_iter()
            .flat_map(|run| {
                let starts = run.clone().step_by(SHARING);
                starts.map(move |start| start..run.end.min(start + SHARING))
            })
            .collect();
        let positions = batch * depth * height * width;
        let wanted = TASKS.div_ceil(shared.len() * blocks.reach);
        let parts = wanted.min(positions / PART_POSITIONS).min(batch * chunks[0] * chunks[1]).max(1);
        let pair_weights = taps * blocks.tap();
        GradCut {
            shape,
            run,
            parts,
            chunks,
            batch,
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

    /// Floats that each thread gathers into: a patch, and the gradient.
    pub(crate) fn per_thread(&self) -> usize {
        self.shape.block() + SHARING * self.gradient()
    }
}

/// The weight gradient of a convolution to features, bound to memory.
pub(crate) struct WeightGrad {
    cut: GradCut,
    source: Source,
    /// Of the convolution's result.
    gradient: Blocks,
    /// Offsets in the patch of each tap and channel, in the order of the sums.
    inputs: Vec<usize>,
    own_lanes: Vec<[i32; LANES]>,
    /// Where the sums go: the result, or the partial sums.
    sums: Ptr<f32>,
    gathered: Ptr<f32>,
}

impl WeightGrad {
    pub(crate) fn new(
        grid: &TapGrid,
        cut: GradCut,
        source: Source,
        gradient: Blocks,
        (result, partial, gathered): (Ptr<f32>, Ptr<f32>, Ptr<f32>),
    ) -> WeightGrad {
        let mut taps: Vec<(usize, usize)> =
            grid.phases[0].taps.iter().map(|tap| (tap.index, cut.shape.tap_offset(tap.shift))).collect();
        taps.sort_unstable();
        // Inputs of an own group are in the lanes that these say.
        let own_lanes = cut.blocks.own_lanes();
        let apart = usize::from(own_lanes.is_empty());
        let count = cut.blocks.inputs();
        let sums = if cut.parts > 1 { partial } else { result };
        let inputs =
            taps.iter().flat_map(|(_, tap)| (0..count).map(move |input| tap + input * apart)).collect();
        WeightGrad { cut, source, gradient, inputs, own_lanes, sums, gathered }
    }

    /// Adds a chunk to the sums of one pair of blocks, run by run.
    ///
    /// # Safety
    /// As for the kernel; `patch` must be gathered, and `gradient` must be that of the chunk of `count` planes and rows.
    #[inline(always)]
    unsafe fn chunk<S: Simd, const B: usize, const OWN: bool>(
        &self,
        sums: *mut f32,
        patch: *const f32,
        gradient: &Gradient<B>,
        count: [usize; 2],
    ) {
        let [planes, rows] = self.cut.run;
        let strides = self.cut.shape.position_strides();
        for d in (0..count[0]).step_by(planes) {
            for h in (0..count[1]).step_by(rows) {
                let run = Run {
                    planes: planes.min(count[0] - d),
                    rows: rows.min(count[1] - h),
                    width: self.cut.positions[2],
                    source_strides: strides,
                    column: self.cut.shape.lanes,
                    gradient_strides: gradient.strides,
                    sums_stride: self.cut.out_block_weights,
                    own_lanes: &self.own_lanes,
                };
                // SAFETY: the run is in the chunk, so what its taps read is in the patch; there are sixteen sums for each input.
                unsafe {
                    let source = patch.add(d * strides[0] + h * strides[1]);
                    let mut from = gradient.blocks;
                    for from in &mut from {
                        *from = from.add(d * gradient.strides[0] + h * gradient.strides[1]);
                    }
                    let (mut sums, mut inputs) = (sums, self.inputs.as_slice());
                    let mut first = 0;
                    while !inputs.is_empty() {
                        let tile = S::TILE_INPUTS.min(1 << inputs.len().ilog2());
                        match tile {
                            8 => run.accumulate::<S, B, 8, OWN>(sums, source, inputs, first, from),
                            4 => run.accumulate::<S, B, 4, OWN>(sums, source, inputs, first, from),
                            2 => run.accumulate::<S, B, 2, OWN>(sums, source, inputs, first, from),
                            _ => run.accumulate::<S, B, 1, OWN>(sums, source, inputs, first, from),
                        }
                        sums = sums.add(tile * LANES);
                        (first, inputs) = (first + tile, &inputs[tile..]);
                    }
                }
            }
        }
    }

    /// Reads a chunk of the source and of the gradients of `B` blocks, and adds it to their sums.
    ///
    /// # Safety
    /// As for the kernel; the chunk must be one of the grid's, and `patch` this thread's scratch.
    #[inline(always)]
    unsafe fn gather_and_add<S: Simd, const B: usize, const OWN: bool>(
        &self,
        (source_block, block): (usize, usize),
        at: &At,
        sums: *mut f32,
        patch: *mut f32,
    ) {
        let cut = &self.cut;
        let [_, height, width] = cut.positions;
        // SAFETY: passed on to the caller; scratch has room for a patch and a chunk of the gradient of each block.
        unsafe {
            match &self.source {
                Source::Image(image) => image.gather(&cut.shape, at.sample, at.first, patch),
                Source::Features(blocks) => {
                    blocks.gather::<S>(source_block, &cut.shape, at.sample, at.first, patch);
                }
            }
            let first = (at.first[0] * height + at.first[1]) * width;
            let mut blocks = [std::ptr::null(); B];
            let mut strides = [height * width * LANES, width * LANES];
            for (b, chunk) in blocks.iter_mut().enumerate() {
                if let Some(stored) = self.gradient.as_f32(block + b, at.sample) {
                    *chunk = stored.add(first * LANES);
                    continue;
                }
                let rows = at.count[1] * width;
                let to = patch.add(cut.shape.block() + b * cut.gradient());
                for plane in 0..at.count[0] {
                    let from = first + plane * height * width;
                    let to = to.add(plane * rows * LANES);
                    self.gradient.widen::<S>(block + b, at.sample, from..from + rows, to);
                }
                strides[0] = rows * LANES;
                *chunk = to.cast_const();
            }
            self.chunk::<S, B, OWN>(sums, patch, &Gradient { blocks, strides }, at.count);
        }
    }
}

/// A chunk of the gradients of some blocks.
struct Gradient<const B: usize> {
    blocks: [*const f32; B],
    /// From one plane to the next, and from one row.
    strides: [usize; 2],
}

/// A chunk.
struct At {
    sample: usize,
    /// The first position along depth and height.
    first: [usize; 2],
    /// How many there are.
    count: [usize; 2],
}

/// A run of positions, as the innermost loops see it.
struct Run<'a> {
    planes: usize,
    rows: usize,
    width: usize,
    source_strides: [usize; 2],
    column: usize,
    gradient_strides: [usize; 2],
    sums_stride: usize,
    own_lanes: &'a [[i32; LANES]],
}

impl Run<'_> {
    /// Adds the products of `I` inputs, number `first` and on, with `B` blocks of gradients over all positions of the run. An input is one
    /// number for all lanes, or where `OWN` one for each.
    ///
    /// # Safety
    /// As for the kernel; there must be as many inputs, and sums for them.
    #[inline(always)]
    unsafe fn accumulate<S: Simd, const B: usize, const I: usize, const OWN: bool>(
        &self,
        sums: *mut f32,
        source: *const f32,
        inputs: &[usize],
        first: usize,
        gradient: [*const f32; B],
    ) {
        // Tiles that the registers cannot hold are never asked for, and so that they are never made:
        if const { I > S::TILE_INPUTS } {
            return;
        }
        // SAFETY: passed on to the caller.
        unsafe {
            let mut inputs_of_tile = [source; I];
            for i in 0..I {
                inputs_of_tile[i] = source.add(inputs[i]);
            }
            let lanes: [_; I] = match OWN {
                true => std::array::from_fn(|i| &self.own_lanes[(first + i) % self.own_lanes.len()]),
                false => [&[0; LANES]; I],
            };
            let mut held = [[S::zero(); I]; B];
            for plane in 0..self.planes {
                for row in 0..self.rows {
                    let mut at = plane * self.source_strides[0] + row * self.source_strides[1];
                    let mut from = gradient;
                    for from in &mut from {
                        *from = from.add(plane * self.gradient_strides[0] + row * self.gradient_strides[1]);
                    }
                    for _ in 0..self.width {
                        let mut g = [S::zero(); B];
                        for (g, from) in g.iter_mut().zip(&mut from) {
                            *g = S::load(*from);
                            *from = from.add(LANES);
                        }
                        for i in 0..I {
                            let x = inputs_of_tile[i].add(at);
                            let x = if OWN { S::pick(S::load(x), lanes[i]) } else { S::splat(*x) };
                            for b in 0..B {
                                held[b][i] = S::fma(g[b], x, held[b][i]);
                            }
                        }
                        at += self.column;
                    }
                }
            }
            for (b, held) in held.iter().enumerate() {
                for (i, held) in held.iter().enumerate() {
                    let sum = sums.add(b * self.sums_stride + i * LANES);
                    S::store(sum, S::add(S::load(sum), *held));
                }
            }
        }
    }
}

impl Kernel for WeightGrad {
    fn tasks(&self) -> usize {
        self.cut.shared.len() * self.cut.blocks.reach * self.cut.parts
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let cut = &self.cut;
        let (part, task) = (task % cut.parts, task / cut.parts);
        let (at, shared) = (task % cut.blocks.reach, &cut.shared[task / cut.blocks.reach]);
        let (block, blocks) = (shared.start, shared.len());
        let pair = (cut.blocks.first[block] + at, block);
        let chunks = cut.batch * cut.chunks[0] * cut.chunks[1];
        // SAFETY: each thread gathers into scratch of its own; each task has sums of its own; chunks are those of the grid.
        unsafe {
            let sums =
                self.sums.0.add(part * cut.weights() + block * cut.out_block_weights + at * cut.pair_weights);
            for b in 0..blocks {
                for i in (0..cut.pair_weights).step_by(LANES) {
                    S::store(sums.add(b * cut.out_block_weights + i), S::zero());
                }
            }
            let scratch = self.gathered.0.add(thread * cut.per_thread());
            for chunk in chunks * part / cut.parts..chunks * (part + 1) / cut.parts {
                let (chunk_h, chunk) = (chunk % cut.chunks[1], chunk / cut.chunks[1]);
                let (chunk_d, sample) = (chunk % cut.chunks[0], chunk / cut.chunks[0]);
                let first = [chunk_d * cut.shape.chunk[0], chunk_h * cut.shape.chunk[1]];
                let count = [0, 1].map(|axis| cut.shape.chunk[axis].min(cut.positions[axis] - first[axis]));
                let at = At { sample, first, count };
                match (cut.blocks.lanes, blocks) {
                    (Lanes::Own(_), _) => self.gather_and_add::<S, 1, true>(pair, &at, sums, scratch),
                    (_, 1) => self.gather_and_add::<S, 1, false>(pair, &at, sums, scratch),
                    _ => self.gather_and_add::<S, 2, false>(pair, &at, sums, scratch),
                }
            }
        }
    }
}

/// Adds up partial sums, in order.
pub(crate) struct SumParts {
    pub(crate) partial: Ptr<f32>,
    pub(crate) result: Ptr<f32>,
    pub(crate) parts: usize,
    pub(crate) count: usize,
}

impl SumParts {
    /// What is to be done after [`WeightGrad`], if anything.
    pub(crate) fn of(cut: &GradCut, partial: Ptr<f32>, result: Ptr<f32>) -> Option<SumParts> {
        (cut.parts > 1).then(|| SumParts { partial, result, parts: cut.parts, count: cut.weights() })
    }
}

/// Floats of a task.
const SUM_CHUNK: usize = 4096;

impl Kernel for SumParts {
    fn tasks(&self) -> usize {
        self.count.div_ceil(SUM_CHUNK)
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, _thread: usize) {
        let end = self.count.min((task + 1) * SUM_CHUNK);
        for place in (task * SUM_CHUNK..end).step_by(LANES) {
            // SAFETY: counts are multiples of sixteen; tasks write disjoint stretches.
            unsafe {
                let mut sum = S::load(self.partial.0.add(place));
                for part in 1..self.parts {
                    sum = S::add(sum, S::load(self.partial.0.add(part * self.count + place)));
                }
                S::store(self.result.0.add(place), sum);
            }
        }
    }
}
