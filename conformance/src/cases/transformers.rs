//! Parts of transformers.

use plimsoll_graph::ops::{
    ChannelScale, ChannelScaleGrad, ChannelSum, DepthToSpace, DepthToSpaceGrad, GradNorm, RotaryAttention,
    RotaryAttentionGrad, SwiGlu, SwiGluGrad,
};
use plimsoll_graph::{DType, TensorId};

use super::{EXTENTS, Writer};
use crate::Case;

/// Attention with rotary positions, gated linear units, factors of channels, and channels spread over voxels, each with its gradient.
pub(super) fn transformers(precision: DType) -> Vec<Case> {
    let mut cases = attention(precision);
    cases.extend(gated(precision));
    cases.extend(scaled(precision));
    cases.extend(spread());
    cases
}

fn attention(precision: DType) -> Vec<Case> {
    // Heads that fill blocks, that share them, and whose channels leave a block unfilled; fewer queries than lanes, several tiles and several chunks.
    let all = [
        (1, 48, [2, 3, 4]),
        (3, 6, [4, 1, 5]),
        (2, 18, [3, 3, 3]),
        (1, 6, [1, 2, 3]),
        (1, 6, [3, 4, 6]),
        (1, 96, [1, 2, 3]),
        (2, 12, [9, 10, 12]),
    ];
    all.map(|(heads, head_channels, extent)| rotary_attention(heads, head_channels, extent, precision)).into()
}

/// Attention with rotary positions by some heads, and its gradient.
pub fn rotary_attention(heads: usize, head_channels: usize, extent: [usize; 3], precision: DType) -> Case {
    let (mut w, maps) = rotary_maps(heads, head_channels, extent, precision);
    // The sums see what fills up blocks, too.
    let sums = maps.map(|map| w.push(ChannelSum, &[map])[0]);
    w.result(GradNorm { loss: false }, &sums);
    rotary_case(w, heads, head_channels, extent, precision)
}

/// The same without sums of the results, so that no other kernels are needed.
pub fn rotary_attention_alone(
    heads: usize,
    head_channels: usize,
    extent: [usize; 3],
    precision: DType,
) -> Case {
    let (w, _) = rotary_maps(heads, head_channels, extent, precision);
    rotary_case(w, heads, head_channels, extent, precision)
}

/// The result and the gradients.
fn rotary_maps(
    heads: usize,
    head_channels: usize,
    extent: [usize; 3],
    precision: DType,
) -> (Writer, [TensorId; 4]) {
    let (op, channels) = (RotaryAttention { heads }, heads * head_channels);
    let mut w = Writer::new(precision);
    let operands = ["q", "k", "v"].map(|name| w.features(name, 2, channels, extent));
    let upstream = w.features("do", 2, channels, extent);
    let results = w.push(op, &operands);
    // The gradient reads the logarithms.
    let [q, k, v] = operands;
    let gradients = w.push(RotaryAttentionGrad { of: op }, &[upstream, results[1], q, k, v]);
    let maps = [results[0], gradients[0], gradients[1], gradients[2]];
    for (id, name) in maps.into_iter().zip(["o", "dq", "dk", "dv"]) {
        w.program.mark_output(id, name);
    }
    (w, maps)
}

fn rotary_case(w: Writer, heads: usize, head_channels: usize, extent: [usize; 3], precision: DType) -> Case {
    let case =
        w.maps(format!("rotary attention of {heads} heads of {head_channels}×{extent:?}, {precision:?}"));
    // Large logits leave one key, or two of which rounding chooses.
    Case { may_be_large: false, ..case }
}

/// Extents of which the last has several parts of voxels, each with a number of channels.
fn maps() -> impl Iterator<Item = (usize, [usize; 3])> {
    [16, 33, 5, 20, 1, 3].into_iter().zip(EXTENTS.into_iter().chain([[9, 45, 50]]))
}

fn gated(precision: DType) -> Vec<Case> {
    let cases = maps().map(|(channels, extent)| {
        let mut w = Writer::new(precision);
        let [dz, gate, values] = ["dz", "gate", "values"].map(|name| w.features(name, 2, channels, extent));
        w.result(SwiGlu, &[gate, values]);
        let gradients = w.push(SwiGluGrad, &[dz, gate, values]);
        let sums = [gradients[0], gradients[1]].map(|map| w.push(ChannelSum, &[map])[0]);
        w.result(GradNorm { loss: false }, &sums);
        for (id, name) in gradients.into_iter().zip(["dgate", "dvalues"]) {
            w.program.mark_output(id, name);
        }
        w.maps(format!("gated units of {channels}×{extent:?}, {precision:?}"))
    });
    cases.collect()
}

fn scaled(precision: DType) -> Vec<Case> {
    let all = maps().flat_map(|map| [false, true].map(|shared| (map, shared)));
    let cases = all.map(|((channels, extent), shared)| {
        let mut w = Writer::new(precision);
        let (x, dz) = (w.features("x", 2, channels, extent), w.features("dz", 2, channels, extent));
        let factors = w.channels("factors", if shared { 1 } else { channels });
        let z = w.push(ChannelScale { shared }, &[x, factors])[0];
        w.program.mark_output(z, "z");
        let gradients = w.push(ChannelScaleGrad { shared }, &[dz, x, factors]);
        let sums = [z, gradients[0]].map(|map| w.push(ChannelSum, &[map])[0]);
        w.result(GradNorm { loss: false }, &[sums[0], sums[1], gradients[1]]);
        for (id, name) in gradients.into_iter().zip(["dx", "dfactors"]) {
            w.program.mark_output(id, name);
        }
        w.maps(format!("factors of {channels}×{extent:?}, shared: {shared}, {precision:?}"))
    });
    cases.collect()
}

/// Volumes in rows, as logits lie.
fn spread() -> Vec<Case> {
    let blocks = [[2; 3], [1, 2, 2], [2, 1, 3], [1; 3], [3, 2, 1]];
    let cases = EXTENTS.into_iter().zip(blocks).enumerate().map(|(i, (extent, block))| {
        let channels = [2, 3, 1, 5, 4][i];
        let mut w = Writer::new(DType::F32);
        let x = w.image("x", 2, channels * block.iter().product::<usize>(), extent);
        let shift = w.channels("shift", channels);
        w.result(DepthToSpace { block }, &[x, shift]);
        let fine = [0, 1, 2].map(|axis| extent[axis] * block[axis]);
        let dz = w.image("dz", 2, channels, fine);
        w.result(DepthToSpaceGrad { block }, &[dz]);
        w.case(format!("channels of {channels}×{extent:?} spread over {block:?}"), 0)
    });
    cases.collect()
}
