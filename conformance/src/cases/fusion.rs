//! Programs that look as if something could be fused which must not be, and such that share weights in unusual ways.

use plimsoll_graph::ops::{
    Accumulate, Add, ChannelSum, CompositeLossGrad, Conv, ConvTranspose, ConvWeightGrad, Fill, LeakyRelu,
    Loss, NormStats, Normalise,
};
use plimsoll_graph::{DType, Kind, Shape, TensorId, Window};

use super::{SLOPE, Writer};
use crate::Case;

const EXTENT: [usize; 3] = [3, 3, 3];
const CHANNELS: usize = 20;
const CLASSES: usize = 3;

/// A head of a map whose logits' gradient something unusual reads.
pub fn unusual(precision: DType) -> Vec<Case> {
    let head = |name: &str, rest: &dyn Fn(&mut Writer, [TensorId; 4])| {
        let mut w = Writer::new(precision);
        let map = w.features("map", 2, CHANNELS, EXTENT);
        let weights = w.weights(CLASSES, CHANNELS, [1; 3]);
        let labels = w.labels("labels", 2, EXTENT);
        let logits = w.push(Conv::new(Window::point(), false, DType::F32), &[map, weights])[0];
        let loss = Loss::default();
        let sums = w.push(loss.stats(), &[logits, labels])[0];
        let upstream = w.push(Fill { value: 0.5, shape: Shape(vec![1]) }, &[])[0];
        let gradient = w.push(CompositeLossGrad { loss }, &[logits, labels, sums, upstream])[0];
        rest(&mut w, [map, weights, logits, gradient]);
        Case { may_be_large: false, ..w.case(format!("{name}, {precision:?}"), CLASSES) }
    };
    let back = |dtype: DType| ConvTranspose {
        window: Window::point(),
        groups: 1,
        first_channel: 0,
        channels: CHANNELS,
        output: EXTENT,
        bias: false,
        dtype,
    };
    let by_weights = ConvWeightGrad { window: Window::point(), groups: 1 };
    let mut cases = vec![
        head("the gradient of a map twice", &|w, [map, weights, _, gradient]| {
            w.result(by_weights.clone(), &[map, gradient]);
            let first = w.push(back(precision), &[gradient, weights])[0];
            let second = w.push(back(precision), &[gradient, weights])[0];
            w.result(Add, &[first, second]);
        }),
        head("the gradient of the weights twice", &|w, [map, weights, _, gradient]| {
            w.result(by_weights.clone(), &[map, gradient]);
            w.result(by_weights.clone(), &[map, gradient]);
            w.result(back(precision), &[gradient, weights]);
        }),
        head("a gradient of the map that is stored otherwise", &|w, [map, weights, _, gradient]| {
            w.result(by_weights.clone(), &[map, gradient]);
            w.result(back(DType::F32), &[gradient, weights]);
        }),
        head("the sum of a gradient without a bias", &|w, [map, weights, _, gradient]| {
            w.result(by_weights.clone(), &[map, gradient]);
            w.result(back(precision), &[gradient, weights]);
            w.result(ChannelSum, &[gradient]);
        }),
        head("logits that are read as well", &|w, [map, weights, logits, gradient]| {
            w.result(by_weights.clone(), &[map, gradient]);
            w.result(back(precision), &[gradient, weights]);
            w.result(LeakyRelu { slope: 0.5 }, &[logits]);
        }),
        head("a sum in the other order", &|w, [map, weights, _, gradient]| {
            w.result(by_weights.clone(), &[map, gradient]);
            let new = w.push(back(precision), &[gradient, weights])[0];
            w.result(Add, &[new, map]);
        }),
    ];
    cases.extend([updates(precision), shared(precision), twice(precision), parts_of_weights(precision)]);
    cases
}

/// The scale of a normalisation changes before the activation is taken, and again before a convolution reads it.
fn updates(precision: DType) -> Case {
    let mut w = Writer::new(precision);
    let y = w.features("y", 2, CHANNELS, EXTENT);
    let learned = |w: &mut Writer, name: &str| w.program.state(name, Shape(vec![CHANNELS]), Kind::Channels);
    let (scale, shift) = (learned(&mut w, "scale"), learned(&mut w, "shift"));
    let change = w.channels("change", CHANNELS);
    let statistics = w.push(NormStats { epsilon: 1e-5 }, &[y])[0];
    let u = w.push(Normalise { affine: true }, &[y, statistics, scale, shift])[0];
    w.push(Accumulate, &[scale, change]);
    let z = w.push(LeakyRelu { slope: SLOPE }, &[u])[0];
    w.push(Accumulate, &[shift, change]);
    let weights = w.weights(5, CHANNELS, [3; 3]);
    let conv = Conv::new(Window::same([3; 3], [1; 3]), false, precision);
    w.result(conv, &[z, weights]);
    let u = w.push(Normalise { affine: true }, &[y, statistics, scale, shift])[0];
    let z = w.push(LeakyRelu { slope: SLOPE }, &[u])[0];
    w.push(Accumulate, &[shift, change]);
    w.result(Conv::new(Window::same([3; 3], [1; 3]), false, precision), &[z, weights]);
    w.maps(format!("parameters that change between two ops, {precision:?}"))
}

/// Convolutions with the same weights, of an image and of what it leads to.
fn shared(precision: DType) -> Case {
    let mut w = Writer::new(precision);
    let (image, known) = (w.image("image", 1, 4, EXTENT), w.image("known", 1, 4, EXTENT));
    let weights = w.weights(4, 4, [1; 3]);
    let conv = Conv::new(Window::point(), false, DType::F32);
    let first = w.push(conv.clone(), &[image, weights])[0];
    let second = w.push(conv.clone(), &[first, weights])[0];
    let sum = w.push(Add, &[second, known])[0];
    w.result(conv, &[sum, weights]);
    w.maps(format!("weights of several layers, {precision:?}"))
}

/// A normalised map that convolutions and others read, and a sum of something with itself.
fn twice(precision: DType) -> Case {
    let mut w = Writer::new(precision);
    let (y, dy) = (w.features("y", 1, 17, EXTENT), w.features("dy", 1, 17, EXTENT));
    let z = w.norm_act(y, false);
    let weights = w.weights(17, 17, [1; 3]);
    let back = ConvTranspose {
        window: Window::point(),
        groups: 1,
        first_channel: 0,
        channels: 17,
        output: EXTENT,
        bias: false,
        dtype: precision,
    };
    w.result(back.clone(), &[z, weights]);
    w.result(ConvWeightGrad { window: Window::point(), groups: 1 }, &[z, z]);
    let new = w.push(back, &[dy, weights])[0];
    w.result(Add, &[new, new]);
    let sum = w.push(Add, &[z, new])[0];
    w.result(Add, &[sum, z]);
    w.maps(format!("operands that are read twice, {precision:?}"))
}

/// Transposed convolutions to some of the channels that weights have, of which no convolution says which belong together.
fn parts_of_weights(precision: DType) -> Case {
    let mut w = Writer::new(precision);
    let dy = w.features("dy", 2, 18, EXTENT);
    let weights = w.weights(18, 40, [3; 3]);
    for (first_channel, channels) in [(3, 17), (20, 2), (30, 10)] {
        let back = ConvTranspose {
            window: Window::same([3; 3], [1; 3]),
            groups: 1,
            first_channel,
            channels,
            output: EXTENT,
            bias: false,
            dtype: precision,
        };
        w.result(back, &[dy, weights]);
    }
    w.maps(format!("some channels of weights, {precision:?}"))
}
