//! The convolution kernel: sums over taps, a register tile of outputs × positions at a time.
//!
//! A task gathers the patch that a chunk of positions reads, then walks its tiles. Within a tile the whole sum over input
//! channels and taps stays in registers: each step loads the weights of sixteen outputs per block and multiplies them with
//! one input of each position.

use std::ops::Range;

use super::geometry::TapGrid;
use super::patch::{PatchShape, Source};
use crate::kernel::{Kernel, Ptr};
use crate::simd::{Bf16, Body, Element, LANES, Simd};
use crate::weight_blocks::{Lanes, WeightBlocks};

/// Where results go, and what they are added to.
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

/// How the work is cut, which depends on shapes alone.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) shape: PatchShape,
    /// Chunks of positions along depth and height.
    chunks: [usize; 2],
    /// Ranges that the output blocks are cut into; those of a range read the same blocks of the source.
    splits: Vec<Range<usize>>,
    /// Floats of a patch, of all blocks that are read at a time.
    pub(crate) patch: usize,
}

/// Patches should stay in the second-level cache beside the weights that stream through it.
const PATCH_BYTES: usize = 1024 << 10;
/// Tasks there should be at least, for threads to share the work evenly.
const TASKS: usize = 16;

impl Cut {
    /// For weights that lie so.
    pub(crate) fn new(grid: &TapGrid, batch: usize, blocks: &WeightBlocks) -> Cut {
        let mut chunk = [grid.positions[0].clamp(1, 4), grid.positions[1].clamp(1, 16)];
        let runs = blocks.runs();
        let tasks = |chunk: [usize; 2]| {
            runs.len() * batch * grid.positions[0].div_ceil(chunk[0]) * grid.positions[1].div_ceil(chunk[1])
        };
        loop {
            let shape = PatchShape::new(grid, chunk, blocks.column());
            let patch = shape.block() * blocks.reach;
            let too_large = patch * size_of::<f32>() > PATCH_BYTES;
            let too_few = tasks(chunk) < TASKS && chunk[0] * chunk[1] > 8;
            if !(too_large || too_few) || chunk == [1, 1] {
                let parts = TASKS.div_ceil(tasks(chunk));
                let splits = runs.into_iter().flat_map(|run| split(run, parts)).collect();
                let chunks = [0, 1].map(|axis| grid.positions[axis].div_ceil(chunk[axis]));
                return Cut { shape, chunks, splits, patch };
            }
            // Depth first: a plane more costs a whole plane of border.
            let axis = if chunk[0] > 1 && (chunk[0] * 4 > chunk[1] || chunk[1] == 1) { 0 } else { 1 };
            chunk[axis] = chunk[axis].div_ceil(2);
        }
    }
}

/// A run of blocks in so many parts, of two blocks at least.
fn split(run: Range<usize>, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = parts.min(run.len().div_ceil(2)).max(1);
    let at = move |part: usize| run.start + run.len() * part / parts;
    (0..parts).map(move |part| at(part)..at(part + 1))
}

/// A convolution or transposed convolution to features, bound to memory.
pub(crate) struct TapConv {
    cut: Cut,
    batch: usize,
    operands: Operands,
    blocks: WeightBlocks,
    own_lanes: Vec<[i32; LANES]>,
    taps: usize,
    phases: Vec<PhaseTaps>,
    out_stride: [usize; 3],
    extent: [usize; 3],
}

/// What a convolution is bound to.
pub(crate) struct Operands {
    pub(crate) source: Source,
    /// As [`WeightBlocks`] says.
    pub(crate) weights: Ptr<f32>,
    pub(crate) bias: Option<Ptr<f32>>,
    pub(crate) result: Destination,
    /// One patch per thread.
    pub(crate) patches: Ptr<f32>,
}

impl TapConv {
    /// Prepares a convolution of `kernel_taps` taps in all.
    pub(crate) fn new(
        grid: &TapGrid,
        cut: Cut,
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
                        source: cut.shape.tap_offset(tap.shift),
                        weight: tap.index * blocks.tap(),
                    })
                    .collect(),
            })
            .collect();
        TapConv {
            cut,
            batch,
            operands,
            own_lanes: blocks.own_lanes(),
            blocks,
            taps: kernel_taps,
            phases,
            out_stride: grid.out_stride,
            extent: grid.result,
        }
    }

    /// Walks the rows of one phase within a chunk, for some output blocks.
    ///
    /// # Safety
    /// As for the kernel; `patch` must be gathered.
    #[inline(always)]
    unsafe fn phase<S: Simd>(&self, at: &At, phase: &PhaseTaps, blocks: (usize, usize), patch: *const f32) {
        let shape = &self.cut.shape;
        let strides = shape.position_strides();
        let width = phase.count[2];
        // Images are a small part of the work and have narrower tiles, of one row.
        let (rows_at_once, widest) = match self.blocks.lanes {
            Lanes::Image(_) => (1, S::TILE_POSITIONS.min(IMAGE_POSITIONS)),
            _ => ((S::TILE_POSITIONS / width.max(1)).clamp(1, 3), S::TILE_POSITIONS),
        };
        let tiles = width.div_ceil(widest);
        let end = |axis: usize| phase.count[axis].min(at.first[axis] + shape.chunk[axis]);
        for d in at.first[0]..end(0) {
            let mut h = at.first[1];
            while h < end(1) {
                let rows = rows_at_once.min(end(1) - h);
                for tile in 0..tiles {
                    let (from, to) = (width * tile / tiles, width * (tile + 1) / tiles);
                    let place = (d - at.first[0]) * strides[0] + (h - at.first[1]) * strides[1];
                    let args = Tile {
                        // SAFETY: the position is one of the chunk's, so its place is in the patch.
                        source: unsafe { patch.add(place + from * shape.lanes) },
                        row_stride: strides[1],
                        phase,
                        position: [d, h, from],
                        sample: at.sample,
                        block: blocks.0,
                    };
                    // SAFETY: passed on to the caller.
                    unsafe {
                        match blocks.1 {
                            1 => self.tile_of_rows::<S, 1>(&args, rows, to - from),
                            _ => self.tile_of_rows::<S, 2>(&args, rows, to - from),
                        }
                    }
                }
                h += rows;
            }
        }
    }

    /// Chooses the compiled tile.
    #[inline(always)]
    unsafe fn tile_of_rows<S: Simd, const B: usize>(&self, args: &Tile<'_>, rows: usize, width: usize) {
        macro_rules! choose {
            ($lanes:expr, $(($r:literal, $w:literal)),*) => {
                match (rows, width) {
                    $(($r, $w) => {
                        // Known when compiling, so that tiles too large for the registers are never made.
                        if const { $r * $w <= S::TILE_POSITIONS } {
                            // SAFETY: passed on to the caller.
                            unsafe { S::call(SumTile::<B, $r, $w, { $lanes }> { conv: self, at: args }) }
                        }
                    })*
                    // The caller cuts rows into these widths only.
                    _ => unreachable!("no tile of {rows} × {width} positions"),
                }
            };
        }
        macro_rules! choose_of_features {
            ($lanes:expr) => {
                choose!(
                    $lanes,
                    (1, 1),
                    (1, 2),
                    (1, 3),
                    (1, 4),
                    (1, 5),
                    (1, 6),
                    (1, 7),
                    (1, 8),
                    (1, 9),
                    (1, 10),
                    (1, 11),
                    (1, 12),
                    (1, 13),
                    (1, 14),
                    (2, 1),
                    (2, 2),
                    (2, 3),
                    (2, 4),
                    (2, 5),
                    (2, 6),
                    (2, 7),
                    (3, 1),
                    (3, 2),
                    (3, 3),
                    (3, 4)
                )
            };
        }
        match self.blocks.lanes {
            Lanes::Blocks => choose_of_features!(BLOCKS),
            // Every block of results reads a block of its own, so there is one at a time.
            Lanes::Own(_) if B > 1 => unreachable!("{B} blocks at once in groups"),
            Lanes::Own(_) => choose_of_features!(OWN),
            Lanes::Image(_) => {
                choose!(IMAGE, (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7), (1, 8))
            }
        }
    }

    /// Sums and stores one tile: `B` blocks of outputs × `R` rows of `W` positions, of the inputs that `L` says:
    /// those of [`BLOCKS`], of their [`OWN`] groups, or of an [`IMAGE`].
    #[inline(always)]
    unsafe fn tile<S: Simd, const B: usize, const R: usize, const W: usize, const L: u8>(
        &self,
        args: &Tile<'_>,
    ) {
        let (inputs, column) = match L {
            BLOCKS => (LANES, LANES),
            OWN => (self.blocks.inputs(), LANES),
            _ => (self.blocks.inputs(), self.cut.shape.lanes),
        };
        let pair = self.taps * inputs * LANES;
        let out_block = self.blocks.reach * pair;
        // SAFETY: taps of positions of the chunk are in the patch; weights have a place for each pair of blocks, tap and lane.
        let total = unsafe {
            // Each block of inputs is summed by itself, so that rounding grows with the taps and not with the channels.
            let mut total = [[[S::zero(); W]; R]; B];
            for source_block in 0..self.blocks.reach {
                let mut sums = [[[S::zero(); W]; R]; B];
                let source = args.source.add(source_block * self.cut.shape.block());
                let weights = self.operands.weights.0.add(args.block * out_block + source_block * pair);
                for tap in &args.phase.taps {
                    let source = source.add(tap.source);
                    let weights = weights.add(tap.weight);
                    for input in 0..inputs {
                        let mut w = [S::zero(); B];
                        for (b, w) in w.iter_mut().enumerate() {
                            *w = S::load(weights.add(b * out_block + input * LANES));
                        }
                        for r in 0..R {
                            for p in 0..W {
                                let x = source.add(r * args.row_stride + p * column);
                                let x = match L {
                                    OWN => S::pick(S::load(x), &self.own_lanes[input]),
                                    _ => S::splat(*x.add(input)),
                                };
                                for b in 0..B {
                                    sums[b][r][p] = S::fma(w[b], x, sums[b][r][p]);
                                }
                            }
                        }
                    }
                }
                for (total, sum) in total
                    .as_flattened_mut()
                    .as_flattened_mut()
                    .iter_mut()
                    .zip(sums.as_flattened().as_flattened())
                {
                    *total = S::add(*total, *sum);
                }
            }
            total
        };
        // SAFETY: passed on to the caller.
        unsafe {
            match self.operands.result {
                Destination::F32(result, added_to) => {
                    self.store::<S, f32, B, R, W>(args, &total, result, added_to)
                }
                Destination::Bf16(result, added_to) => {
                    self.store::<S, Bf16, B, R, W>(args, &total, result, added_to);
                }
            }
        }
    }

    /// Stores the sums of a tile.
    #[inline(always)]
    unsafe fn store<S: Simd, T: Element, const B: usize, const R: usize, const W: usize>(
        &self,
        args: &Tile<'_>,
        sums: &[[[S::V; W]; R]; B],
        result: Ptr<T>,
        added_to: Option<Ptr<T>>,
    ) {
        let [d, h, w] = args.position;
        let [_, height, width] = self.extent;
        let voxels = self.extent.iter().product::<usize>();
        let start = args.phase.start;
        for (b, sums) in sums.iter().enumerate() {
            let plane = (args.sample * self.blocks.out_blocks() + args.block + b) * voxels;
            // SAFETY: the results are those of the position, inside the result's extent.
            unsafe {
                let bias = match self.operands.bias {
                    Some(bias) => S::load(bias.0.add((args.block + b) * LANES)),
                    None => S::zero(),
                };
                for (r, sums) in sums.iter().enumerate() {
                    let row = (d * self.out_stride[0] + start[0]) * height
                        + (h + r) * self.out_stride[1]
                        + start[1];
                    for (p, sum) in sums.iter().enumerate() {
                        let voxel = row * width + (w + p) * self.out_stride[2] + start[2];
                        let place = (plane + voxel) * LANES;
                        let mut value = S::add(*sum, bias);
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

/// A tile of all lanes of blocks.
const BLOCKS: u8 = 0;
/// A tile of each lane's own group.
const OWN: u8 = 1;
/// A tile of the channels of an image.
const IMAGE: u8 = 2;

/// The widest tile of an image.
const IMAGE_POSITIONS: usize = 8;

/// Where a task is.
struct At {
    sample: usize,
    /// The first position along depth and height.
    first: [usize; 2],
}

/// A tile to be summed and stored.
struct SumTile<'a, const B: usize, const R: usize, const W: usize, const L: u8> {
    conv: &'a TapConv,
    at: &'a Tile<'a>,
}

impl<const B: usize, const R: usize, const W: usize, const L: u8> Body for SumTile<'_, B, R, W, L> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on to the caller.
        unsafe { self.conv.tile::<S, B, R, W, L>(self.at) }
    }
}

/// Where a tile is.
struct Tile<'a> {
    /// The first position's place in the patch.
    source: *const f32,
    row_stride: usize,
    phase: &'a PhaseTaps,
    position: [usize; 3],
    sample: usize,
    /// The first output block.
    block: usize,
}

impl Kernel for TapConv {
    fn tasks(&self) -> usize {
        self.batch * self.cut.chunks[0] * self.cut.chunks[1] * self.cut.splits.len()
    }

    #[inline(always)]
    unsafe fn task<S: Simd>(&self, task: usize, thread: usize) {
        let Cut { shape, chunks, splits, patch: length } = &self.cut;
        let (split, task) = (&splits[task % splits.len()], task / splits.len());
        let (chunk_h, task) = (task % chunks[1], task / chunks[1]);
        let (chunk_d, sample) = (task % chunks[0], task / chunks[0]);
        let at = At { sample, first: [chunk_d * shape.chunk[0], chunk_h * shape.chunk[1]] };
        // SAFETY: each thread has a patch of its own; the chunk is one of the grid's.
        unsafe {
            let patch = self.operands.patches.0.add(thread * length);
            match &self.operands.source {
                Source::Image(image) => image.gather(shape, sample, at.first, patch),
                Source::Features(blocks) => {
                    let first = self.blocks.first[split.start];
                    for i in 0..self.blocks.reach {
                        blocks.gather::<S>(first + i, shape, sample, at.first, patch.add(i * shape.block()));
                    }
                }
            }
            let mut block = split.start;
            while block < split.end {
                let count = S::TILE_BLOCKS.min(2).min(split.end - block);
                for phase in &self.phases {
                    self.phase::<S>(&at, phase, (block, count), patch);
                }
                block += count;
            }
        }
    }
}
