//! Sums over many elements: parts of them into scratch, then all parts in order.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{ChannelSum, GradNorm};
use plimsoll_plan::Unsupported;

use crate::device::WARP;
use crate::lower::{
    BLOCK, Context, Lower, Operand, PACK_BYTES, Stretch, Work, address_or_null, parts, product,
};

/// Parts of the voxels of a volume, so that a card has threads enough and their sums are soon added up.
pub(super) const MOST_PARTS: usize = 256;

/// Parts that one thread adds up as soon as a block would.
const FEW_PARTS: usize = 64;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct SumPartsParameters {
    pub(super) parts: u64,
    pub(super) y: u64,
    pub(super) count: u32,
    pub(super) parts_count: u32,
}

/// Adds up `[parts][count]`, a thread for each sum.
pub(super) fn sum_few_parts(
    work: &mut Work,
    from: Stretch,
    to: Stretch,
    [parts_count, count]: [u32; 2],
) -> Result<(), Unsupported> {
    let parameters = SumPartsParameters { parts: from.address, y: to.address, count, parts_count };
    work.each("sum_few_parts", count, &parameters, &[from], &[to]);
    work.each_turns(parts_count as usize)
}

/// Adds up `[parts][elements]` of f32, a thread for each sum, to what a volume stores.
pub(super) fn sum_few_parts_as(
    work: &mut Work,
    from: Stretch,
    to: &Operand<'_>,
    [parts_count, count]: [u32; 2],
) -> Result<(), Unsupported> {
    let dtype = to.info.dtype;
    if dtype == DType::F32 {
        return sum_few_parts(work, from, to.at, [parts_count, count]);
    }
    let parameters = SumPartsParameters { parts: from.address, y: to.address(), count, parts_count };
    work.each(format!("sum_few_parts_{dtype}"), count, &parameters, &[from], &[to.at]);
    work.each_turns(parts_count as usize)
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

/// Adds up `[parts][count]`, a block for each sum.
pub(super) fn sum_many_parts(
    work: &mut Work,
    from: Stretch,
    to: Stretch,
    [parts_count, count]: [u32; 2],
) -> Result<(), Unsupported> {
    let parameters = SumPartsParameters { parts: from.address, y: to.address, count, parts_count };
    work.blocks("sum_many_parts", [count, 1], &parameters, &[from], &[to])?;
    work.each_turns((parts_count as usize).div_ceil(BLOCK))
}

/// Notes the loops of a kernel of `columns.cuh`, whose blocks each sum `length` voxels: over voxels, and over the sums of threads.
pub(super) fn column_turns(
    work: &mut Work,
    [blocks, length, channels]: [usize; 3],
    dtype: DType,
) -> Result<(), Unsupported> {
    let groups = BLOCK / (channels / (PACK_BYTES / dtype.bytes())).max(1);
    let voxels = product(&[blocks, BLOCK / WARP as usize, length.div_ceil(groups.max(1))]);
    work.loops([voxels, product(&[blocks, channels.div_ceil(WARP as usize), groups])])
}

/// Threads that keep a card's memory busy where each sums one channel: parts are made until as many have work.
pub(super) const THREADS: usize = 1 << 15;

/// Parts of a volume's voxels that blocks sum: enough for all multiprocessors of a large card, several for each.
pub(super) const BLOCK_PARTS: usize = 1024;

/// Returns `true` if blocks can sum the channels of voxels in packs: these fill the channels, and are no more than threads.
pub(super) fn sums_packs(dtype: DType, channels: usize) -> bool {
    let pack = PACK_BYTES / dtype.bytes();
    channels.is_multiple_of(pack) && channels / pack <= BLOCK
}

/// The voxels whose channels are summed, `[voxels][channels]`.
pub(super) struct Summed {
    pub(super) at: Stretch,
    pub(super) dtype: DType,
    pub(super) voxels: usize,
    pub(super) channels: usize,
}

/// The sum over voxels of each channel.
pub(super) fn channel_sum(
    cx: &Context<'_>,
    work: &mut Work,
    Summed { at: x, dtype, voxels, channels }: Summed,
    y: Stretch,
) -> Result<(), Unsupported> {
    let by_packs = sums_packs(dtype, channels);
    let most = if by_packs { BLOCK_PARTS } else { (THREADS / channels).max(MOST_PARTS) };
    let (length, parts) = parts(voxels, most);
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
    let blocks = cx.count(&[parts])?;
    match by_packs {
        true => {
            let kernel = format!("channel_sum_packs_{dtype}");
            work.blocks(kernel, [blocks, 1], &parameters, &[x], &[scratch])?;
            column_turns(work, [parts, length.min(voxels), channels], dtype)?;
        }
        false => {
            work.each(format!("channel_sum_{dtype}"), count, &parameters, &[x], &[scratch]);
            work.each_turns(length.min(voxels))?;
        }
    }
    match parts > FEW_PARTS {
        true => sum_many_parts(work, scratch, y, [blocks, parameters.channels])?,
        false => sum_few_parts(work, scratch, y, [blocks, parameters.channels])?,
    }
    Ok(())
}

impl Lower for ChannelSum {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let mut work = Work::new(cx);
        let (x, shape) = (cx.input(0), &cx.input(0).info.shape);
        cx.elements(x)?;
        let (voxels, channels) = (shape.batch() * shape.voxels(), shape.channels());
        let summed = Summed { at: x.at, dtype: x.info.dtype, voxels, channels };
        channel_sum(cx, &mut work, summed, cx.output(0).at)?;
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
            work.each_turns((count as usize).min(SQUARES).div_ceil(BLOCK))?;
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
