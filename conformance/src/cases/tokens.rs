//! Ops on tokens, the voxels of coarse maps.

use plimsoll_graph::ops::{
    Elu, EluGrad, Gelu, GeluGrad, NOISE, SampleDrop, SpaceToDepth, SpaceToDepthGrad, TokenNorm,
    TokenNormGrad, WindowAttention, WindowAttentionGrad,
};
use plimsoll_graph::{DType, Kind, Shape, TensorId};

use super::{EXTENTS, Writer};
use crate::Case;

/// Normalisation, activation, merging and dropping of tokens, and attention, each with its gradient.
pub fn tokens(precision: DType) -> Vec<Case> {
    let mut cases = element_wise(precision);
    cases.extend(merging(precision));
    cases.extend(attention(precision));
    cases
}

fn element_wise(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    // Of several tasks, and with channels that do not fill a block, fill one, or run over.
    for (i, extent) in EXTENTS.into_iter().chain([[5, 6, 9]]).enumerate() {
        let channels = [24, 16, 5, 96, 36, 12][i];
        let mut w = Writer::new(precision);
        let (x, dz) = (w.features("x", 2, channels, extent), w.features("dz", 2, channels, extent));
        w.result(Gelu, &[x]);
        w.result(GeluGrad, &[dz, x]);
        let z = w.push(Elu, &[x])[0];
        w.program.mark_output(z, "elu");
        w.result(EluGrad, &[dz, z]);
        let epsilon = 1e-5;
        w.result(TokenNorm { epsilon, affine: false }, &[x]);
        w.result(TokenNormGrad { epsilon, affine: false }, &[dz, x]);
        let (scale, shift) = (w.channels("scale", channels), w.channels("shift", channels));
        w.result(TokenNorm { epsilon, affine: true }, &[x, scale, shift]);
        w.result(TokenNormGrad { epsilon, affine: true }, &[dz, x, scale]);
        let noise = w.program.input(crate::NOISE, Shape(vec![NOISE]), Kind::Table);
        w.result(SampleDrop { p: 0.5, layer: i as u32 }, &[x, noise]);
        w.result(SampleDrop { p: 0.0, layer: i as u32 }, &[dz, noise]);
        cases.push(w.maps(format!("tokens of {channels}×{extent:?}, {precision:?}")));
    }
    cases
}

fn merging(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    let all = || (0..8).map(|k| [k / 4, k / 2 % 2, k % 2]).collect();
    let twice = || vec![[0; 3], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1], [1; 3]];
    let flat = || vec![[0; 3], [0, 1, 0], [0, 0, 1], [0, 1, 1]];
    for (channels, extent, block, offsets) in [
        (24, [4, 6, 8], [2; 3], all()),
        (12, [3, 5, 7], [2; 3], twice()),
        (16, [5, 2, 3], [2; 3], all()),
        (33, [2, 3, 4], [2; 3], twice()),
        (20, [1, 9, 17], [1, 2, 2], flat()),
        (3, [7, 3, 4], [3, 1, 2], vec![[2, 0, 1], [0; 3]]),
    ] {
        let op = SpaceToDepth { block, offsets };
        let mut w = Writer::new(precision);
        let x = w.features("x", 2, channels, extent);
        w.result(op.clone(), &[x]);
        let dy = w.features("dy", 2, channels * op.offsets.len(), op.output(extent));
        w.result(SpaceToDepthGrad { of: op, input: extent }, &[dy]);
        cases.push(w.maps(format!("merging of {channels}×{extent:?}, {precision:?}")));
    }
    cases
}

fn attention(precision: DType) -> Vec<Case> {
    let usual = WindowAttention {
        heads: 3,
        window: [3; 3],
        shift: [1; 3],
        table_window: [3; 3],
        padded_bias: true,
        dropout: 0.0,
        layer: 4,
    };
    let cases = [
        (usual, 4, [4, 5, 7]),
        // As many windows as make several chunks of more than the least.
        (WindowAttention { heads: 1, window: [2; 3], ..usual }, 4, [9, 17, 9]),
        // Clipped to the grid along one axis; shifted along the others only.
        (
            WindowAttention { heads: 2, window: [2, 4, 4], shift: [0, 2, 1], table_window: [4; 3], ..usual },
            8,
            [2, 8, 9],
        ),
        // Clipped along all axes, without padding.
        (
            WindowAttention {
                heads: 2,
                window: [4; 3],
                shift: [0; 3],
                table_window: [7; 3],
                padded_bias: false,
                ..usual
            },
            20,
            [4; 3],
        ),
        // Two dimensions, padded with zeroes.
        (
            WindowAttention {
                heads: 1,
                window: [1, 7, 7],
                shift: [0, 3, 3],
                table_window: [1, 7, 7],
                padded_bias: false,
                ..usual
            },
            16,
            [1, 9, 15],
        ),
        (WindowAttention { heads: 2, dropout: 0.25, ..usual }, 12, [3, 4, 5]),
        (WindowAttention { heads: 1, padded_bias: false, dropout: 0.5, ..usual }, 3, [3, 3, 4]),
    ];
    let cases = cases.into_iter().map(|(op, head_channels, extent)| {
        let channels = op.heads * head_channels;
        let mut w = Writer::new(precision);
        let qkv = w.features("qkv", 2, 3 * channels, extent);
        let d_o = w.features("do", 2, channels, extent);
        let mut table = |name: &str, shape: Vec<usize>| w.program.input(name, Shape(shape), Kind::Table);
        let mut operands = vec![qkv, table("table", vec![op.positions().rows(), op.heads])];
        if op.padded_bias {
            operands.push(w.channels("bias", 3 * channels));
        }
        if op.dropout > 0.0 {
            operands.push(w.program.input(crate::NOISE, Shape(vec![NOISE]), Kind::Table));
        }
        let attended = w.push(op, &operands);
        let of_grad: Vec<TensorId> = [d_o, attended[1]].into_iter().chain(operands).collect();
        w.result(WindowAttentionGrad { of: op }, &of_grad);
        w.program.mark_output(attended[0], "attended");
        let case = w.maps(format!("attention of {op:?} on {head_channels}×{extent:?}, {precision:?}"));
        // Large logits leave one key, or two of which rounding chooses.
        Case { may_be_large: false, ..case }
    });
    cases.collect()
}
