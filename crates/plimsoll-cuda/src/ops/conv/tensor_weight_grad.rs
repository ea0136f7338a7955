//! The gradient of weights on tensor cores.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_graph::ops::ConvWeightGrad;
use plimsoll_plan::Unsupported;

use super::WARPS;
use super::source::{Chunks, Source, SourceParameters, parameters};
use super::tiling::{Axis, CHUNK, ROW, Tiling, VOXEL_BYTES, chunks};
use crate::Architecture;
use crate::architecture::Generation;
use crate::device::{Effort, WARP};
use crate::lower::{Context, PACK_BYTES, Work, product};
use crate::ops::sums::sum_few_parts;

/// Columns of a block, `COLUMNS` of the kernel.
const COLUMNS: usize = 32;

/// Taps that the sums of a warp are for, `TAPS_OF_WARP` of the kernel.
const TAPS_OF_WARP: usize = 7;

/// Bytes that a block has for its stages and tables: `SHARED_BYTES` of the kernel, on cards that copy in the background and on others.
const SHARED_OF_TWO_STAGES: usize = 49_152;
const SHARED_OF_ONE_STAGE: usize = 31_744;

/// Bytes of them for what is known of a tile, `FACTS_BYTES` of the kernel.
const FACTS_BYTES: usize = 64;

/// Bytes of an entry of the tables, one for each voxel of a box and for each place of a tile: `ENTRY_BYTES` of the kernel.
const ENTRY_BYTES: usize = 8;

/// Voxels of a box whose coordinates fit an entry.
const MOST_VOXELS: usize = 768;

/// Rows of places that a warp multiplies at once.
const ROWS_OF_STEP: usize = 2;

/// Rows of tiles, the best first.
const ROWS: [usize; 3] = [16, 8, 4];

/// Blocks of a multiprocessor that its registers suffice for, by `resources.csv`: of tf32 on Hopper one more.
const RESIDENT: usize = 3;
const RESIDENT_ON_TURING: usize = 2;

/// The blocks that a card runs at once: tiles are divided into no more parts, since a second wave of a few blocks takes as long as a whole one. Each block has
/// sums of its own, of 56 KiB at most.
fn blocks_of_a_wave(architecture: Architecture) -> usize {
    let most = if architecture.generation() == Generation::Turing { RESIDENT_ON_TURING } else { RESIDENT };
    architecture.resident_blocks(stages(architecture).1, most)
}

/// The stages of a block, and its bytes of shared memory.
fn stages(architecture: Architecture) -> (usize, usize) {
    if architecture.generation() >= Generation::Ampere {
        (2, SHARED_OF_TWO_STAGES)
    } else {
        (1, SHARED_OF_ONE_STAGE)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TensorWeightGradParameters {
    sources: SourceParameters,
    result: SourceParameters,
    parts: u64,
    width: u32,
    weights: u32,
    all_taps: u32,
    tap_warps: u32,
    column_blocks: u32,
    chunks: u32,
    tiles: u32,
    length: u32,
    dy_at: u32,
    stage_bytes: u32,
    table_at: u32,
    tiling: Tiling,
}

/// Bytes of a stage before the places.
fn box_bytes(tiling: &Tiling) -> usize {
    (tiling.voxels() * VOXEL_BYTES).next_multiple_of(128)
}

/// Bytes of a stage: a multiple of what its pieces are exchanged within.
fn stage_bytes(tiling: &Tiling, dtype: DType) -> usize {
    (box_bytes(tiling) + tiling.rows() * ROW * COLUMNS * dtype.bytes()).next_multiple_of(512)
}

/// Tiles of the most rows that fit, whose boxes are the smallest for the places that are in use.
fn choose(cx: &Context<'_>, axes: &[Axis; 3], dtype: DType) -> Option<Tiling> {
    let (stages, shared) = stages(cx.architecture);
    let bytes = |tiling: &Tiling| {
        let entries = tiling.voxels() + tiling.rows() * ROW;
        stages * stage_bytes(tiling, dtype) + entries * ENTRY_BYTES + FACTS_BYTES
    };
    let of_rows = |rows: usize| {
        let ways = Tiling::all(cx, axes, rows, MOST_VOXELS);
        let fit = ways.into_iter().filter(|tiling| bytes(tiling) <= shared);
        fit.min_by_key(|tiling| tiling.tiles().saturating_mul(stage_bytes(tiling, dtype)))
    };
    ROWS.into_iter().find_map(of_rows)
}

/// The gradient; nothing if no tiles fit. Loops of the kernel: over tiles, over pieces that are copied and that are changed afterwards, over the taps of two rows of places at
/// once, over pieces that are staged number by number, over these rows, and over the taps whose sums are stored.
///
/// # Errors
/// Returns the errors of the plain kernels.
pub(super) fn conv_weight_grad(
    op: &ConvWeightGrad,
    from: &[Source<'_>],
    of_result: &Source<'_>,
    multiplied: DType,
    cx: &Context<'_>,
) -> Result<Option<Work>, Unsupported> {
    let (dw, dy) = (cx.output(0), &of_result.map);
    let (sources, mut reads) = parameters(cx, from, multiplied)?;
    let (result, read) = parameters(cx, std::slice::from_ref(of_result), multiplied)?;
    reads.extend(read);
    let weights = cx.elements(dw)?;
    let (input, places) = (from[0].map.info.shape.spatial(), dy.info.shape.spatial());
    let mut axes = [0, 1, 2].map(|axis| Axis {
        places: places[axis],
        taps: op.window.kernel[axis],
        input: input[axis],
        first: 0,
        stride: op.window.stride[axis],
    });
    for (axis, padding) in axes.iter_mut().zip(op.window.padding) {
        axis.first = -i64::from(cx.count(&[padding])?);
    }
    let Some(tiling) = choose(cx, &axes, multiplied) else { return Ok(None) };
    let taps = tiling.taps();
    let tap_blocks = taps.div_ceil(WARPS * TAPS_OF_WARP);
    let tap_warps = taps.div_ceil(TAPS_OF_WARP).next_power_of_two().min(WARPS);
    let (chunks, column_blocks) =
        (chunks(&sources.channels, multiplied), dw.info.shape.dim(0).div_ceil(COLUMNS));
    let rows = cx.count(&[chunks, column_blocks, tap_blocks])?;
    let tiles = tiling.tiles().saturating_mul(dy.info.shape.batch());
    let length = tiles.div_ceil((blocks_of_a_wave(cx.architecture) / rows as usize).max(1));
    let blocks = tiles.div_ceil(length);
    let parts = blocks * (WARPS / tap_warps);
    let mut work = Work::new(cx);
    // One part is the whole.
    let sums = if parts > 1 { work.take::<f32>(parts.saturating_mul(weights as usize))? } else { dw.at };
    let parameters = TensorWeightGradParameters {
        sources,
        result,
        parts: sums.address,
        width: cx.count(&[dw.info.shape.dim(1)])?,
        weights,
        all_taps: cx.count(&[taps])?,
        tap_warps: cx.count(&[tap_warps])?,
        column_blocks: cx.count(&[column_blocks])?,
        chunks: cx.count(&[chunks])?,
        tiles: cx.count(&[tiles])?,
        length: cx.count(&[length])?,
        dy_at: cx.count(&[box_bytes(&tiling)])?,
        stage_bytes: cx.count(&[stage_bytes(&tiling, multiplied)])?,
        table_at: cx.count(&[stages(cx.architecture).0, stage_bytes(&tiling, multiplied)])?,
        tiling,
    };
    let grid = [cx.count(&[blocks])?, rows];
    work.blocks(format!("tensor_weight_grad_{multiplied}"), grid, &parameters, &reads, &[sums])?;
    let turns = |factor: usize| product(&[tiles, column_blocks, tap_blocks, factor]);
    // A warp stages as many pieces of places at once as it has lanes, for each chunk of the sources again.
    let pieces = tiling.rows() * ROW * COLUMNS * multiplied.bytes() / PACK_BYTES;
    let of_places = Chunks::new(std::slice::from_ref(of_result), multiplied);
    let of_boxes = Chunks::new(from, multiplied);
    let staged = |of: fn(&Chunks) -> usize| {
        let places = of(&of_places).min(1) * chunks * pieces.div_ceil(WARP as usize);
        turns(of(&of_boxes) * tiling.staging_turns() + places)
    };
    let steps = chunks * tiling.rows() / ROWS_OF_STEP;
    let loops = [
        turns(WARPS * chunks),
        staged(|chunks| chunks.copied),
        staged(|chunks| chunks.changed),
        product(&[tiles, column_blocks, steps, taps]),
        staged(|chunks| chunks.by_number),
        turns(steps * tap_warps),
        product(&[blocks, chunks, column_blocks, taps, WARPS / tap_warps]),
    ];
    let tensor_flops =
        product(&[2, tiles, column_blocks, tiling.rows() * ROW, CHUNK * COLUMNS, chunks, taps]);
    work.effort(Effort { loops, tensor_flops, ..Effort::default() })?;
    if parts > 1 {
        sum_few_parts(&mut work, sums, dw.at, [cx.count(&[parts])?, weights])?;
    }
    Ok(Some(work))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_wave_fills_registers_and_shared_memory() {
        let wave = |name: &str| blocks_of_a_wave(name.parse().unwrap());
        // By registers: three of 168 a thread, or two of 192.
        assert_eq!([wave("sm_70"), wave("sm_80"), wave("sm_90")], [3 * 80, 3 * 108, 3 * 132]);
        assert_eq!(wave("sm_75"), 2 * 40);
        // By shared memory: two of 48 KiB of 100 KiB.
        assert_eq!([wave("sm_86"), wave("sm_120")], [2 * 82, 2 * 170]);
    }
}
