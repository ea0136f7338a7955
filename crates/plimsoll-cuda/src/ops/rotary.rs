//! Attention of all voxels to each other, with rotary positions, and its gradient.
//!
//! Features of f16, and of bf16 since Ampere, are multiplied on tensor cores from Turing on: queries, keys and values are turned, rounded and packed into scratch
//! first. Plain kernels remain for f32 and for Volta.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{RotaryAttention, RotaryAttentionGrad, RotaryPairs};
use plimsoll_plan::Unsupported;

use crate::architecture::Generation;
use crate::device::{Effort, LOOPS, WARP};
use crate::lower::{BLOCK, Context, Lower, Operand, Stretch, Work, address_or_null, product};

/// Tokens of a tile, `TOKENS` of the kernels.
const TOKENS: usize = 32;
/// The most channels of a head, for whose tiles there is shared memory, `MOST_HEAD_CHANNELS` of the kernels.
const MOST_HEAD_CHANNELS: usize = 96;
/// A sixth of it, `MOST_BANDS` of the kernels.
const MOST_BANDS: usize = 16;
/// Threads that share the channels of a sum, `LANES` of the kernels.
const LANES: usize = 16;
/// Channels of a chunk of the kernels with tensor cores, and pieces of it that a thread copies at once.
const CHUNK: usize = 16;
const CHUNK_PIECES: usize = 2;
/// Tokens of a block of these, `BLOCK_TOKENS` of the kernels.
const BLOCK_TOKENS: usize = 64;
/// Tokens of their tiles, `TILE_KEYS` and `TILE_QUERIES` of the kernels.
const TILE_KEYS: usize = 32;
const TILE_QUERIES: usize = 16;

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
    packed: u64,
    heads: u32,
    head_channels: u32,
    voxels: u32,
    bands: u32,
    extent: [u32; 3],
    scale: f32,
    chunks: u32,
    samples: u32,
}

/// A kernel with tensor cores.
struct TensorKernel {
    name: &'static str,
    /// Tokens of its tiles.
    tokens: usize,
    /// Products of all tokens of a block with all of a head.
    products: usize,
}

const ATTENTION: TensorKernel =
    TensorKernel { name: "tensor_rotary_attention", tokens: TILE_KEYS, products: 2 };
/// Two passes, each with logits and slopes, and one sum.
const QUERY_GRAD: TensorKernel =
    TensorKernel { name: "tensor_rotary_query_grad", tokens: TILE_KEYS, products: 5 };
const KEY_GRAD: TensorKernel =
    TensorKernel { name: "tensor_rotary_key_grad", tokens: TILE_QUERIES, products: 4 };

/// Returns `true` if there are kernels with tensor cores for features of a type.
fn on_tensor_cores(cx: &Context<'_>, dtype: DType) -> bool {
    // Convolutions round f32 to tf32 where that is asked for; attention does not yet. Volta's fragments have no kernels here.
    dtype != DType::F32
        && cx.architecture.generation() >= Generation::Turing
        && cx.architecture.multiplies(dtype)
}

/// The common parts of all launches of a node.
struct Rotary {
    parameters: RotaryParameters,
    blocks: u32,
    /// `true` if tensor cores multiply.
    on_tensor_cores: bool,
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
        let on_tensor_cores = on_tensor_cores(cx, queries.info.dtype);
        let tokens = if on_tensor_cores { BLOCK_TOKENS } else { TOKENS };
        let blocks = cx.count(&[voxels.div_ceil(tokens), op.heads, shape.batch()])?;
        let reads = vec![queries.at, keys.at, values.at, angles];
        Ok(Rotary { parameters, blocks, on_tensor_cores, reads })
    }

    /// Takes scratch for all operands as tensor cores read them, and launches what fills it. The gradient of the result may be among them. Afterwards
    /// kernels read that instead of the operands.
    fn pack(
        &mut self,
        cx: &Context<'_>,
        work: &mut Work,
        upstream: Option<&Operand<'_>>,
    ) -> Result<(), Unsupported> {
        let RotaryParameters { head_channels, heads, voxels, .. } = self.parameters;
        let chunks = (head_channels as usize).div_ceil(CHUNK);
        let volumes = 3 + u32::from(upstream.is_some());
        let rows = [cx.output(0).info.shape.batch(), heads as usize, voxels as usize];
        // Numbers of a volume fit an index.
        let numbers = cx.count(&[&rows[..], &[chunks, CHUNK]].concat())?;
        let packed = work.take::<u16>((numbers as usize).saturating_mul(volumes as usize))?;
        self.parameters.packed = packed.address;
        self.parameters.chunks = cx.count(&[chunks])?;
        self.parameters.samples = cx.count(&rows[..1])?;
        let parameters = RotaryParameters { upstream: address_or_null(upstream), ..self.parameters };
        let kernel = cx.kernel("tensor_rotary_pack", &[cx.output(0)])?;
        let pieces = numbers / (CHUNK / CHUNK_PIECES) as u32;
        let mut reads = self.reads.clone();
        reads.extend(upstream.map(|upstream| upstream.at));
        work.blocks(kernel, [pieces.div_ceil(BLOCK as u32), volumes], &parameters, &reads, &[packed])?;
        // Keys and queries are turned, the others copied.
        let warps = product(&[pieces as usize]).div_ceil(u64::from(WARP));
        work.loops([2 * warps, u64::from(volumes - 2) * warps])?;
        let angles = self.reads.pop();
        self.reads = [packed].into_iter().chain(angles).collect();
        Ok(())
    }

    /// Launches a kernel with tensor cores: a block for each `BLOCK_TOKENS` tokens, head and sample, which goes through tiles of `tokens` others.
    fn launch_tensor(
        &self,
        cx: &Context<'_>,
        work: &mut Work,
        kernel: &TensorKernel,
        parameters: RotaryParameters,
        [reads, writes]: [&[Stretch]; 2],
    ) -> Result<(), Unsupported> {
        let name = cx.kernel(kernel.name, &[cx.output(0)])?;
        work.blocks(name, [self.blocks, 1], &parameters, &[&self.reads, reads].concat(), writes)?;
        let RotaryParameters { voxels, chunks, .. } = self.parameters;
        let (tiles, chunks) = ((voxels as usize).div_ceil(kernel.tokens), chunks as usize);
        let blocks = self.blocks as usize;
        let warps = blocks * (BLOCK / WARP as usize);
        let flops = [2, kernel.products, blocks, BLOCK_TOKENS, tiles * kernel.tokens, chunks * CHUNK];
        // Of each tile: the tile, and its chunks; of each warp: chunks that are loaded before and written afterwards.
        let mut loops = [0; LOOPS];
        loops[0] = product(&[warps, tiles]);
        loops[1] = product(&[warps, tiles, chunks]);
        loops[2] = product(&[warps, chunks]);
        work.effort(Effort { loops, tensor_flops: product(&flops), ..Effort::default() })
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
        let mut all = Rotary::new(cx, *self, 0, &mut work)?;
        if all.on_tensor_cores {
            all.pack(cx, &mut work, None)?;
        }
        let parameters = RotaryParameters { logs: logs.address(), result: o.address(), ..all.parameters };
        if all.on_tensor_cores {
            all.launch_tensor(cx, &mut work, &ATTENTION, parameters, [&[], &[o.at, logs.at]])?;
            return Ok(work);
        }
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
        let mut all = Rotary::new(cx, self.of, 2, &mut work)?;
        if all.on_tensor_cores {
            all.pack(cx, &mut work, Some(upstream))?;
        }
        let deltas = work.take::<f32>(rows as usize)?;
        let of_queries = RotaryParameters {
            upstream: upstream.address(),
            logs: logs.address(),
            deltas: deltas.address,
            result: dq.address(),
            ..all.parameters
        };
        let reads = [upstream.at, logs.at, deltas];
        let of_keys = RotaryParameters { result: dk.address(), of_values: dv.address(), ..of_queries };
        if all.on_tensor_cores {
            // Packed with the others.
            let writes = [dq.at, deltas];
            all.launch_tensor(cx, &mut work, &QUERY_GRAD, of_queries, [&reads[1..2], &writes])?;
            all.launch_tensor(cx, &mut work, &KEY_GRAD, of_keys, [&reads[1..], &[dk.at, dv.at]])?;
            return Ok(work);
        }
        all.launch(cx, &mut work, "rotary_query_grad", of_queries, [&reads[..2], &[dq.at, deltas]])?;
        all.launch(cx, &mut work, "rotary_key_grad", of_keys, [&reads, &[dk.at, dv.at]])?;
        Ok(work)
    }
}
