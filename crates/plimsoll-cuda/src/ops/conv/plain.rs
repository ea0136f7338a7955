//! Convolutions without tensor cores: a thread for a few elements of the result, on every card and of every kind of convolution.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_graph::{Shape, TensorInfo, Window};
use plimsoll_plan::Unsupported;

use super::{MOST_SOURCES, sources};
use crate::lower::{Context, Operand, PACK_BYTES, RUN, Stretch, Work, address_or_null, product, stretches};
use crate::ops::sums::sum_few_parts;

/// Results that a thread computes at once, `ABREAST` of the kernels.
const ABREAST: usize = 4;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Geometry {
    batch: u32,
    input: [u32; 3],
    output: [u32; 3],
    kernel: [u32; 3],
    stride: [u32; 3],
    padding: [u32; 3],
    dilation: [u32; 3],
    outputs: u32,
    width: u32,
    groups: u32,
}

/// The geometry of a convolution between the side that the kernel slides over and the strided one, with weights of a shape.
fn geometry(
    cx: &Context<'_>,
    window: &Window,
    groups: usize,
    [input, output, weights]: [&Shape; 3],
) -> Result<Geometry, Unsupported> {
    // A kernel never reaches further than that.
    for axis in 0..3 {
        cx.count(&[input.spatial()[axis] + 2 * window.padding[axis] + window.stride[axis]])?;
    }
    Ok(Geometry {
        batch: cx.count(&[output.batch()])?,
        input: cx.axes(input.spatial())?,
        output: cx.axes(output.spatial())?,
        kernel: cx.axes(window.kernel)?,
        stride: cx.axes(window.stride)?,
        padding: cx.axes(window.padding)?,
        dilation: cx.axes(window.dilation)?,
        outputs: cx.count(&[weights.dim(0)])?,
        width: cx.count(&[weights.dim(1)])?,
        groups: cx.count(&[groups])?,
    })
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ConvParameters {
    sources: [u64; MOST_SOURCES],
    channels: [u32; MOST_SOURCES],
    weights: u64,
    bias: u64,
    y: u64,
    source_count: u32,
    count: u32,
    abreast: u32,
    first: u32,
    geometry: Geometry,
}

/// The loops of the last launch, a convolution: over taps, over packs of channels, and over channels that are no packs.
fn channel_turns<'a>(
    work: &Work,
    taps: usize,
    width: usize,
    sources: impl IntoIterator<Item = &'a TensorInfo>,
) -> Result<[u64; 3], Unsupported> {
    let (mut packs, mut channels) = (0, 0);
    for source in sources {
        let pack = PACK_BYTES / source.dtype.bytes();
        let own = width.min(source.shape.channels());
        match own.is_multiple_of(pack) && source.shape.channels().is_multiple_of(pack) {
            true => packs += own / pack,
            false => channels += own,
        }
    }
    let warps = work.warps()? as usize;
    Ok([1, packs, channels].map(|turns| product(&[warps, taps, turns])))
}

pub(super) fn conv(op: &Conv, cx: &Context<'_>) -> Result<Work, Unsupported> {
    let (from, rest) = cx.inputs.split_at(op.sources(cx.inputs.len()));
    let (weights, bias, y) = (&rest[0], rest.get(1), cx.output(0));
    cx.elements(weights)?;
    let (addresses, channels) = sources(cx, from)?;
    let shapes = [&from[0].info.shape, &y.info.shape, &weights.info.shape];
    cx.elements(y)?;
    let [depth, height, width] = y.info.shape.spatial();
    let abreast = width.div_ceil(ABREAST);
    let count = cx.count(&[y.info.shape.batch(), depth, height, abreast, y.info.shape.channels()])?;
    let parameters = ConvParameters {
        sources: addresses,
        channels,
        weights: weights.address(),
        bias: address_or_null(bias),
        y: y.address(),
        source_count: cx.count(&[from.len()])?,
        count,
        abreast: cx.count(&[abreast])?,
        first: 0,
        geometry: geometry(cx, &op.window, op.groups, shapes)?,
    };
    let mut work = Work::new(cx);
    let kernel = cx.kernel("conv", &[&from[0], y])?;
    work.each(kernel, count, &parameters, &stretches(&cx.inputs), &[y.at]);
    work.divisible(offset_of!(ConvParameters, first))?;
    let taps: usize = op.window.kernel.iter().product();
    work.loops(channel_turns(
        &work,
        taps,
        weights.info.shape.dim(1),
        from.iter().map(|source| source.info),
    )?)?;
    Ok(work)
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ConvTransposeParameters {
    source: u64,
    weights: u64,
    bias: u64,
    x: u64,
    first_channel: u32,
    channels: u32,
    count: u32,
    abreast: u32,
    geometry: Geometry,
    first: u32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TurnWeightsParameters {
    weights: u64,
    turned: u64,
    inputs: u32,
    outputs: u32,
    count: u32,
    unused: u32,
}

/// Turns weights in scratch, so that threads of neighbouring channels of the input side read neighbouring weights.
fn turned(work: &mut Work, cx: &Context<'_>, weights: &Operand<'_>) -> Result<Stretch, Unsupported> {
    let count = cx.elements(weights)?;
    let turned = work.take::<f32>(count as usize)?;
    let shape = &weights.info.shape;
    let parameters = TurnWeightsParameters {
        weights: weights.address(),
        turned: turned.address,
        inputs: cx.count(&[shape.dim(1)])?,
        outputs: cx.count(&[shape.dim(0)])?,
        count,
        unused: 0,
    };
    work.each("turn_weights", count, &parameters, &[weights.at], &[turned]);
    Ok(turned)
}

pub(super) fn conv_transpose(op: &ConvTranspose, cx: &Context<'_>) -> Result<Work, Unsupported> {
    let (source, weights, bias, x) = (cx.input(0), cx.input(1), cx.inputs.get(2), cx.output(0));
    cx.elements(source)?;
    cx.elements(x)?;
    let [depth, height, width] = x.info.shape.spatial();
    let stride = op.window.stride[2];
    let abreast = width.div_ceil(stride).div_ceil(ABREAST);
    let count = cx.count(&[x.info.shape.batch(), depth, height, abreast, stride, op.channels])?;
    let shapes = [&x.info.shape, &source.info.shape, &weights.info.shape];
    let mut work = Work::new(cx);
    let turned = turned(&mut work, cx, weights)?;
    let parameters = ConvTransposeParameters {
        source: source.address(),
        weights: turned.address,
        bias: address_or_null(bias),
        x: x.address(),
        first_channel: cx.count(&[op.first_channel])?,
        channels: cx.count(&[op.channels])?,
        count,
        abreast: cx.count(&[abreast])?,
        geometry: geometry(cx, &op.window, op.groups, shapes)?,
        first: 0,
        unused: 0,
    };
    let mut reads = vec![source.at, turned];
    reads.extend(bias.map(|bias| bias.at));
    let kernel = cx.kernel("conv_transpose", &[source, x])?;
    work.each(kernel, count, &parameters, &reads, &[x.at]);
    work.divisible(offset_of!(ConvTransposeParameters, first))?;
    let taps: usize = op.window.kernel.iter().product();
    let turns = channel_turns(&work, taps, weights.info.shape.dim(0) / op.groups, [source.info])?;
    // A result meets the taps of its own remainder by the stride.
    let strides: usize = op.window.stride.iter().product();
    work.loops(turns.map(|turns| turns / (strides as u64).max(1)))?;
    Ok(work)
}

/// The useful number of threads for the gradient of weights: the rows of places are divided into parts until this number is
/// reached.
const THREADS: usize = 1 << 18;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ConvWeightGradParameters {
    sources: [u64; MOST_SOURCES],
    channels: [u32; MOST_SOURCES],
    dy: u64,
    parts: u64,
    source_count: u32,
    weights: u32,
    rows: u32,
    length: u32,
    count: u32,
    abreast: u32,
    geometry: Geometry,
    first: u32,
    unused: u32,
}

pub(super) fn conv_weight_grad(op: &ConvWeightGrad, cx: &Context<'_>) -> Result<Work, Unsupported> {
    let (from, last) = cx.inputs.split_at(cx.inputs.len() - 1);
    let (dy, dw) = (&last[0], cx.output(0));
    cx.elements(dy)?;
    let (addresses, channels) = sources(cx, from)?;
    let weights = cx.elements(dw)?;
    let [depth, height, width] = dy.info.shape.spatial();
    let rows = dy.info.shape.batch() * depth * height;
    let shape = &dw.info.shape;
    let abreast = shape.dim(0).div_ceil(ABREAST);
    let each = op.window.kernel.iter().product::<usize>() * shape.dim(1) * abreast;
    // A part has as many places as a run of other sums, at least.
    let length = rows.div_ceil((THREADS / each).max(1)).max(RUN.div_ceil(width));
    let parts = rows.div_ceil(length);
    let mut work = Work::new(cx);
    // One part is the whole.
    let sums = if parts > 1 { work.take::<f32>(parts.saturating_mul(weights as usize))? } else { dw.at };
    let shapes = [&from[0].info.shape, &dy.info.shape, &dw.info.shape];
    let count = cx.count(&[parts, each])?;
    let parameters = ConvWeightGradParameters {
        sources: addresses,
        channels,
        dy: dy.address(),
        parts: sums.address,
        source_count: cx.count(&[from.len()])?,
        weights,
        rows: cx.count(&[rows])?,
        length: cx.count(&[length])?,
        count,
        abreast: cx.count(&[abreast])?,
        geometry: geometry(cx, &op.window, op.groups, shapes)?,
        first: 0,
        unused: 0,
    };
    let kernel = cx.kernel("conv_weight_grad", &[&from[0], dy])?;
    work.each(kernel, count, &parameters, &stretches(&cx.inputs), &[sums]);
    work.divisible(offset_of!(ConvWeightGradParameters, first))?;
    work.each_turns(length * width)?;
    if parts > 1 {
        sum_few_parts(&mut work, sums, dw.at, [cx.count(&[parts])?, weights])?;
    }
    Ok(work)
}
