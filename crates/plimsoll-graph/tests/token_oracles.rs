//! Ops on tokens and their gradients against PyTorch and MONAI in f64: `oracles/token_ops.py` made the numbers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use plimsoll_graph::ops::{
    Add, ChannelSum, Conv, ConvTranspose, ConvWeightGrad, Gelu, GeluGrad, SpaceToDepth, SpaceToDepthGrad,
    TokenNorm, TokenNormGrad, WindowAttention, WindowAttentionGrad,
};
use plimsoll_graph::{Array, DType, Kind, Op, Program, Shape, TensorId, Window, interpret};
use serde::Deserialize;

#[derive(Deserialize)]
struct Record {
    gelu: Vec<Vec<f64>>,
    token_norm: Vec<Vec<f64>>,
    merging: Vec<Vec<f64>>,
    merging_14: Vec<Vec<f64>>,
    merging_v2: Vec<Vec<f64>>,
    merging_flat: Vec<Vec<f64>>,
    attention: Vec<Attention>,
}

#[derive(Deserialize)]
struct Attention {
    spatial: Vec<usize>,
    window: Vec<usize>,
    shift: Vec<usize>,
    table_window: Vec<usize>,
    heads: usize,
    channels: usize,
    values: Vec<Vec<f64>>,
}

fn record() -> Record {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracles/token_ops.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The formula of the script: numbers in (−1, 1).
fn noise(seed: usize, i: usize) -> f64 {
    let mut x = (seed as u64) << 32 ^ i as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for multiplier in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        x = (x ^ x >> 30).wrapping_mul(multiplier);
    }
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// A program whose inputs are numbers of the formula.
struct Writer {
    program: Program,
    values: HashMap<String, Array>,
}

impl Writer {
    fn new() -> Writer {
        Writer { program: Program::new("oracle"), values: HashMap::new() }
    }

    fn input(&mut self, seed: usize, shape: Shape, kind: Kind, factor: f64) -> TensorId {
        let name = format!("operand {seed}");
        self.values.insert(name.clone(), Array::from_fn(shape.clone(), |i| factor * noise(seed, i)));
        self.program.input(name, shape, kind)
    }

    fn push(&mut self, op: impl Into<Op>, operands: &[TensorId]) -> Vec<TensorId> {
        self.program.push(op, operands).unwrap()
    }

    fn compare(&self, what: &str, found: &[TensorId], expected: &[Vec<f64>]) {
        let arrays = interpret(&self.program, &self.values).unwrap();
        assert_eq!(found.len(), expected.len());
        for (place, (id, expected)) in found.iter().zip(expected).enumerate() {
            let found = &arrays[id.index()].data;
            assert_eq!(found.len(), expected.len(), "{what}, result {place}");
            let scale = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(scale > 1e-3 && worst <= 1e-10 * scale, "{what}, result {place}: off by {worst:e}");
        }
    }
}

#[test]
fn gelu_is_pytorchs() {
    let mut w = Writer::new();
    let shape = Shape::volume(2, 3, [2, 2, 3]);
    let x = w.input(1, shape.clone(), Kind::Volume, 4.0);
    let g = w.input(2, shape, Kind::Volume, 1.0);
    let results = [w.push(Gelu, &[x])[0], w.push(GeluGrad, &[g, x])[0]];
    w.compare("gelu", &results, &record().gelu);
}

#[test]
fn normalisation_of_tokens_is_pytorchs() {
    let mut w = Writer::new();
    let (shape, channels) = (Shape::volume(2, 5, [2, 2, 3]), Shape(vec![5]));
    let [x, g] = [1, 2].map(|seed| w.input(seed, shape.clone(), Kind::Volume, 1.0));
    let [scale, shift] = [3, 4].map(|seed| w.input(seed, channels.clone(), Kind::Channels, 1.0));
    let mut results = w.push(TokenNorm { epsilon: 1e-5, affine: true }, &[x, scale, shift]);
    results.extend(w.push(TokenNormGrad { epsilon: 1e-5, affine: true }, &[g, x, scale]));
    w.compare("token norm", &results, &record().token_norm);
}

#[test]
fn merging_is_monais_in_all_orders() {
    let record = record();
    let twice = vec![[0; 3], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1], [1; 3]];
    let now = vec![[0; 3], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1; 3]];
    let in_order = (0..8).map(|k| [k / 4, k / 2 % 2, k % 2]).collect();
    let flat = vec![[0; 3], [0, 1, 0], [0, 0, 1], [0, 1, 1]];
    for (what, input, offsets, expected) in [
        ("merging", [3, 4, 5], now, &record.merging),
        ("merging-1.4", [3, 4, 5], twice, &record.merging_14),
        ("mergingv2", [3, 4, 5], in_order, &record.merging_v2),
        ("in two dimensions", [1, 5, 4], flat, &record.merging_flat),
    ] {
        let block = if input[0] == 1 { [1, 2, 2] } else { [2; 3] };
        let op = SpaceToDepth { block, offsets };
        let mut w = Writer::new();
        let x = w.input(1, Shape::volume(1, 2, input), Kind::Volume, 1.0);
        let y = w.push(op.clone(), &[x])[0];
        let g = w.input(2, w.program.shape(y).clone(), Kind::Volume, 1.0);
        let dx = w.push(SpaceToDepthGrad { of: op, input }, &[g])[0];
        w.compare(what, &[y, dx], expected);
    }
}

/// With the linear layer that makes queries, keys and values, whose bias is what tokens of the padding have.
#[test]
fn attention_in_windows_is_monais() {
    for case in record().attention {
        let three = |extents: &[usize], first: usize| -> [usize; 3] {
            let first = std::iter::repeat_n(first, 3 - extents.len());
            first.chain(extents.iter().copied()).collect::<Vec<_>>().try_into().unwrap()
        };
        let (c, spatial) = (case.channels, three(&case.spatial, 1));
        let op = WindowAttention {
            heads: case.heads,
            window: three(&case.window, 1),
            shift: three(&case.shift, 0),
            table_window: three(&case.table_window, 1),
            padded_bias: true,
            dropout: 0.0,
            layer: 0,
        };
        let mut w = Writer::new();
        let [x, g] = [1, 2].map(|seed| w.input(seed, Shape::volume(2, c, spatial), Kind::Volume, 1.0));
        let weights = w.input(3, Shape(vec![3 * c, c, 1, 1, 1]), Kind::Weights, 1.0);
        let bias = w.input(4, Shape(vec![3 * c]), Kind::Channels, 1.0);
        let table = w.input(5, Shape(vec![op.positions().rows(), case.heads]), Kind::Table, 1.0);
        let point = Window::point();
        let qkv = w.push(Conv::new(point, true, DType::F32), &[x, weights, bias])[0];
        let attended = w.push(op, &[qkv, table, bias]);
        let gradients = w.push(WindowAttentionGrad { of: op }, &[g, attended[1], qkv, table, bias]);
        let back = ConvTranspose {
            window: point,
            groups: 1,
            first_channel: 0,
            channels: c,
            output: spatial,
            bias: false,
            dtype: DType::F32,
        };
        let dx = w.push(back, &[gradients[0], weights])[0];
        let dw = w.push(ConvWeightGrad { window: point, groups: 1 }, &[x, gradients[0]])[0];
        let of_tokens = w.push(ChannelSum, &[gradients[0]])[0];
        let db = w.push(Add, &[of_tokens, gradients[2]])[0];
        w.compare(&format!("{op:?}"), &[attended[0], dx, dw, db, gradients[1]], &case.values);
    }
}
