//! Programs that look as if something could be fused which must not be, and such that share weights in unusual ways.

use plimsoll_graph::ops::{
    Accumulate, Add, ChannelSum, CompositeLossGrad, Conv, ConvTranspose, ConvWeightGrad, Fill, GradNorm,
    LeakyRelu, LeakyReluGrad, Loss, NormStats, Normalise, NormaliseGrad, Over,
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
    cases.extend(ends(precision));
    cases
}

/// Ends of residual blocks of which something is read that would not be stored, or whose parts do not fit each other.
fn ends(precision: DType) -> Vec<Case> {
    type Rest<'a> = dyn Fn(&mut Writer, &End) + 'a;
    let end = |name: &str, rest: &Rest<'_>| {
        let mut w = Writer::new(precision);
        let [y, x, dz] = ["y", "x", "dz"].map(|name| w.features(name, 2, CHANNELS, EXTENT));
        let (u, of_y) = w.normalise(y, Over::Instance, true);
        let (v, of_x) = w.normalise(x, Over::Group(2), false);
        let sum = w.push(Add, &[u, v])[0];
        w.result(LeakyRelu { slope: SLOPE }, &[sum]);
        let ds = w.push(LeakyReluGrad { slope: SLOPE }, &[dz, sum])[0];
        rest(
            &mut w,
            &End { of_y: [&[ds], &of_y[..]].concat(), of_x: [&[ds], &of_x[..]].concat(), u, sum, ds, dz },
        );
        w.maps(format!("{name}, {precision:?}"))
    };
    let main = NormaliseGrad { over: Over::Instance, affine: true };
    let shortcut = NormaliseGrad { over: Over::Group(2), affine: false };
    vec![
        end("the end of a residual block", &|w, end| {
            w.result(main, &end.of_y);
            w.result(shortcut, &end.of_x);
        }),
        end("the gradient of a sum that is read as well", &|w, end| {
            w.result(main, &end.of_y);
            w.result(shortcut, &end.of_x);
            w.result(Add, &[end.ds, end.dz]);
        }),
        end("a sum that is read as well", &|w, end| {
            w.result(main, &end.of_y);
            w.result(shortcut, &end.of_x);
            w.result(ChannelSum, &[end.sum]);
        }),
        end("a normalised map that is read as well", &|w, end| {
            w.result(main, &end.of_y);
            w.result(shortcut, &end.of_x);
            w.result(Add, &[end.u, end.dz]);
        }),
        end("the gradient of one branch only", &|w, end| w.result(main, &end.of_y)),
        end("a gradient of another slope", &|w, end| {
            let ds = w.push(LeakyReluGrad { slope: 0.5 }, &[end.dz, end.sum])[0];
            w.result(main, &[&[ds], &end.of_y[1..]].concat());
            w.result(shortcut, &end.of_x);
            w.result(Add, &[ds, end.dz]);
        }),
        end("sums with gradients of normalisations and with convolutions", &|w, end| {
            let dy = w.push(main, &end.of_y);
            w.result(Add, &[end.dz, dy[0]]);
            w.result(GradNorm { loss: false }, &dy[1..]);
            let weights = w.weights(CHANNELS, CHANNELS, [3; 3]);
            let bias = w.channels("bias", CHANNELS);
            let conv = Conv::new(Window::same([3; 3], [1; 3]), true, precision);
            let y = w.push(conv, &[end.dz, weights, bias])[0];
            w.result(Add, &[end.ds, y]);
            let point = w.program.input("point", Shape(vec![CHANNELS, CHANNELS, 1, 1, 1]), Kind::Weights);
            let y = w.push(Conv::new(Window::point(), false, precision), &[end.dz, point])[0];
            w.result(Add, &[end.sum, y]);
        }),
    ]
}

/// The end of a residual block: what its gradients read, its inner values and the gradient of what it makes.
struct End {
    of_y: Vec<TensorId>,
    of_x: Vec<TensorId>,
    u: TensorId,
    sum: TensorId,
    ds: TensorId,
    dz: TensorId,
}

/// The scale of a normalisation changes before the activation is taken, and again before a convolution reads it.
fn updates(precision: DType) -> Case {
    let mut w = Writer::new(precision);
    let y = w.features("y", 2, CHANNELS, EXTENT);
    let learned = |w: &mut Writer, name: &str| w.program.state(name, Shape(vec![CHANNELS]), Kind::Channels);
    let (scale, shift) = (learned(&mut w, "scale"), learned(&mut w, "shift"));
    let change = w.channels("change", CHANNELS);
    let statistics = w.push(NormStats::instance(1e-5), &[y])[0];
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
