//! The inputs of losses that depend on shapes: probabilities and labels as volumes of foreground classes, and their
//! means over blocks.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{Counted, MeanPool, MeanPoolGrad, OneHot, Probabilities, ProbabilitiesGrad};
use plimsoll_plan::Unsupported;

use super::loss::ignored;
use crate::lower::{Context, Lower, Operand, Work, address_or_null, stretches};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ForegroundParameters {
    x: u64,
    g: u64,
    labels: u64,
    y: u64,
    classes: u32,
    ignore: u32,
    count: u32,
    unused: u32,
}

/// Launches a kernel with a thread for each of `count` elements; `classes` includes the background.
fn foreground(
    cx: &Context<'_>,
    kernel: &str,
    [x, g, labels]: [Option<&Operand<'_>>; 3],
    classes: usize,
    ignore: Option<u8>,
    count: u32,
) -> Result<Work, Unsupported> {
    cx.inputs.iter().chain(&cx.outputs).try_for_each(|operand| cx.elements(operand).map(|_| ()))?;
    let y = cx.output(0);
    let parameters = ForegroundParameters {
        x: address_or_null(x),
        g: address_or_null(g),
        labels: address_or_null(labels),
        y: y.address(),
        classes: cx.count(&[classes])?,
        ignore: ignored(ignore),
        count,
        unused: 0,
    };
    let mut work = Work::new(cx);
    work.each(kernel, count, &parameters, &stretches(&cx.inputs), &[y.at]);
    Ok(work)
}

/// The same with a thread for each voxel of the first operand, whose channels are the classes.
fn logit_work(cx: &Context<'_>, kernel: &str, g: Option<&Operand<'_>>) -> Result<Work, Unsupported> {
    let shape = &cx.input(0).info.shape;
    let voxels = cx.count(&[shape.batch(), shape.voxels()])?;
    foreground(cx, kernel, [Some(cx.input(0)), g, None], shape.channels(), None, voxels)
}

impl Lower for Probabilities {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        logit_work(cx, "probabilities", None)
    }
}

impl Lower for ProbabilitiesGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        // A thread reads the logit of a class before it writes its gradient, and not afterwards.
        Ok(logit_work(cx, "probabilities_grad", Some(cx.input(1)))?.in_place(&[(0, 0)]))
    }
}

impl Lower for OneHot {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (classes, count) = (self.foreground + 1, cx.elements(cx.output(0))?);
        foreground(cx, "one_hot", [None, None, Some(cx.input(0))], classes, self.ignore, count)
    }
}

impl Lower for Counted {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, count) = (cx.input(0), cx.elements(cx.output(0))?);
        let classes = x.info.shape.channels() + 1;
        let work =
            foreground(cx, "counted", [Some(x), None, Some(cx.input(1))], classes, self.ignore, count)?;
        Ok(work.in_place(&[(0, 0)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MeanPoolParameters {
    from: u64,
    to: u64,
    fine: [u32; 3],
    coarse: [u32; 3],
    channels: u32,
    count: u32,
}

/// Between the fine side and the coarse one.
fn mean_pool(cx: &Context<'_>, kernel: &str, [fine, coarse]: [&Operand<'_>; 2]) -> Result<Work, Unsupported> {
    let (from, to) = (cx.input(0), cx.output(0));
    cx.elements(from)?;
    let count = cx.elements(to)?;
    let parameters = MeanPoolParameters {
        from: from.address(),
        to: to.address(),
        fine: cx.axes(fine.info.shape.spatial())?,
        coarse: cx.axes(coarse.info.shape.spatial())?,
        channels: cx.count(&[to.info.shape.channels()])?,
        count,
    };
    let mut work = Work::new(cx);
    work.each(kernel, count, &parameters, &[from.at], &[to.at]);
    Ok(work)
}

impl Lower for MeanPool {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        mean_pool(cx, "mean_pool", [cx.input(0), cx.output(0)])
    }
}

impl Lower for MeanPoolGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        mean_pool(cx, "mean_pool_grad", [cx.output(0), cx.input(0)])
    }
}
