//! Attention of all voxels to each other, with rotary positions, and its gradient.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{RotaryAttention, RotaryAttentionGrad, RotaryPairs};
use plimsoll_plan::Unsupported;

use crate::device::WARP;
use crate::lower::{BLOCK, Context, Lower, Stretch, Work, product};

/// Tokens of a tile, `TOKENS` of the kernels.
const TOKENS: usize = 32;
/// The most channels of a head, for whose tiles there is shared memory, `MOST_HEAD_CHANNELS` of the kernels.
const MOST_HEAD_CHANNELS: usize = 96;
/// A sixth of it, `MOST_BANDS` of the kernels.
const MOST_BANDS: usize = 16;
/// Threads that share the channels of a sum, `LANES` of the kernels.
const LANES: usize = 16;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RotaryAnglesParameters {
    angles: u64,
    half_turns: [f64; MOST_BANDS],
    extent: [u32; 3],
    bands: u32,
    count: u32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RotaryParameters {
    queries: u64,
    keys: u64,
    values: u64,
    upstream: u64,
    angles: u64,
    logs: u64,
    deltas: u64,
    result: u64,
    of_values: u64,
    heads: u32,
    head_channels: u32,
    voxels: u32,
    bands: u32,
    extent: [u32; 3],
    scale: f32,
}

/// The common parts of all launches of a node.
struct Rotary {
    parameters: RotaryParameters,
    blocks: u32,
    /// Queries, keys and values, and the angles.
    reads: Vec<Stretch>,
}

impl Rotary {
    /// Takes scratch for the angles, and launches what fills it. Queries, keys and values are the operands from `first` on.
    fn new(
        cx: &Context<'_>,
        op: RotaryAttention,
        first: usize,
        work: &mut Work,
    ) -> Result<Rotary, Unsupported> {
        let [queries, keys, values] = [0, 1, 2].map(|operand| cx.input(first + operand));
        cx.elements(queries)?;
        let shape = &queries.info.shape;
        let (extent, voxels) = (shape.spatial(), shape.voxels());
        let head_channels = shape.channels() / op.heads;
        let pairs = RotaryPairs::new(head_channels).filter(|_| head_channels <= MOST_HEAD_CHANNELS);
        let Some(pairs) = pairs else {
            return Err(cx.unsupported(format!(
                "heads of {head_channels} channels, which must be a multiple of six and at most {MOST_HEAD_CHANNELS}"
            )));
        };
        let mut half_turns = [0.0; MOST_BANDS];
        for (band, half_turns) in half_turns.iter_mut().enumerate().take(pairs.bands) {
            *half_turns = pairs.angle(1, band) / std::f64::consts::PI;
        }
        let (extent, bands) = (cx.axes(extent)?, cx.count(&[pairs.bands])?);
        let count = cx.count(&[shape.spatial().iter().sum(), pairs.bands])?;
        let angles = work.take::<[f32; 2]>(count as usize)?;
        let of_angles =
            RotaryAnglesParameters { angles: angles.address, half_turns, extent, bands, count, unused: 0 };
        work.each("rotary_angles", count, &of_angles, &[], &[angles]);
        let parameters = RotaryParameters {
            queries: queries.address(),
            keys: keys.address(),
            values: values.address(),
            angles: angles.address,
            heads: cx.count(&[op.heads])?,
            head_channels: cx.count(&[head_channels])?,
            voxels: cx.count(&[voxels])?,
            bands,
            extent,
            scale: op.scale(head_channels) as f32,
            ..RotaryParameters::zeroed()
        };
        let blocks = cx.count(&[voxels.div_ceil(TOKENS), op.heads, shape.batch()])?;
        Ok(Rotary { parameters, blocks, reads: vec![queries.at, keys.at, values.at, angles] })
    }

    /// Launches a kernel with a block for each tile of tokens, head and sample.
    fn launch(
        &self,
        cx: &Context<'_>,
        work: &mut Work,
        kernel: &str,
        parameters: RotaryParameters,
        [reads, writes]: [&[Stretch]; 2],
    ) -> Result<(), Unsupported> {
        let kernel = cx.kernel(kernel, &[cx.output(0)])?;
        work.blocks(kernel, [self.blocks, 1], &parameters, &[&self.reads, reads].concat(), writes)?;
        // Of each tile: channels of products, of sums over four tokens, and pairs that a thread copies.
        let RotaryParameters { voxels, head_channels, .. } = self.parameters;
        let (tiles, channels) = ((voxels as usize).div_ceil(TOKENS), head_channels as usize);
        let turns = [1, channels / 2, channels.div_ceil(LANES), (channels / 2).div_ceil(BLOCK / TOKENS)];
        let warps = self.blocks as usize * (BLOCK / WARP as usize);
        work.loops(turns.map(|turns| product(&[warps, tiles, turns])))?;
        Ok(())
    }
}

impl Lower for RotaryAttention {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (o, logs) = (cx.output(0), cx.output(1));
        cx.elements(logs)?;
        let mut work = Work::new(cx);
        let all = Rotary::new(cx, *self, 0, &mut work)?;
        let parameters = RotaryParameters { logs: logs.address(), result: o.address(), ..all.parameters };
        all.launch(cx, &mut work, "rotary_attention", parameters, [&[], &[o.at, logs.at]])?;
        Ok(work)
    }
}

impl Lower for RotaryAttentionGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (upstream, logs) = (cx.input(0), cx.input(1));
        let [dq, dk, dv] = [0, 1, 2].map(|result| cx.output(result));
        let rows = cx.elements(logs)?;
        let mut work = Work::new(cx);
        let all = Rotary::new(cx, self.of, 2, &mut work)?;
        let deltas = work.take::<f32>(rows as usize)?;
        let of_queries = RotaryParameters {
            upstream: upstream.address(),
            logs: logs.address(),
            deltas: deltas.address,
            result: dq.address(),
            ..all.parameters
        };
        let reads = [upstream.at, logs.at, deltas];
        all.launch(cx, &mut work, "rotary_query_grad", of_queries, [&reads[..2], &[dq.at, deltas]])?;
        let of_keys = RotaryParameters { result: dk.address(), of_values: dv.address(), ..of_queries };
        all.launch(cx, &mut work, "rotary_key_grad", of_keys, [&reads, &[dk.at, dv.at]])?;
        Ok(work)
    }
}
