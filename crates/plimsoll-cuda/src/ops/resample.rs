//! Pools, interpolation, planes of zeroes, and channels that become voxels.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{
    AvgPool, AvgPoolGrad, MaxPool, MaxPoolGrad, PadFront, PadFrontGrad, Subpixel, SubpixelGrad, Upsample2,
    Upsample2Grad, UpsampleAligned,
};
use plimsoll_plan::Unsupported;

use crate::lower::{Context, Lower, Operand, Work, stretches};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ResampleParameters {
    from: u64,
    to: u64,
    fine: [u32; 3],
    coarse: [u32; 3],
    window: [u32; 3],
    channels: u32,
    count: u32,
    unused: u32,
}

/// A kernel between a grid and one that is coarser by a window; `to_fine` says which of them is the result's.
fn resample(cx: &Context<'_>, kernel: &str, window: [usize; 3], to_fine: bool) -> Result<Work, Unsupported> {
    let (from, to) = (cx.input(0), cx.output(0));
    cx.elements(from)?;
    let count = cx.elements(to)?;
    let extents = [from, to].map(|operand| operand.info.shape.spatial());
    let [coarse, fine] = if to_fine { extents } else { [extents[1], extents[0]] };
    cx.count(&window)?;
    let parameters = ResampleParameters {
        from: from.address(),
        to: to.address(),
        fine: cx.axes(fine)?,
        coarse: cx.axes(coarse)?,
        window: cx.axes(window)?,
        channels: cx.count(&[to.info.shape.channels()])?,
        count,
        unused: 0,
    };
    let mut work = Work::new(cx);
    work.each(cx.kernel(kernel, &[to])?, count, &parameters, &[from.at], &[to.at]);
    Ok(work)
}

impl Lower for AvgPool {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        resample(cx, "avg_pool", self.window, false)
    }
}

impl Lower for AvgPoolGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        resample(cx, "avg_pool_grad", self.window, true)
    }
}

/// By what a grid is finer along axes that are doubled.
fn factors(axes: [bool; 3]) -> [usize; 3] {
    axes.map(|is_doubled| 1 + usize::from(is_doubled))
}

impl Lower for Upsample2 {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        resample(cx, "upsample2", factors(self.axes), true)
    }
}

impl Lower for Upsample2Grad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        resample(cx, "upsample2_grad", factors(self.axes), false)
    }
}

impl Lower for Subpixel {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        resample(cx, "subpixel", factors(self.axes), true)
    }
}

impl Lower for SubpixelGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        resample(cx, "subpixel_grad", factors(self.axes), false)
    }
}

impl Lower for UpsampleAligned {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let [coarse, fine] = [cx.input(0), cx.output(0)].map(|operand| operand.info.shape.spatial());
        for axis in 0..3 {
            // The kernel counts in steps of a coarse axis for each fine one.
            cx.count(&[fine[axis], coarse[axis]])?;
        }
        resample(cx, "upsample_aligned", factors(self.axes), true)
    }
}

impl Lower for PadFront {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        resample(cx, "pad_front", self.planes(), true)
    }
}

impl Lower for PadFrontGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        resample(cx, "pad_front_grad", PadFront { axes: self.axes }.planes(), false)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MaxPoolParameters {
    x: u64,
    dz: u64,
    y: u64,
    input: [u32; 3],
    output: [u32; 3],
    kernel: [u32; 3],
    stride: [u32; 3],
    padding: [u32; 3],
    channels: u32,
    count: u32,
    unused: u32,
}

/// A max pool from `x` to the grid of `coarse`, or its gradient where there is one of the result.
fn max_pool(
    cx: &Context<'_>,
    of: &MaxPool,
    kernel: &str,
    [x, coarse]: [&Operand<'_>; 2],
) -> Result<Work, Unsupported> {
    let y = cx.output(0);
    cx.elements(x)?;
    cx.elements(coarse)?;
    let (input, output) = (x.info.shape.spatial(), coarse.info.shape.spatial());
    for axis in 0..3 {
        // Where a window ends, with all that lies beyond the edge.
        let end = output[axis].saturating_mul(of.window.stride[axis]).saturating_add(of.window.kernel[axis]);
        cx.count(&[end.saturating_add(input[axis])])?;
    }
    let count = cx.elements(y)?;
    let dz = if cx.inputs.len() > 1 { coarse.address() } else { 0 };
    let parameters = MaxPoolParameters {
        x: x.address(),
        dz,
        y: y.address(),
        input: cx.axes(input)?,
        output: cx.axes(output)?,
        kernel: cx.axes(of.window.kernel)?,
        stride: cx.axes(of.window.stride)?,
        padding: cx.axes(of.window.padding)?,
        channels: cx.count(&[y.info.shape.channels()])?,
        count,
        unused: 0,
    };
    let mut work = Work::new(cx);
    work.each(cx.kernel(kernel, &[y])?, count, &parameters, &stretches(&cx.inputs), &[y.at]);
    Ok(work)
}

impl Lower for MaxPool {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        max_pool(cx, self, "max_pool", [cx.input(0), cx.output(0)])
    }
}

impl Lower for MaxPoolGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        max_pool(cx, &self.of, "max_pool_grad", [cx.input(1), cx.input(0)])
    }
}
