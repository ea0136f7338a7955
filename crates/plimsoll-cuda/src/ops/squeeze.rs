//! Vectors for each sample that are made of features, and features that are weighted by them.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{Gate, GateGrad, GlobalMean, GlobalMeanGrad};
use plimsoll_plan::Unsupported;

use super::sums::{MOST_PARTS, SumPartsParameters};
use crate::lower::{BLOCK, Context, Lower, Operand, Work, address_or_null, parts, stretches};

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

/// The sum over the voxels of each channel of each sample, of x or of its product with another volume, times a factor.
fn plane_sums(cx: &Context<'_>, [x, g]: [Option<&Operand<'_>>; 2], factor: f32) -> Result<Work, Unsupported> {
    let (volume, y) = (cx.input(0), cx.output(0));
    cx.elements(volume)?;
    let shape = &volume.info.shape;
    let (batch, channels, voxels) = (shape.batch(), shape.channels(), shape.voxels());
    let (length, of_sample) = parts(voxels, MOST_PARTS);
    let mut work = Work::new(cx);
    let count = cx.count(&[batch, of_sample, channels])?;
    let scratch = work.take::<f32>(count as usize)?;
    let parameters = PlaneSumsParameters {
        x: address_or_null(x),
        g: address_or_null(g),
        parts: scratch.address,
        voxels: cx.count(&[voxels])?,
        channels: cx.count(&[channels])?,
        length: cx.count(&[length])?,
        parts_count: cx.count(&[of_sample])?,
        count,
        factor,
    };
    work.each(cx.kernel("plane_sums", &[volume])?, count, &parameters, &stretches(&cx.inputs), &[scratch]);
    work.each_turns(length.min(voxels));
    let (channels, batch) = (parameters.channels, cx.count(&[batch])?);
    let sums = SumPartsParameters {
        parts: scratch.address,
        y: y.address(),
        count: channels,
        parts_count: parameters.parts_count,
    };
    work.blocks("sum_many_parts", [channels, batch], &sums, &[scratch], &[y.at])?;
    work.each_turns((sums.parts_count as usize).div_ceil(BLOCK));
    Ok(work)
}

impl Lower for GlobalMean {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let x = cx.input(0);
        plane_sums(cx, [Some(x), None], 1.0 / x.info.shape.voxels() as f32)
    }
}

impl Lower for GateGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        plane_sums(cx, [Some(cx.input(1)), Some(cx.input(0))], 1.0)
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
