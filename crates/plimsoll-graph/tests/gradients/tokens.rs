//! Gradients of ops on tokens.

use plimsoll_graph::ops::{
    AddPositions, AvgPoolGrad, ChannelScale, CompositeLoss, Conv, DepthToSpace, Gelu, Loss, NOISE, PadFront,
    Prelu, ResponseNorm, RotaryAttention, SampleDrop, Sigmoid, SpaceToDepth, SwiGlu, TokenNorm, VoxelGate,
    WindowAttention,
};
use plimsoll_graph::{DType, Kind, Op, Program, Shape, TensorId, Window};

use super::check;

/// The loss of a head on the result of an op for a map, of these channels and extent, and parameters.
fn loss_of(
    batch: usize,
    channels: usize,
    extent: [usize; 3],
    build: impl FnOnce(&mut Program, TensorId) -> TensorId,
) -> (Program, TensorId) {
    let mut p = Program::new("tokens");
    let x = p.input("x", Shape::volume(batch, channels, extent), Kind::Volume);
    let made = build(&mut p, x);
    let (channels, spatial) = (p.shape(made).channels(), p.shape(made).spatial());
    let labels = p.input("labels", Shape::volume(batch, 1, spatial), Kind::Labels);
    let head = p.parameter("head", Shape(vec![2, channels, 1, 1, 1]), Kind::Weights);
    let conv = Conv::new(Window::point(), false, DType::F32);
    let logits = p.push_one(conv, &[made, head]).unwrap();
    let loss = Loss::default();
    let sums = p.push_one(loss.stats(), &[logits, labels]).unwrap();
    let loss = p.push(CompositeLoss { loss }, &[sums]).unwrap()[0];
    (p, loss)
}

#[test]
fn ops_with_one_operand() {
    let merging = SpaceToDepth {
        block: [2; 3],
        // With two offsets twice, and two not at all.
        offsets: vec![[0; 3], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1], [1; 3]],
    };
    let norm = TokenNorm { epsilon: 1e-5, affine: false };
    let padding = PadFront { axes: [true, false, true] };
    let spread = AvgPoolGrad { window: [1, 2, 2], input: [3, 9, 10] };
    let ops: [Op; 5] = [spread.into(), Gelu.into(), norm.into(), merging.into(), padding.into()];
    for op in ops {
        let (program, loss) = loss_of(2, 3, [3, 4, 5], |p, x| p.push_one(op, &[x]).unwrap());
        check(program, loss, 2);
    }
}

#[test]
fn a_normalisation_of_tokens_with_scale_and_shift() {
    let (program, loss) = loss_of(2, 5, [2, 3, 4], |p, x| {
        let [scale, shift] = ["scale", "shift"].map(|name| p.parameter(name, Shape(vec![5]), Kind::Channels));
        p.push_one(TokenNorm { epsilon: 1e-5, affine: true }, &[x, scale, shift]).unwrap()
    });
    check(program, loss, 2);
}

#[test]
fn responses_of_channels() {
    let (program, loss) = loss_of(2, 5, [2, 3, 4], |p, x| {
        let [scale, shift] = ["scale", "shift"].map(|name| p.parameter(name, Shape(vec![5]), Kind::Channels));
        p.push_one(ResponseNorm { epsilon: 1e-6 }, &[x, scale, shift]).unwrap()
    });
    check(program, loss, 2);
}

#[test]
fn positions_of_voxels() {
    let (program, loss) = loss_of(2, 5, [2, 3, 4], |p, x| {
        let table = p.parameter("table", Shape(vec![24, 5]), Kind::Table);
        p.push_one(AddPositions, &[x, table]).unwrap()
    });
    check(program, loss, 2);
}

#[test]
fn a_learned_slope() {
    let (program, loss) = loss_of(2, 5, [2, 3, 4], |p, x| {
        let slope = p.parameter("slope", Shape(vec![1]), Kind::Channels);
        p.push_one(Prelu, &[x, slope]).unwrap()
    });
    check(program, loss, 2);
}

#[test]
fn voxels_that_are_weighted() {
    let (program, loss) = loss_of(2, 5, [2, 3, 4], |p, x| {
        let weights = p.parameter("factor", Shape(vec![1, 5, 1, 1, 1]), Kind::Weights);
        let conv = Conv::new(Window::point(), false, DType::F32);
        let logits = p.push_one(conv, &[x, weights]).unwrap();
        let factors = p.push_one(Sigmoid, &[logits]).unwrap();
        p.push_one(VoxelGate, &[x, factors]).unwrap()
    });
    check(program, loss, 2);
}

#[test]
fn samples_that_are_dropped() {
    let (program, loss) = loss_of(5, 3, [2, 3, 4], |p, x| {
        let noise = p.input("noise", Shape(vec![NOISE]), Kind::Table);
        p.push_one(SampleDrop { p: 0.4, layer: 3 }, &[x, noise]).unwrap()
    });
    check(program, loss, 2);
}

/// Shifted and not; with padding in the region of real tokens; with a window smaller than the table's; with dropout; in two dimensions.
#[test]
fn attention_in_windows() {
    let usual = WindowAttention {
        heads: 2,
        window: [3, 2, 2],
        shift: [1, 0, 1],
        table_window: [3, 2, 2],
        padded_bias: true,
        dropout: 0.0,
        layer: 1,
    };
    let clipped = WindowAttention { window: [2, 2, 2], shift: [0; 3], padded_bias: false, ..usual };
    let flat = WindowAttention {
        heads: 1,
        window: [1, 3, 3],
        shift: [0, 1, 1],
        table_window: [1, 3, 3],
        padded_bias: false,
        ..usual
    };
    let cases = [
        (usual, [5, 2, 3]),
        (clipped, [2, 2, 2]),
        (flat, [1, 4, 5]),
        (WindowAttention { dropout: 0.3, ..usual }, [4, 3, 2]),
    ];
    for (op, extent) in cases {
        let (program, loss) = loss_of(2, 12, extent, |p, qkv| {
            let table = Shape(vec![op.positions().rows(), op.heads]);
            let mut operands = vec![qkv, p.parameter("table", table, Kind::Table)];
            if op.padded_bias {
                operands.push(p.parameter("bias", Shape(vec![12]), Kind::Channels));
            }
            if op.dropout > 0.0 {
                operands.push(p.input("noise", Shape(vec![NOISE]), Kind::Table));
            }
            p.push(op, &operands).unwrap()[0]
        });
        check(program, loss, 2);
    }
}

/// A convolution of one voxel, to as many channels.
fn mixed(p: &mut Program, name: &str, x: TensorId, channels: [usize; 2]) -> TensorId {
    let weights = p.parameter(name, Shape(vec![channels[1], channels[0], 1, 1, 1]), Kind::Weights);
    p.push_one(Conv::new(Window::point(), false, DType::F32), &[x, weights]).unwrap()
}

#[test]
fn attention_with_rotary_positions() {
    for (heads, extent) in [(1, [2, 3, 2]), (2, [1, 2, 5])] {
        let (program, loss) = loss_of(2, 12, extent, |p, x| {
            let operands = ["q", "k", "v"].map(|name| mixed(p, name, x, [12, 12]));
            p.push(RotaryAttention { heads }, &operands).unwrap()[0]
        });
        check(program, loss, 2);
    }
}

#[test]
fn gated_linear_units() {
    let (program, loss) = loss_of(2, 5, [2, 3, 4], |p, x| {
        let operands = ["gate", "values"].map(|name| mixed(p, name, x, [5, 5]));
        p.push_one(SwiGlu, &operands).unwrap()
    });
    check(program, loss, 2);
}

#[test]
fn factors_of_channels_and_one_for_all() {
    for (shared, count) in [(false, 5), (true, 1)] {
        let (program, loss) = loss_of(2, 5, [2, 3, 4], |p, x| {
            let factors = p.parameter("factors", Shape(vec![count]), Kind::Channels);
            p.push_one(ChannelScale { shared }, &[x, factors]).unwrap()
        });
        check(program, loss, 2);
    }
}

#[test]
fn channels_spread_over_voxels() {
    let (program, loss) = loss_of(2, 5, [2, 3, 4], |p, x| {
        let parts = mixed(p, "parts", x, [5, 12]);
        let shift = p.parameter("shift", Shape(vec![3]), Kind::Channels);
        p.push_one(DepthToSpace { block: [1, 2, 2] }, &[parts, shift]).unwrap()
    });
    check(program, loss, 2);
}
