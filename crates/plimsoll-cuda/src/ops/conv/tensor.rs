//! Convolutions and transposed convolutions on tensor cores.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{Conv, ConvTranspose};
use plimsoll_plan::Unsupported;

use super::WARPS;
use super::choice::{Choice, choose};
use super::packing::{MultipliedBy, Weights, pack};
use super::source::{Chunks, Source, SourceParameters, parameters};
use super::tiling::{Axis, CHUNK, ROW, Tiling, chunks};
use crate::device::Effort;
use crate::lower::{Context, Operand, Stretch, Work, address_or_null, product, start_or_null};
use crate::ops::sums::sum_few_parts_as;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TensorConvParameters {
    sources: SourceParameters,
    weights: u64,
    bias: u64,
    y: u64,
    part_elements: u64,
    chunks: u32,
    outputs: u32,
    column_blocks: u32,
    length: u32,
    result: [u32; 3],
    spread: [u32; 3],
    offset: [u32; 3],
    tiling: Tiling,
}

/// The results that a launch computes: those at an offset and a step along each axis.
#[derive(Clone, Copy)]
struct Results {
    offset: [usize; 3],
    step: [usize; 3],
}

/// One launch: some results of a convolution, with the weights that these see.
pub(super) struct Part {
    pub(super) axes: [Axis; 3],
    pub(super) weights: Weights,
    results: Results,
    /// `true` if sources are rounded when they are staged, which warp groups do not.
    pub(super) rounds: bool,
    /// `true` if its sums may be computed in parts: it has all results.
    pub(super) divides: bool,
}

#[cfg(test)]
impl Part {
    /// A part with all results.
    pub(super) fn whole(axes: [Axis; 3], weights: Weights) -> Part {
        let results = Results { offset: [0; 3], step: [1; 3] };
        Part { axes, weights, results, rounds: false, divides: true }
    }
}

/// The operands of a convolution.
struct Operands<'a> {
    sources: &'a [Source<'a>],
    /// The type of the numbers that are multiplied.
    multiplied: DType,
    bias: Option<&'a Operand<'a>>,
    y: &'a Operand<'a>,
}

/// The effort of some blocks of a tile with all chunks. Loops: over chunks, over pieces that are copied and that are changed afterwards, over the taps of chunks, of which warp
/// groups take several at once, over pieces that are staged number by number, and over rows of taps.
pub(super) fn effort(choice: &Choice, blocks: usize, chunks: Chunks) -> Effort {
    let Choice { tile, tiling, .. } = choice;
    let turns = |factors: &[usize]| product(&[&[blocks], factors].concat());
    let staged = tiling.staging_turns();
    let loops = [
        turns(&[WARPS, chunks.count()]),
        turns(&[chunks.copied, staged]),
        turns(&[chunks.changed, staged]),
        turns(&[WARPS, chunks.count(), tile.steps(tiling)]),
        turns(&[chunks.by_number, staged]),
        turns(&[WARPS, chunks.count(), tiling.tap_rows()]),
        0,
    ];
    let flops = turns(&[2, tile.rows * ROW, tile.columns, CHUNK * chunks.count(), tiling.taps()]);
    match tile.by {
        MultipliedBy::Warps => Effort { loops, tensor_flops: flops, ..Effort::default() },
        MultipliedBy::WarpGroups => Effort { loops, group_flops: flops, ..Effort::default() },
    }
}

/// The parts that all launches of a convolution share.
struct Shared<'a> {
    of: &'a Operands<'a>,
    sources: SourceParameters,
    reads: Vec<Stretch>,
    /// Elements of the result.
    elements: u32,
}

/// Launches the parts of a convolution; nothing if there is one that tiles do not fit.
fn launch(cx: &Context<'_>, of: &Operands<'_>, parts: &[Part]) -> Result<Option<Work>, Unsupported> {
    let (sources, reads) = parameters(cx, of.sources, of.multiplied)?;
    let shared = Shared { of, sources, reads, elements: cx.elements(of.y)? };
    let mut work = Work::new(cx);
    for part in parts {
        let Some(choice) = choose(cx, part, of.multiplied, of.y.info.shape.batch()) else { return Ok(None) };
        launch_part(cx, &mut work, &shared, part, &choice)?;
    }
    Ok(Some(work))
}

/// Launches one of them, and adds up its sums if these are divided.
fn launch_part(
    cx: &Context<'_>,
    work: &mut Work,
    shared: &Shared<'_>,
    part: &Part,
    choice: &Choice,
) -> Result<(), Unsupported> {
    let Shared { of, sources, reads, elements } = shared;
    let Choice { tile, tiling, parts, length } = *choice;
    let (dtype, shape) = (of.multiplied, &of.y.info.shape);
    // Where no tap meets a place there is nothing but the bias.
    let empty = tiling.taps() == 0;
    let packed = match empty {
        true => None,
        false => Some(pack(work, cx, dtype, &part.weights, tile.columns, tile.by)?),
    };
    let sums = match parts {
        1 => of.y.at,
        _ => work.take::<f32>(cx.count(&[*elements as usize, parts])? as usize)?,
    };
    let columns = (part.weights.columns as usize).div_ceil(tile.columns);
    let parameters = TensorConvParameters {
        sources: *sources,
        weights: start_or_null(packed),
        bias: address_or_null(of.bias),
        y: sums.address,
        part_elements: u64::from(*elements),
        chunks: if empty { 0 } else { cx.count(&[chunks(&sources.channels, dtype)])? },
        outputs: part.weights.columns,
        column_blocks: cx.count(&[columns])?,
        length: cx.count(&[length])?,
        result: cx.axes(shape.spatial())?,
        spread: cx.axes(part.results.step)?,
        offset: cx.axes(part.results.offset)?,
        tiling,
    };
    let mut reads = reads.clone();
    reads.extend(packed);
    reads.extend(of.bias.map(|bias| bias.at));
    let kernel = format!("{}_{dtype}", tile.kernel);
    let kernel = if parts == 1 { cx.kernel(&kernel, &[of.y])? } else { format!("{kernel}_{}", DType::F32) };
    let tiles = tiling.tiles().saturating_mul(shape.batch());
    let grid = [cx.count(&[tiles])?, cx.count(&[columns, parts])?];
    work.blocks(kernel, grid, &parameters, &reads, &[sums])?;
    let chunks = if empty { Chunks::default() } else { Chunks::new(of.sources, dtype) };
    work.effort(effort(choice, tiles.saturating_mul(columns), chunks))?;
    if parts > 1 {
        sum_few_parts_as(work, sums, of.y, [cx.count(&[parts])?, *elements])?;
    }
    Ok(())
}

/// A convolution; nothing if no tiles fit.
///
/// # Errors
/// Returns the errors of the plain kernels.
pub(super) fn conv<'a>(
    op: &Conv,
    from: &[Source<'a>],
    rest: &[Operand<'a>],
    multiplied: DType,
    cx: &Context<'a>,
) -> Result<Option<Work>, Unsupported> {
    let (weights, y) = (&rest[0], cx.output(0));
    cx.elements(weights)?;
    let channels = parameters(cx, from, multiplied)?.0.channels;
    let (window, shape) = (&op.window, &weights.info.shape);
    let (input, output) = (from[0].map.info.shape.spatial(), y.info.shape.spatial());
    let mut axes = [0, 1, 2].map(|axis| Axis {
        places: output[axis],
        taps: window.kernel[axis],
        input: input[axis],
        first: 0,
        stride: window.stride[axis],
    });
    for (axis, padding) in axes.iter_mut().zip(window.padding) {
        axis.first = -i64::from(cx.count(&[padding])?);
    }
    let columns = cx.count(&[shape.dim(0)])?;
    let kernel = cx.axes(window.kernel)?;
    let weights = Weights {
        at: weights.at,
        channels,
        columns,
        kernel,
        first_tap: [0; 3],
        tap_step: [1; 3],
        taps: kernel,
        tap_stride: cx.count(&[shape.dim(0), shape.dim(1)])?,
        row_stride: columns,
        column_stride: 1,
        first: 0,
    };
    let results = Results { offset: [0; 3], step: [1; 3] };
    let rounds = from.iter().any(|source| source.map.info.dtype != multiplied);
    let operands = Operands { sources: from, multiplied, bias: rest.get(1), y };
    let divides = window.kernel.iter().all(|taps| *taps > 0);
    launch(cx, &operands, &[Part { axes, weights, results, rounds, divides }])
}

/// The results of one remainder by the stride along an axis, and the taps that meet them: results x of x = s·i + r see, under the
/// taps k for which s divides r + p − k, the places i + (r + p − k)/s. These are in succession where k falls, by s.
struct Remainder {
    axis: Axis,
    first_tap: usize,
}

/// The results whose place divided by the stride leaves `r`, along an axis of `result` places of the result and `source` of the
/// source.
fn remainder(
    result: usize,
    source: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    r: usize,
) -> Remainder {
    let least = (r + padding) % stride;
    let taps = kernel.saturating_sub(least).div_ceil(stride);
    let last = ((r + padding) / stride) as i64;
    Remainder {
        axis: Axis {
            places: (result - r).div_ceil(stride),
            taps,
            input: source,
            first: last - taps.saturating_sub(1) as i64,
            stride: 1,
        },
        first_tap: least + taps.saturating_sub(1) * stride,
    }
}

/// Launches that a transposed convolution is worth: one for each remainder by the stride.
const MOST_REMAINDERS: usize = 27;

/// A transposed convolution; nothing if no tiles fit.
///
/// # Errors
/// Returns the errors of the plain kernels.
pub(super) fn conv_transpose<'a>(
    op: &ConvTranspose,
    from: &[Source<'a>],
    rest: &[Operand<'a>],
    multiplied: DType,
    cx: &Context<'a>,
) -> Result<Option<Work>, Unsupported> {
    let (source, weights, x) = (&from[0].map, &rest[0], cx.output(0));
    cx.elements(weights)?;
    let channels = parameters(cx, from, multiplied)?.0.channels;
    let (window, shape) = (&op.window, &weights.info.shape);
    let (result, places) = (x.info.shape.spatial(), source.info.shape.spatial());
    for axis in 0..3 {
        cx.count(&[window.padding[axis].saturating_add(window.stride[axis])])?;
    }
    // Results that are fewer than the stride have no more remainders than results.
    let remainders = [0, 1, 2].map(|axis| window.stride[axis].min(result[axis]));
    if remainders.iter().fold(1usize, |all, some| all.saturating_mul(*some)) > MOST_REMAINDERS {
        return Ok(None);
    }
    let kernel = cx.axes(window.kernel)?;
    let mut steps = [0; 3];
    for (step, stride) in steps.iter_mut().zip(cx.axes(window.stride)?) {
        *step = -i32::try_from(stride).unwrap_or(i32::MAX);
    }
    let outputs = cx.count(&[shape.dim(0)])?;
    let rounds = source.info.dtype != multiplied;
    let mut parts = Vec::new();
    for number in 0..remainders.iter().product() {
        let [d, h, w] = remainders;
        let offset = [number / w / h % d, number / w % h, number % w];
        let along = [0, 1, 2].map(|axis| {
            let [kernel, stride, padding] = [window.kernel, window.stride, window.padding].map(|of| of[axis]);
            remainder(result[axis], places[axis], kernel, stride, padding, offset[axis])
        });
        let axes = [along[0].axis, along[1].axis, along[2].axis];
        let weights = Weights {
            at: weights.at,
            channels,
            columns: cx.count(&[op.channels])?,
            kernel,
            first_tap: cx.axes([along[0].first_tap, along[1].first_tap, along[2].first_tap])?,
            tap_step: steps,
            taps: cx.axes([axes[0].taps, axes[1].taps, axes[2].taps])?,
            tap_stride: cx.count(&[shape.dim(0), shape.dim(1)])?,
            row_stride: 1,
            column_stride: outputs,
            first: cx.count(&[op.first_channel, shape.dim(0)])?,
        };
        let divides = window.stride == [1; 3] && axes.iter().all(|axis| axis.taps > 0);
        parts.push(Part { axes, weights, results: Results { offset, step: window.stride }, rounds, divides });
    }
    launch(cx, &Operands { sources: from, multiplied, bias: rest.get(1), y: x }, &parts)
}
