//! Sums over many elements: parts of them into scratch, then all parts in order.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{ChannelSum, GradNorm};
use plimsoll_plan::Unsupported;

use crate::lower::{Context, Lower, Stretch, Work, address_or_null, parts};

/// Parts of the voxels of a volume, so that a card has threads enough and their sums are soon added up.
pub(super) const MOST_PARTS: usize = 256;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct SumPartsParameters {
    pub(super) parts: u64,
    pub(super) y: u64,
    pub(super) count: u32,
    pub(super) parts_count: u32,
}

/// Adds up `[parts][count]`, a thread for each sum.
pub(super) fn sum_few_parts(work: &mut Work, from: Stretch, to: Stretch, [parts_count, count]: [u32; 2]) {
    let parameters = SumPartsParameters { parts: from.address, y: to.address, count, parts_count };
    work.each("sum_few_parts", count, &parameters, &[from], &[to]);
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ChannelSumParameters {
    x: u64,
    parts: u64,
    voxels: u32,
    channels: u32,
    length: u32,
    count: u32,
}

/// The sum over voxels of each channel: of `[voxels][channels]`, as the kernel takes it.
pub(super) fn channel_sum(
    cx: &Context<'_>,
    work: &mut Work,
    kernel: impl Into<String>,
    x: Stretch,
    [voxels, channels]: [usize; 2],
    y: Stretch,
) -> Result<(), Unsupported> {
    let (length, parts) = parts(voxels, MOST_PARTS);
    let scratch = work.take::<f32>(parts.saturating_mul(channels))?;
    let count = cx.count(&[parts, channels])?;
    let parameters = ChannelSumParameters {
        x: x.address,
        parts: scratch.address,
        voxels: cx.count(&[voxels])?,
        channels: cx.count(&[channels])?,
        length: cx.count(&[length])?,
        count,
    };
    work.each(kernel, count, &parameters, &[x], &[scratch]);
    sum_few_parts(work, scratch, y, [cx.count(&[parts])?, parameters.channels]);
    Ok(())
}

impl Lower for ChannelSum {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, shape) = (cx.input(0), &cx.input(0).info.shape);
        cx.elements(x)?;
        let mut work = Work::new(cx);
        let size = [shape.batch() * shape.voxels(), shape.channels()];
        channel_sum(cx, &mut work, cx.kernel("channel_sum", &[x])?, x.at, size, cx.output(0).at)?;
        Ok(work)
    }
}

/// Elements whose squares a block sums, `SQUARES` of the kernels.
const SQUARES: usize = 4096;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SquaresParameters {
    x: u64,
    parts: u64,
    count: u32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GradNormParameters {
    parts: u64,
    loss: u64,
    y: u64,
    count: u32,
    unused: u32,
}

impl Lower for GradNorm {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (loss, gradients) = cx.inputs.split_at(usize::from(self.loss));
        let y = cx.output(0);
        let mut work = Work::new(cx);
        let blocks = |count: usize| count.div_ceil(SQUARES);
        let all = gradients.iter().map(|gradient| blocks(gradient.info.shape.count())).sum();
        let scratch = work.take::<f64>(all)?;
        let mut next = scratch.address;
        for gradient in gradients {
            let count = cx.elements(gradient)?;
            let parts = blocks(gradient.info.shape.count());
            let own = Stretch::new(next, parts * size_of::<f64>());
            next += (parts * size_of::<f64>()) as u64;
            let parameters =
                SquaresParameters { x: gradient.address(), parts: own.address, count, unused: 0 };
            work.blocks("squares", [cx.count(&[parts])?, 1], &parameters, &[gradient.at], &[own])?;
        }
        let parameters = GradNormParameters {
            parts: scratch.address,
            loss: address_or_null(loss.first()),
            y: y.address(),
            count: cx.count(&[all])?,
            unused: 0,
        };
        let mut reads = vec![scratch];
        reads.extend(loss.first().map(|loss| loss.at));
        work.blocks("grad_norm", [1, 1], &parameters, &reads, &[y.at])?;
        Ok(work)
    }
}
