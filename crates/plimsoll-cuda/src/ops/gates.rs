//! Features times factors for each channel, voxel or element, and vectors that are added to them.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{
    AddPositions, AddPositionsGrad, ChannelScale, ChannelScaleGrad, Prelu, PreluGrad, SwiGlu, SwiGluGrad,
    VoxelGate, VoxelGateGrad,
};
use plimsoll_plan::Unsupported;

use super::squeeze::{Planes, plane_sums};
use super::sums::{BLOCK_PARTS, sum_many_parts};
use crate::device::WARP;
use crate::lower::{BLOCK, Context, Lower, Operand, Work, address_or_null, parts, stretches};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ScaledParameters {
    x: u64,
    factors: u64,
    y: u64,
    period: u32,
    count: u32,
}

/// A function of features and of a number for each of `period` elements in turn.
fn scaled(
    cx: &Context<'_>,
    kernel: &str,
    [x, factors]: [&Operand<'_>; 2],
    period: u32,
) -> Result<Work, Unsupported> {
    let (y, count) = (cx.output(0), cx.elements(x)?);
    let parameters =
        ScaledParameters { x: x.address(), factors: factors.address(), y: y.address(), period, count };
    let mut work = Work::new(cx);
    work.packs(cx.kernel(kernel, &[x])?, x, count, &parameters, &[x.at, factors.at], &[y.at]);
    Ok(work)
}

impl Lower for ChannelScale {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let factors = cx.input(1);
        Ok(scaled(cx, "channel_scale", [cx.input(0), factors], cx.elements(factors)?)?.in_place(&[(0, 0)]))
    }
}

impl Lower for ChannelScaleGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let [dz, x, factors] = [0, 1, 2].map(|operand| cx.input(operand));
        let channels = cx.elements(factors)?;
        let shape = &x.info.shape;
        let mut sums = Work::new(cx);
        let voxels = shape.count() / channels as usize;
        let all = Planes { samples: 1, voxels, channels: channels as usize };
        plane_sums(cx, &mut sums, all, &[x, dz], 1.0, cx.output(1).at)?;
        // The gradient of the map may take the place of an operand, so it is made last.
        let map = scaled(cx, "channel_scale", [dz, factors], channels)?;
        sums.launches.extend(map.launches);
        Ok(sums.in_place(&[(0, 0), (0, 1)]))
    }
}

impl Lower for AddPositions {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let table = cx.input(1);
        Ok(scaled(cx, "add_positions", [cx.input(0), table], cx.elements(table)?)?.in_place(&[(0, 0)]))
    }
}

impl Lower for AddPositionsGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (dz, table) = (cx.input(0), cx.output(0));
        let (period, count) = (cx.elements(table)?, cx.elements(dz)?);
        let parameters = ScaledParameters { x: dz.address(), factors: 0, y: table.address(), period, count };
        let mut work = Work::new(cx);
        work.each(cx.kernel("add_positions_grad", &[dz])?, period, &parameters, &[dz.at], &[table.at]);
        work.each_turns(dz.info.shape.batch())?;
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PreluParameters {
    dz: u64,
    x: u64,
    slope: u64,
    y: u64,
    count: u32,
    length: u32,
}

impl Lower for Prelu {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, slope, y) = (cx.input(0), cx.input(1), cx.output(0));
        let count = cx.elements(x)?;
        let parameters = PreluParameters {
            x: x.address(),
            slope: slope.address(),
            y: y.address(),
            count,
            ..PreluParameters::zeroed()
        };
        let mut work = Work::new(cx);
        work.packs(cx.kernel("prelu", &[x])?, x, count, &parameters, &[x.at, slope.at], &[y.at]);
        Ok(work.in_place(&[(0, 0)]))
    }
}

impl Lower for PreluGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let [dz, x, slope] = [0, 1, 2].map(|operand| cx.input(operand));
        let (dx, dslope, count) = (cx.output(0), cx.output(1), cx.elements(x)?);
        let mut work = Work::new(cx);
        let (length, parts_count) = parts(count as usize, BLOCK_PARTS);
        let of_parts = work.take::<f32>(parts_count)?;
        let parameters = PreluParameters {
            dz: dz.address(),
            x: x.address(),
            slope: slope.address(),
            y: of_parts.address,
            count,
            length: cx.count(&[length])?,
        };
        let parts_count = cx.count(&[parts_count])?;
        let kernel = cx.kernel("prelu_slope_parts", &[x])?;
        work.blocks(kernel, [parts_count, 1], &parameters, &[dz.at, x.at], &[of_parts])?;
        work.each_turns(length.min(count as usize).div_ceil(BLOCK))?;
        sum_many_parts(&mut work, of_parts, dslope.at, [parts_count, 1])?;
        let parameters = PreluParameters { y: dx.address(), ..parameters };
        work.packs(cx.kernel("prelu_grad", &[x])?, x, count, &parameters, &stretches(&cx.inputs), &[dx.at]);
        Ok(work.in_place(&[(0, 0), (0, 1)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct VoxelGateParameters {
    x: u64,
    other: u64,
    y: u64,
    channels: u32,
    count: u32,
}

/// The parameters for `count` elements or voxels of both operands.
fn voxel_gate(cx: &Context<'_>, count: u32) -> Result<VoxelGateParameters, Unsupported> {
    let (x, other, y) = (cx.input(0), cx.input(1), cx.output(0));
    Ok(VoxelGateParameters {
        x: x.address(),
        other: other.address(),
        y: y.address(),
        channels: cx.count(&[x.info.shape.channels()])?,
        count,
    })
}

impl Lower for VoxelGate {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, y) = (cx.input(0), cx.output(0));
        let count = cx.elements(x)?;
        let mut work = Work::new(cx);
        let kernel = cx.kernel("voxel_gate", &[x])?;
        work.each(kernel, count, &voxel_gate(cx, count)?, &stretches(&cx.inputs), &[y.at]);
        Ok(work.in_place(&[(0, 0)]))
    }
}

impl Lower for VoxelGateGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (g, ds) = (cx.input(0), cx.output(0));
        cx.elements(g)?;
        let parameters = voxel_gate(cx, cx.elements(ds)?)?;
        let threads = cx.count(&[parameters.count as usize, WARP as usize])?;
        let mut work = Work::new(cx);
        let kernel = cx.kernel("voxel_gate_grad", &[g])?;
        work.each(kernel, threads, &parameters, &stretches(&cx.inputs), &[ds.at]);
        work.each_turns(g.info.shape.channels().div_ceil(WARP as usize))?;
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SwiGluParameters {
    dz: u64,
    gate: u64,
    values: u64,
    y: u64,
    of_values: u64,
    count: u32,
    unused: u32,
}

/// A function of the gate and the values, which are the operands from `first` on.
fn swiglu(cx: &Context<'_>, kernel: &str, first: usize) -> Result<Work, Unsupported> {
    let (gate, values) = (cx.input(first), cx.input(first + 1));
    let count = cx.elements(gate)?;
    let parameters = SwiGluParameters {
        dz: address_or_null(cx.inputs[..first].first()),
        gate: gate.address(),
        values: values.address(),
        y: cx.output(0).address(),
        of_values: address_or_null(cx.outputs.get(1)),
        count,
        unused: 0,
    };
    let mut work = Work::new(cx);
    let kernel = cx.kernel(kernel, &[gate])?;
    work.packs(kernel, gate, count, &parameters, &stretches(&cx.inputs), &stretches(&cx.outputs));
    Ok(work)
}

impl Lower for SwiGlu {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(swiglu(cx, "swiglu", 0)?.in_place(&[(0, 0), (0, 1)]))
    }
}

impl Lower for SwiGluGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Ok(swiglu(cx, "swiglu_grad", 1)?.in_place(&[(0, 1), (1, 2)]))
    }
}
