//! The weight gradient kernel.
//!
//! The sums run over positions, so each of them is held in a register over a run of positions while the gradient's sixteen
//! outputs are multiplied with one input at a time. A pair of (output blocks, source block) that has many positions is cut
//! into parts with a partial sum each, added up afterwards in a fixed order: how many is a matter of shapes, not of threads.

use super::geometry::TapGrid;
use super::patch::{Blocks, PatchShape, Source};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{LANES, Simd};

/// Output blocks that share a gathered patch.
const GROUP: usize = 2;
/// Tasks there should be at least.
const TASKS: usize = 16;
/// Positions that a part should have at least, for its partial sum to be worth it.
const PART_POSITIONS: usize = 1024;

/// How the work is cut, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct GradCut {
    shape: PatchShape,
    /// Parts that the positions are cut into.
    parts: usize,
    /// Runs of rows, over all samples and planes.
    runs: usize,
    groups: usize,
    source_blocks: usize,
    out_blocks: usize,
    /// Floats of one output block's weights.
    out_block_weights: usize,
    /// Floats of the weights of one pair of blocks.
    pair_weights: usize,
    positions: [usize; 3],
}

impl GradCut {
    /// For sources of `source_blocks` blocks, with `lanes` floats per column of which `used` count.
    pub(crate) fn new(
        grid: &TapGrid,
        batch: usize,
        source_blocks: usize,
        (lanes, used): (usize, usize),
        out_blocks: usize,
        taps: usize,
    ) -> GradCut {
        let [depth, height, width] = grid.positions;
        // Rows whose inputs and gradients stay in the first-level cache while the taps go over them.
        let rows = (256 / width.max(1)).clamp(1, height);
        let shape = PatchShape::new(grid, [1, rows], lanes);
        let runs = batch * depth * height.div_ceil(rows);
        let groups = out_blocks.div_ceil(GROUP);
        let positions = batch * depth * height * width;
        let wanted = TASKS.div_ceil(groups * source_blocks);
        let parts = wanted.min(positions / PART_POSITIONS).min(runs).max(1);
        let pair_weights = taps * used * LANES;
        GradCut {
            shape,
            parts,
            runs,
            groups,
            source_blocks,
            out_blocks,
            out_block_weights: source_blocks * pair_weights,
            pair_weights,
            positions: grid.positions,
        }
    }

    /// Floats of one copy of the gradient.
    pub(crate) fn weights(&self) -> usize {
        self.out_blocks * self.out_block_weights
    }

    /// Floats of the partial sums.
    pub(crate) fn partial(&self) -> usize {
        if self.parts > 1 { self.parts * self.weights() } else { 0 }
    }

    /// Floats that each thread gathers into: a patch, and the rows of the gradient.
    pub(crate) fn per_thread(&self) -> usize {
        self.shape.block() + GROUP * self.shape.chunk[1] * self.positions[2] * LANES
    }
}

/// The weight gradient of a convolution to features, bound to memory.
pub(crate) struct WeightGrad {
    cut: GradCut,
    source: Source,
    /// Of the convolution's result.
    gradient: Blocks,
    /// Offsets in the patch.
    taps: Vec<usize>,
    /// Channels of an image; sixteen for features.
    lanes: usize,
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
        let lanes = match &source {
            Source::Features(_) => LANES,
            Source::Image(image) => image.channels,
        };
        let sums = if cut.parts > 1 { partial } else { result };
        let taps = taps.into_iter().map(|(_, offset)| offset).collect();
        WeightGrad { cut, source, gradient, taps, lanes, sums, gathered }
    }

    /// Adds one run of rows to the sums of one pair of blocks.
    ///
    /// # Safety
    /// As for the kernel; `patch` and the gradient's rows must be gathered.
    #[inline(always)]
    unsafe fn run<S: Simd, const B: usize>(
        &self,
        sums: *mut f32,
        patch: *const f32,
        gradient: [*const f32; B],
        rows: usize,
    ) {
        let run = Run {
            row_stride: self.cut.shape.position_strides()[1],
            column: self.cut.shape.lanes,
            rows,
            width: self.cut.positions[2],
            sums_stride: self.cut.out_block_weights,
        };
        // SAFETY: passed on to the caller: taps of the run's positions are in the patch, sums have sixteen lanes for each of
        // them and each input.
        unsafe {
            for (tap, offset) in self.taps.iter().enumerate() {
                let (source, sums) = (patch.add(*offset), sums.add(tap * self.lanes * LANES));
                let mut lane = 0;
                while lane + S::TILE_INPUTS <= self.lanes {
                    let (source, sums) = (source.add(lane), sums.add(lane * LANES));
                    if const { S::TILE_INPUTS == 8 } {
                        run.accumulate::<S, B, 8>(sums, source, gradient);
                    } else if const { S::TILE_INPUTS == 4 } {
                        run.accumulate::<S, B, 4>(sums, source, gradient);
                    } else {
                        run.accumulate::<S, B, 2>(sums, source, gradient);
                    }
                    lane += S::TILE_INPUTS;
                }
                while lane < self.lanes {
                    run.accumulate::<S, B, 1>(sums.add(lane * LANES), source.add(lane), gradient);
                    lane += 1;
                }
            }
        }
    }
}

/// A run of rows, as the innermost loops see it.
struct Run {
    row_stride: usize,
    column: usize,
    rows: usize,
    width: usize,
    sums_stride: usize,
}

impl Run {
    /// Adds the products of `I` inputs with `B` blocks of gradients over all positions of the run.
    #[inline(always)]
    unsafe fn accumulate<S: Simd, const B: usize, const I: usize>(
        &self,
        sums: *mut f32,
        source: *const f32,
        gradient: [*const f32; B],
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut held = [[S::zero(); I]; B];
            for row in 0..self.rows {
                let mut source = source.add(row * self.row_stride);
                let mut from = gradient;
                for from in &mut from {
                    *from = from.add(row * self.width * LANES);
                }
                for _ in 0..self.width {
                    let mut g = [S::zero(); B];
                    for (g, from) in g.iter_mut().zip(&mut from) {
                        *g = S::load(*from);
                        *from = from.add(LANES);
                    }
                    for i in 0..I {
                        let x = S::splat(*source.add(i));
                        for b in 0..B {
                            held[b][i] = S::fma(g[b], x, held[b][i]);
                        }
                    }
                    source = source.add(self.column);
                }
            }
            for (b, held) in held.iter().enumerate() {
                for (i, held) in held.iter().enumerate() {
                    // Each run is summed by itself, so that rounding grows with its length and not with the volume.
                    let sum = sums.add(b * self.sums_stride + i * LANES);
                    S::store(sum, S::add(S::load(sum), *held));
                }
            }
        }
    }
}

impl Kernel for WeightGrad {
    fn tasks(&self) -> usize {
        self.cut.groups * self.cut.source_blocks * self.cut.parts
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let cut = &self.cut;
        let (part, task) = (task % cut.parts, task / cut.parts);
        let (source_block, group) = (task % cut.source_blocks, task / cut.source_blocks);
        let block = group * GROUP;
        let blocks = GROUP.min(cut.out_blocks - block);
        let [depth, height, width] = cut.positions;
        let runs_per_plane = height.div_ceil(cut.shape.chunk[1]);
        // SAFETY: each thread gathers into scratch of its own; each task has sums of its own; runs are those of the grid.
        unsafe {
            let sums = self
                .sums
                .0
                .add(part * cut.weights() + block * cut.out_block_weights + source_block * cut.pair_weights);
            for b in 0..blocks {
                for i in (0..cut.pair_weights).step_by(LANES) {
                    S::store(sums.add(b * cut.out_block_weights + i), S::zero());
                }
            }
            let patch = self.gathered.0.add(thread * cut.per_thread());
            let rows_of_gradient = patch.add(cut.shape.block());
            for run in cut.runs * part / cut.parts..cut.runs * (part + 1) / cut.parts {
                let (in_plane, plane) = (run % runs_per_plane, run / runs_per_plane);
                let (d, sample) = (plane % depth, plane / depth);
                let h = in_plane * cut.shape.chunk[1];
                let rows = cut.shape.chunk[1].min(height - h);
                match &self.source {
                    Source::Image(image) => image.gather(&cut.shape, sample, [d, h], patch),
                    Source::Features(blocks) => {
                        blocks.gather::<S>(source_block, &cut.shape, sample, [d, h], patch);
                    }
                }
                let stride = cut.shape.chunk[1] * width * LANES;
                for b in 0..blocks {
                    let first = (d * height + h) * width;
                    let voxels = first..first + rows * width;
                    self.gradient.widen::<S>(block + b, sample, voxels, rows_of_gradient.add(b * stride));
                }
                match blocks {
                    1 => self.run::<S, 1>(sums, patch, [rows_of_gradient], rows),
                    _ => {
                        let both = [rows_of_gradient.cast_const(), rows_of_gradient.add(stride)];
                        self.run::<S, 2>(sums, patch, both, rows);
                    }
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
