//! Tokens, which are the channels of a voxel: their normalisation, blocks of voxels that become one token, and tokens that become blocks.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{
    DepthToSpace, DepthToSpaceGrad, SpaceToDepth, SpaceToDepthGrad, TokenNorm, TokenNormGrad,
};
use plimsoll_plan::Unsupported;

use super::sums::{MOST_PARTS, sum_few_parts};
use crate::lower::{Context, Lower, Operand, Work, address_or_null, parts, stretches};

/// Threads that share a token, a warp.
const OF_TOKEN: usize = 32;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TokenNormParameters {
    g: u64,
    x: u64,
    scale: u64,
    shift: u64,
    z: u64,
    numbers: u64,
    tokens: u32,
    channels: u32,
    epsilon: f32,
    unused: u32,
}

impl TokenNormParameters {
    /// Those of a volume, all other addresses null.
    fn new(cx: &Context<'_>, x: &Operand<'_>, epsilon: f32) -> Result<TokenNormParameters, Unsupported> {
        cx.elements(x)?;
        let shape = &x.info.shape;
        Ok(TokenNormParameters {
            x: x.address(),
            tokens: cx.count(&[shape.batch(), shape.voxels()])?,
            channels: cx.count(&[shape.channels()])?,
            epsilon,
            ..TokenNormParameters::zeroed()
        })
    }

    /// Channels of a token that each thread of its warp has.
    fn turns(&self) -> usize {
        (self.channels as usize).div_ceil(OF_TOKEN)
    }

    /// Threads, with a warp for each token.
    fn threads(&self, cx: &Context<'_>) -> Result<u32, Unsupported> {
        cx.count(&[self.tokens as usize, OF_TOKEN])
    }
}

impl Lower for TokenNorm {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (x, z) = (cx.input(0), cx.output(0));
        let parameters = TokenNormParameters {
            scale: address_or_null(cx.inputs.get(1)),
            shift: address_or_null(cx.inputs.get(2)),
            z: z.address(),
            ..TokenNormParameters::new(cx, x, self.epsilon)?
        };
        let mut work = Work::new(cx);
        let (kernel, threads) = (cx.kernel("token_norm", &[x])?, parameters.threads(cx)?);
        work.each(kernel, threads, &parameters, &stretches(&cx.inputs), &[z.at]);
        work.each_turns(parameters.turns())?;
        Ok(work.in_place(&[(0, 0)]))
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TokenNormPartsParameters {
    g: u64,
    x: u64,
    numbers: u64,
    scales: u64,
    shifts: u64,
    tokens: u32,
    channels: u32,
    length: u32,
    count: u32,
}

impl Lower for TokenNormGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (g, x, dx) = (cx.input(0), cx.input(1), cx.output(0));
        let of_volume = TokenNormParameters::new(cx, x, self.epsilon)?;
        let (tokens, channels) = (of_volume.tokens, of_volume.channels);
        let mut work = Work::new(cx);
        let numbers = work.take::<f32>(cx.count(&[tokens as usize, 4])? as usize)?;
        let parameters = TokenNormParameters {
            g: g.address(),
            scale: address_or_null(cx.inputs.get(2)),
            z: dx.address(),
            numbers: numbers.address,
            ..of_volume
        };
        let (kernel, threads) = (cx.kernel("token_norm_numbers", &[x])?, parameters.threads(cx)?);
        work.each(kernel, threads, &parameters, &stretches(&cx.inputs), &[numbers]);
        work.each_turns(parameters.turns())?;
        if let [_, dscale, dshift] = &cx.outputs[..] {
            let (length, parts) = parts(tokens as usize, MOST_PARTS);
            let count = cx.count(&[parts, channels as usize])?;
            let scales = work.take::<f32>(count as usize)?;
            let shifts = work.take::<f32>(count as usize)?;
            let of_parts = TokenNormPartsParameters {
                g: g.address(),
                x: x.address(),
                numbers: numbers.address,
                scales: scales.address,
                shifts: shifts.address,
                tokens,
                channels,
                length: cx.count(&[length])?,
                count,
            };
            let kernel = cx.kernel("token_norm_parts", &[x])?;
            work.each(kernel, count, &of_parts, &[g.at, x.at, numbers], &[scales, shifts]);
            work.each_turns(length.min(tokens as usize))?;
            let parts = cx.count(&[parts])?;
            sum_few_parts(&mut work, scales, dscale.at, [parts, channels])?;
            sum_few_parts(&mut work, shifts, dshift.at, [parts, channels])?;
        }
        let mut reads = stretches(&cx.inputs);
        reads.push(numbers);
        work.each(cx.kernel("token_norm_grad", &[x])?, cx.elements(x)?, &parameters, &reads, &[dx.at]);
        Ok(work.in_place(&[(0, 0), (0, 1)]))
    }
}

/// Voxels of a block that are taken, `MOST_OFFSETS` of the kernels: as many as the op allows.
const MOST_OFFSETS: usize = 64;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SpaceToDepthParameters {
    from: u64,
    to: u64,
    fine: [u32; 3],
    coarse: [u32; 3],
    block: [u32; 3],
    channels: u32,
    offsets_count: u32,
    count: u32,
    offsets: [[u32; 3]; MOST_OFFSETS],
}

/// Between the fine side and the coarse one, whose kernel has a thread for each element of the result.
fn space_to_depth(
    cx: &Context<'_>,
    of: &SpaceToDepth,
    kernel: &str,
    [fine, coarse]: [&Operand<'_>; 2],
) -> Result<Work, Unsupported> {
    let (from, to) = (cx.input(0), cx.output(0));
    cx.elements(from)?;
    let count = cx.elements(to)?;
    let mut offsets = [[0; 3]; MOST_OFFSETS];
    if of.offsets.len() > MOST_OFFSETS {
        return Err(cx.unsupported(format!("{} offsets, of at most {MOST_OFFSETS}", of.offsets.len())));
    }
    for (place, offset) in offsets.iter_mut().zip(&of.offsets) {
        *place = cx.axes(*offset)?;
    }
    let parameters = SpaceToDepthParameters {
        from: from.address(),
        to: to.address(),
        fine: cx.axes(fine.info.shape.spatial())?,
        coarse: cx.axes(coarse.info.shape.spatial())?,
        block: cx.axes(of.block)?,
        channels: cx.count(&[fine.info.shape.channels()])?,
        offsets_count: cx.count(&[of.offsets.len()])?,
        count,
        offsets,
    };
    let mut work = Work::new(cx);
    work.each(cx.kernel(kernel, &[to])?, count, &parameters, &[from.at], &[to.at]);
    Ok(work)
}

impl Lower for SpaceToDepth {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        space_to_depth(cx, self, "space_to_depth", [cx.input(0), cx.output(0)])
    }
}

impl Lower for SpaceToDepthGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        space_to_depth(cx, &self.of, "space_to_depth_grad", [cx.output(0), cx.input(0)])
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DepthToSpaceParameters {
    from: u64,
    shift: u64,
    to: u64,
    fine: [u32; 3],
    coarse: [u32; 3],
    block: [u32; 3],
    channels: u32,
    count: u32,
    unused: u32,
}

/// Between the coarse side and the fine one, whose kernel has a thread for each element of the result.
fn depth_to_space(
    cx: &Context<'_>,
    block: [usize; 3],
    kernel: &str,
    [fine, coarse]: [&Operand<'_>; 2],
) -> Result<Work, Unsupported> {
    let (from, to) = (cx.input(0), cx.output(0));
    cx.elements(from)?;
    let count = cx.elements(to)?;
    let parameters = DepthToSpaceParameters {
        from: from.address(),
        shift: address_or_null(cx.inputs.get(1)),
        to: to.address(),
        fine: cx.axes(fine.info.shape.spatial())?,
        coarse: cx.axes(coarse.info.shape.spatial())?,
        block: cx.axes(block)?,
        channels: cx.count(&[fine.info.shape.channels()])?,
        count,
        unused: 0,
    };
    let mut work = Work::new(cx);
    work.each(cx.kernel(kernel, &[to])?, count, &parameters, &stretches(&cx.inputs), &[to.at]);
    Ok(work)
}

impl Lower for DepthToSpace {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        depth_to_space(cx, self.block, "depth_to_space", [cx.output(0), cx.input(0)])
    }
}

impl Lower for DepthToSpaceGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        depth_to_space(cx, self.block, "depth_to_space_grad", [cx.input(0), cx.output(0)])
    }
}
