//! Vectors for each sample that are made of features, and features that are weighted by them.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{Gate, GateGrad, GlobalMean, GlobalMeanGrad};
use plimsoll_plan::Unsupported;

use super::sums::{MOST_PARTS, SumPartsParameters, THREADS};
use crate::lower::{BLOCK, Context, Lower, Operand, Stretch, Work, address_or_null, parts, stretches};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PlaneSumsParameters {
    x: u64,
    g: u64,
    parts: u64,
    voxels: u32,
    channels: u32,
    length: u32,
    parts_count: u32,
    count: u32,
    factor: f32,
}

/// The extents of volumes whose channels are summed.
#[derive(Clone, Copy)]
pub(super) struct Planes {
    pub(super) samples: usize,
    pub(super) voxels: usize,
    pub(super) channels: usize,
}

/// Sums over the voxels of each channel of each sample, of x or of the product of two volumes, times a factor.
pub(super) fn plane_sums(
    cx: &Context<'_>,
    work: &mut Work,
    Planes { samples, voxels, channels }: Planes,
    volumes: &[&Operand<'_>],
    factor: f32,
    to: Stretch,
) -> Result<(), Unsupported> {
    let (length, of_sample) = parts(voxels, (THREADS / channels).max(MOST_PARTS));
    let count = cx.count(&[samples, of_sample, channels])?;
    let scratch = work.take::<f32>(count as usize)?;
    let parameters = PlaneSumsParameters {
        x: address_or_null(volumes.first().copied()),
        g: address_or_null(volumes.get(1).copied()),
        parts: scratch.address,
        voxels: cx.count(&[voxels])?,
        channels: cx.count(&[channels])?,
        length: cx.count(&[length])?,
        parts_count: cx.count(&[of_sample])?,
        count,
        factor,
    };
    let reads: Vec<Stretch> = volumes.iter().map(|volume| volume.at).collect();
    work.each(cx.kernel("plane_sums", &volumes[..1])?, count, &parameters, &reads, &[scratch]);
    work.each_turns(length.min(voxels))?;
    let (channels, samples) = (parameters.channels, cx.count(&[samples])?);
    let sums = SumPartsParameters {
        parts: scratch.address,
        y: to.address,
        count: channels,
        parts_count: parameters.parts_count,
    };
    work.blocks("sum_many_parts", [channels, samples], &sums, &[scratch], &[to])?;
    work.each_turns((sums.parts_count as usize).div_ceil(BLOCK))?;
    Ok(())
}

/// The sums of each channel of each sample of the operands, which are the result.
fn sums_of_samples(cx: &Context<'_>, volumes: &[&Operand<'_>], factor: f32) -> Result<Work, Unsupported> {
    let shape = &cx.input(0).info.shape;
    cx.elements(cx.input(0))?;
    let planes = Planes { samples: shape.batch(), voxels: shape.voxels(), channels: shape.channels() };
    let mut work = Work::new(cx);
    plane_sums(cx, &mut work, planes, volumes, factor, cx.output(0).at)?;
    Ok(work)
}

impl Lower for GlobalMean {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let x = cx.input(0);
        sums_of_samples(cx, &[x], 1.0 / x.info.shape.voxels() as f32)
    }
}

impl Lower for GateGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        sums_of_samples(cx, &[cx.input(1), cx.input(0)], 1.0)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ByPlaneParameters {
    x: u64,
    planes: u64,
    y: u64,
    voxels: u32,
    channels: u32,
    count: u32,
    factor: f32,
}

/// A function of an element, where there is a volume, and a number of its channel and sample.
fn by_plane(
    cx: &Context<'_>,
    kernel: &str,
    [x, planes]: [Option<&Operand<'_>>; 2],
    factor: f32,
) -> Result<Work, Unsupported> {
    let y = cx.output(0);
    let (shape, count) = (&y.info.shape, cx.elements(y)?);
    let parameters = ByPlaneParameters {
        x: address_or_null(x),
        planes: address_or_null(planes),
        y: y.address(),
        voxels: cx.count(&[shape.voxels()])?,
        channels: cx.count(&[shape.channels()])?,
        count,
        factor,
    };
    let mut work = Work::new(cx);
    work.each(cx.kernel(kernel, &[y])?, count, &parameters, &stretches(&cx.inputs), &[y.at]);
    Ok(work)
}

impl Lower for Gate {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(by_plane(cx, "gate", [Some(cx.input(0)), Some(cx.input(1))], 1.0)?.in_place(&[(0, 0)]))
    }
}

impl Lower for GlobalMeanGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let voxels = cx.output(0).info.shape.voxels();
        by_plane(cx, "global_mean_grad", [None, Some(cx.input(0))], 1.0 / voxels as f32)
    }
}
