//! Attention within windows, and its gradient.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{WindowAttention, WindowAttentionGrad};
use plimsoll_plan::Unsupported;

use super::elementwise::fill;
use super::sums::{Summed, channel_sum, sum_few_parts};
use crate::device::WARP;
use crate::lower::{Context, Lower, Stretch, Work, address_or_null, product, start_or_null, stretches};

/// Channels of a result that a thread makes, `CHANNEL_CHUNK` of the kernels.
const CHUNK: usize = 16;

/// Keys whose products a thread computes at once, `KEY_TILE` of the kernels.
const KEY_TILE: u32 = 8;

/// The useful number of threads for the gradient of the table: the windows are divided into parts until this number is
/// reached, or until a part has few windows.
const THREADS: usize = 1 << 18;
const LEAST_WINDOWS: usize = 4;

/// A token of a window.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WindowToken {
    voxel: u32,
    position: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WindowTokensParameters {
    tokens: u64,
    extent: [u32; 3],
    window: [u32; 3],
    shift: [u32; 3],
    table_window: [u32; 3],
    counts: [u32; 3],
    count: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AttentionParameters {
    qkv: u64,
    table: u64,
    bias: u64,
    noise: u64,
    tokens: u64,
    upstream: u64,
    logs: u64,
    deltas: u64,
    result: u64,
    padding: u64,
    heads: u32,
    head_channels: u32,
    windows: u32,
    window_tokens: u32,
    voxels: u32,
    paddings: u32,
    chunks: u32,
    count: u32,
    centre: u32,
    layer: u32,
    threshold: u32,
    kept_scale: f32,
    scale: f32,
    unused: u32,
}

/// The common parts of all launches of a node.
struct Attention {
    /// With `chunks` of 1 and no `count`.
    parameters: AttentionParameters,
    batch: usize,
    /// The number of chunks of a head's channels.
    chunks: usize,
    /// The operands of the forward op, and the tokens of windows.
    reads: Vec<Stretch>,
}

impl Attention {
    /// Takes scratch for the tokens of windows, and launches what fills it. The operands of the forward op begin at `first`.
    fn new(
        cx: &Context<'_>,
        op: &WindowAttention,
        first: usize,
        work: &mut Work,
    ) -> Result<Attention, Unsupported> {
        let qkv = cx.input(first);
        cx.elements(qkv)?;
        let shape = &qkv.info.shape;
        let (channels, extent, voxels) = (shape.channels() / 3, shape.spatial(), shape.voxels());
        let windows = op.windows(extent);
        let padded = cx.count(&[windows.count(), windows.tokens()])?;
        let tokens = work.take::<WindowToken>(padded as usize)?;
        let of_tokens = WindowTokensParameters {
            tokens: tokens.address,
            extent: cx.axes(extent)?,
            window: cx.axes(op.window)?,
            shift: cx.axes(op.shift)?,
            table_window: cx.axes(op.table_window)?,
            counts: cx.axes([0, 1, 2].map(|axis| extent[axis].div_ceil(op.window[axis])))?,
            count: padded,
        };
        work.each("window_tokens", padded, &of_tokens, &[], &[tokens]);
        let operands = &cx.inputs[first..];
        let noise = operands.last().filter(|_| op.dropout > 0.0);
        let mut reads = stretches(operands);
        reads.push(tokens);
        let head_channels = channels / op.heads;
        let parameters = AttentionParameters {
            qkv: qkv.address(),
            table: cx.input(first + 1).address(),
            bias: address_or_null(operands.get(2).filter(|_| op.padded_bias)),
            noise: address_or_null(noise),
            tokens: tokens.address,
            heads: cx.count(&[op.heads])?,
            head_channels: cx.count(&[head_channels])?,
            windows: cx.count(&[windows.count()])?,
            window_tokens: cx.count(&[windows.tokens()])?,
            voxels: cx.count(&[voxels])?,
            paddings: padded - cx.count(&[voxels])?,
            chunks: 1,
            centre: cx.count(&[op.positions().centre()])?,
            layer: op.layer,
            threshold: op.threshold(),
            kept_scale: op.kept_scale(),
            scale: op.scale(head_channels) as f32,
            ..AttentionParameters::zeroed()
        };
        Ok(Attention { parameters, batch: shape.batch(), chunks: head_channels.div_ceil(CHUNK), reads })
    }

    /// Launches a kernel with a thread for each token of each window, head and sample, and each chunk of channels.
    fn launch(
        &self,
        cx: &Context<'_>,
        work: &mut Work,
        kernel: &str,
        chunks: usize,
        parameters: AttentionParameters,
        reads: &[Stretch],
        writes: &[Stretch],
    ) -> Result<(), Unsupported> {
        let AttentionParameters { heads, windows, window_tokens, .. } = parameters;
        let of_sample = [heads, windows, window_tokens].map(|count| count as usize);
        let count = cx.count(&[&of_sample[..], &[self.batch, chunks]].concat())?;
        let parameters = AttentionParameters { chunks: cx.count(&[chunks])?, count, ..parameters };
        let kernel = cx.kernel(kernel, &[cx.output(0)])?;
        work.each(kernel, count, &parameters, &[&self.reads, reads].concat(), writes);
        // Loops over tiles of keys, and over the channels of a head for each.
        let (tiles, channels) = (window_tokens.div_ceil(KEY_TILE), parameters.head_channels);
        let warps = work.warps()?;
        work.loops([1, channels].map(|turns| warps * u64::from(tiles) * u64::from(turns)))?;
        Ok(())
    }
}

impl Lower for WindowAttention {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (o, logs) = (cx.output(0), cx.output(1));
        cx.elements(logs)?;
        let mut work = Work::new(cx);
        let all = Attention::new(cx, self, 0, &mut work)?;
        let parameters = AttentionParameters { logs: logs.address(), result: o.address(), ..all.parameters };
        all.launch(cx, &mut work, "attention_logs", 1, parameters, &[], &[logs.at])?;
        all.launch(cx, &mut work, "attention", all.chunks, parameters, &[logs.at], &[o.at])?;
        Ok(work)
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AttentionTableGradParameters {
    attention: AttentionParameters,
    parts: u64,
    table_window: [u32; 3],
    length: u32,
    all_windows: u32,
    unused: u32,
}

impl Lower for WindowAttentionGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (upstream, logs) = (cx.input(0), cx.input(1));
        let (dqkv, dtable, dbias) = (cx.output(0), cx.output(1), cx.outputs.get(2));
        let rows = cx.elements(logs)?;
        let mut work = Work::new(cx);
        let all = Attention::new(cx, &self.of, 2, &mut work)?;
        let deltas = work.take::<f32>(rows as usize)?;
        let channels = all.parameters.heads * all.parameters.head_channels;
        let paddings = all.batch * all.parameters.paddings as usize;
        // Keys and values of the padding have gradients where they are a bias.
        let padding = match dbias.filter(|_| paddings > 0) {
            Some(_) => Some(work.take::<f32>(cx.count(&[paddings, 2 * channels as usize])? as usize)?),
            None => None,
        };
        let parameters = AttentionParameters {
            upstream: upstream.address(),
            logs: logs.address(),
            deltas: deltas.address,
            result: dqkv.address(),
            padding: start_or_null(padding),
            ..all.parameters
        };
        let read = [upstream.at, logs.at, deltas];
        all.launch(cx, &mut work, "attention_deltas", 1, parameters, &read[..2], &[deltas])?;
        all.launch(cx, &mut work, "attention_query_grad", all.chunks, parameters, &read, &[dqkv.at])?;
        let writes: Vec<Stretch> = [dqkv.at].into_iter().chain(padding).collect();
        all.launch(cx, &mut work, "attention_key_grad", all.chunks, parameters, &read, &writes)?;

        let (count, windows) = (cx.elements(dtable)?, all.batch * parameters.windows as usize);
        let length = windows.div_ceil((THREADS / count as usize).max(1)).max(LEAST_WINDOWS);
        let parts = cx.count(&[windows.div_ceil(length)])?;
        let threads = cx.count(&[parts as usize, count as usize])?;
        let of_parts = work.take::<f32>(threads as usize)?;
        let of_table = AttentionTableGradParameters {
            attention: AttentionParameters { count: threads, ..parameters },
            parts: of_parts.address,
            table_window: cx.axes(self.of.table_window)?,
            length: cx.count(&[length])?,
            all_windows: cx.count(&[windows])?,
            unused: 0,
        };
        let kernel = cx.kernel("attention_table_grad", &[dqkv])?;
        work.each(kernel, threads, &of_table, &[&all.reads[..], &read].concat(), &[of_parts]);
        let pairs = product(&[threads.div_ceil(WARP) as usize, length, parameters.window_tokens as usize]);
        work.loops([pairs, pairs * u64::from(parameters.head_channels)])?;
        sum_few_parts(&mut work, of_parts, dtable.at, [parts, count])?;

        if let Some(dbias) = dbias {
            fill(&mut work, dbias.at, 3 * channels, 0.0);
            if let Some(padding) = padding {
                // Tokens of the padding are no queries: the first third stays zero.
                let own = dbias.at.after::<f32>(channels as usize);
                let summed = Summed {
                    at: padding,
                    dtype: DType::F32,
                    voxels: paddings,
                    channels: 2 * channels as usize,
                };
                channel_sum(cx, &mut work, summed, own)?;
            }
        }
        Ok(work)
    }
}
