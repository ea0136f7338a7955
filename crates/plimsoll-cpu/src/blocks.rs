//! How tensors lie in the arena.
//!
//! | kind | layout |
//! |---|---|
//! | features `[N, C, D, H, W]` | `[N][C/16][D][H][W][16]`, the last block filled with zeroes |
//! | image, logits | `[N][C][D][H][W]` |
//! | labels | `[N][D][H][W]` |
//! | weights to features | `[O/16][reach][tap][inputs][16 out]`, see [`WeightBlocks`] |
//! | weights, features to image | `[O][I/16][16 in]` |
//! | channels `[C]` | `[C/16][16]` |
//! | statistics `[N, C, 2]` | `[N][C/16][mean 16][rstd 16]` |
//! | table | as it is |
//!
//! What fills up a block is zero and stays zero: weights there are zero, so results are, so gradients are. (Where lanes of two
//! groups meet, gradients are not; they are set to zero.)
#![forbid(unsafe_code)]

use plimsoll_graph::{Kind, TensorInfo};

use crate::simd::LANES;
use crate::weight_blocks::WeightBlocks;

/// Blocks of sixteen that hold `channels`.
pub(crate) fn blocks(channels: usize) -> usize {
    channels.div_ceil(LANES)
}

/// Blocks that hold the channels of several sources, each filled up by itself.
pub(crate) fn source_blocks(sources: &[usize]) -> usize {
    sources.iter().map(|channels| blocks(*channels)).sum()
}

/// Stored elements of a tensor, with what fills up its blocks.
pub(crate) fn stored_count(tensor: &TensorInfo) -> usize {
    let shape = &tensor.shape;
    match &tensor.kind {
        Kind::Features => shape.batch() * blocks(shape.channels()) * shape.voxels() * LANES,
        Kind::Weights { sources, .. } => {
            let taps = shape.spatial().iter().product::<usize>();
            match WeightBlocks::of(tensor) {
                Some(blocks) => blocks.count(taps),
                None => shape.dim(0) * source_blocks(sources) * LANES * taps,
            }
        }
        Kind::Channels => blocks(shape.dim(0)) * LANES,
        Kind::Statistics => shape.dim(0) * blocks(shape.dim(1)) * 2 * LANES,
        Kind::Image | Kind::Labels | Kind::Table => shape.count(),
    }
}

/// Bytes of a tensor.
pub(crate) fn stored_bytes(tensor: &TensorInfo) -> usize {
    stored_count(tensor) * tensor.dtype.bytes()
}

/// Whether a tensor's elements are stored in the logical order of its shape, with nothing between or behind them.
pub(crate) fn is_stored_as_given(tensor: &TensorInfo) -> bool {
    matches!(tensor.kind, Kind::Image | Kind::Labels | Kind::Table)
}

/// The stored place of each element, in the logical order of the tensor's shape.
pub(crate) fn stored_places(tensor: &TensorInfo) -> Box<dyn Iterator<Item = usize>> {
    let shape = tensor.shape.clone();
    let count = shape.count();
    match tensor.kind.clone() {
        Kind::Features => {
            let (channels, voxels) = (shape.channels(), shape.voxels());
            Box::new((0..count).map(move |i| {
                let (plane, voxel) = (i / voxels, i % voxels);
                let (sample, channel) = (plane / channels, plane % channels);
                let block = sample * blocks(channels) + channel / LANES;
                (block * voxels + voxel) * LANES + channel % LANES
            }))
        }
        Kind::Weights { sources, .. } => {
            let inputs = shape.dim(1);
            let taps: usize = shape.spatial().iter().product();
            let split = move |i: usize| (i % taps, i / taps % inputs, i / taps / inputs);
            if let Some(blocks) = WeightBlocks::of(tensor) {
                return Box::new((0..count).map(move |i| {
                    let (tap, input, output) = split(i);
                    blocks.place(output, input, taps, tap)
                }));
            }
            // A head: one tap, and each source begins a block.
            let stored = source_blocks(&sources) * LANES;
            let mut lanes = Vec::with_capacity(inputs);
            let mut first = 0;
            for channels in &sources {
                lanes.extend((0..*channels).map(|c| first + c));
                first += blocks(*channels) * LANES;
            }
            Box::new((0..count).map(move |i| {
                let (tap, input, output) = split(i);
                (output * taps + tap) * stored + lanes[input]
            }))
        }
        Kind::Statistics => {
            let channels = shape.dim(1);
            Box::new((0..count).map(move |i| {
                let (plane, which) = (i / 2, i % 2);
                let (sample, channel) = (plane / channels, plane % channels);
                let block = sample * blocks(channels) + channel / LANES;
                (block * 2 + which) * LANES + channel % LANES
            }))
        }
        Kind::Channels | Kind::Image | Kind::Labels | Kind::Table => Box::new(0..count),
    }
}
