//! The cases: every op, in the shapes that networks have and in the odd ones that break kernels.

mod morphology;

pub use morphology::morphology;

use plimsoll_graph::ops::{
    Accumulate, Activation, AdamW, Add, BoundaryL1, BoundaryL1Grad, ChannelSum, Component, CompositeLoss,
    CompositeLossGrad, Conv, ConvTranspose, ConvWeightGrad, CrossEntropy, DistanceLoss, DistanceLossGrad,
    DistanceTerm, DownsampleLabels, Dropout, Fill, Focal, FocalTversky, GeneralizedDice, GradNorm,
    HardCounts, Join, LeakyRelu, LeakyReluGrad, Load, Loss, MeanPool, MeanPoolGrad, NOISE, NormAct,
    NormActGrad, NormStats, PredictedDistance, Probabilities, ProbabilitiesGrad, Sgd, SoftDice, SurfaceForm,
    Tversky, VolumeWeight, WeightedBce, WeightedSum,
};
use plimsoll_graph::{DType, Kind, Op, Program, Shape, Side, TensorId, Window};

use crate::Case;

/// A program that is being written, with less ceremony.
struct Writer {
    program: Program,
    results: usize,
}

impl Writer {
    fn new(precision: DType) -> Writer {
        Writer { program: Program::new("case", precision), results: 0 }
    }

    fn features(&mut self, name: &str, batch: usize, channels: usize, spatial: [usize; 3]) -> TensorId {
        // Features arrive through an addition, so that they are stored in the program's precision like any other.
        let shape = Shape::volume(batch, channels, spatial);
        let id = self.program.input(name, shape, Kind::Features);
        self.program.tensors[id.index()].dtype = self.program.precision;
        id
    }

    fn image(&mut self, name: &str, batch: usize, channels: usize, spatial: [usize; 3]) -> TensorId {
        self.program.input(name, Shape::volume(batch, channels, spatial), Kind::Image)
    }

    fn labels(&mut self, name: &str, batch: usize, spatial: [usize; 3]) -> TensorId {
        self.program.input(name, Shape::volume(batch, 1, spatial), Kind::Labels)
    }

    fn weights(
        &mut self,
        out: usize,
        sources: &[usize],
        kernel: [usize; 3],
        sides: (Side, Side),
    ) -> TensorId {
        self.grouped_weights(out, sources, 1, kernel, sides)
    }

    fn grouped_weights(
        &mut self,
        out: usize,
        sources: &[usize],
        groups: usize,
        kernel: [usize; 3],
        sides: (Side, Side),
    ) -> TensorId {
        let [d, h, w] = kernel;
        let kind = Kind::Weights { sources: sources.to_vec(), from: sides.0, to: sides.1 };
        let shape = Shape(vec![out, sources.iter().sum::<usize>() / groups, d, h, w]);
        self.program.input("weights", shape, kind)
    }

    fn channels(&mut self, name: &str, channels: usize) -> TensorId {
        self.program.input(name, Shape(vec![channels]), Kind::Channels)
    }

    fn push(&mut self, op: impl Into<Op>, inputs: &[TensorId]) -> Vec<TensorId> {
        self.program.push(op, inputs).unwrap_or_else(|error| panic!("a case is wrong: {error}"))
    }

    /// Appends a node whose results are compared.
    fn result(&mut self, op: impl Into<Op>, inputs: &[TensorId]) {
        for id in self.push(op, inputs) {
            if !self.program.tensor(id).role.is_persistent() {
                self.program.mark_output(id, format!("result {}", self.results));
                self.results += 1;
            }
        }
    }

    /// Appends a loss and its gradient, which are compared; returns the sums that it is made of, which are compared
    /// as well.
    fn loss(&mut self, loss: &Loss, logits: TensorId, labels: TensorId) -> TensorId {
        let sums = self.push(loss.stats(), &[logits, labels])[0];
        self.program.mark_output(sums, "sums");
        self.result(CompositeLoss { loss: loss.clone() }, &[sums, logits, labels]);
        let upstream = self.push(Fill { value: 0.5, shape: Shape(vec![1]) }, &[])[0];
        self.result(CompositeLossGrad { loss: loss.clone() }, &[logits, labels, sums, upstream]);
        sums
    }

    /// Normalises a map; the planner folds this into the convolution that reads it.
    fn norm_act(&mut self, y: TensorId, affine: bool) -> TensorId {
        let channels = self.program.shape(y).channels();
        let statistics = self.push(NormStats { epsilon: 1e-5 }, &[y])[0];
        let mut operands = vec![y, statistics];
        if affine {
            let n = self.program.tensors.len();
            operands.push(self.channels(&format!("scale {n}"), channels));
            operands.push(self.channels(&format!("shift {n}"), channels));
        }
        self.push(NormAct { slope: 0.01, affine }, &operands)[0]
    }

    fn case(self, name: String, classes: usize) -> Case {
        Case { name, program: self.program, classes }
    }
}

/// Kernel, stride, padding along each axis.
fn windows() -> Vec<Window> {
    let window = |kernel, stride, padding| Window { kernel, stride, padding };
    vec![
        Window::same([3; 3], [1; 3]),
        Window::same([3; 3], [2; 3]),
        Window::same([1, 3, 3], [1, 2, 2]),
        Window::same([3, 3, 1], [1, 1, 1]),
        Window::point(),
        window([1; 3], [2; 3], [0; 3]),
        Window::blocks([2; 3]),
        Window::blocks([1, 2, 2]),
        window([2, 3, 4], [1, 2, 3], [1, 0, 2]),
        Window::same([5; 3], [1; 3]),
        window([1, 7, 7], [1, 2, 2], [0, 3, 3]),
        Window::same([3; 3], [2, 1, 2]),
        window([1; 3], [1, 2, 2], [0; 3]),
        Window::same([1, 3, 3], [1; 3]),
        Window::same([1, 5, 5], [1, 2, 1]),
        Window::same([7; 3], [2; 3]),
    ]
}

/// Extents with one, two, three and seventeen voxels on an axis.
const EXTENTS: [[usize; 3]; 5] = [[4, 6, 8], [3, 17, 5], [2, 2, 2], [1, 9, 17], [5, 3, 31]];

/// Extents that kernels cut into pieces along every axis, with something left over.
const LARGE: &[[usize; 3]] = &[[5, 37, 23], [11, 19, 18]];

/// Channels that do not fill a block, fill one, or run over.
const CHANNELS: [(usize, usize); 6] = [(16, 32), (33, 15), (3, 48), (20, 1), (1, 33), (15, 3)];

/// Convolutions between features: forward, both gradients, one or two sources, with and without normalising loads.
pub fn convolutions(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, window) in windows().into_iter().enumerate() {
        let large = if i < 3 { LARGE } else { &[] };
        // (A map of one voxel has no variance to be normalised by.)
        for (j, extent) in EXTENTS.iter().chain(&[[1; 3]]).chain(large).copied().enumerate() {
            // Not every pair with every other: the channels walk along.
            let (channels, batch) = (CHANNELS[(i + j) % CHANNELS.len()], 1 + (i + j) % 2);
            cases.extend(convolution(
                precision,
                window,
                (batch, extent),
                channels,
                (i + j) % 3 == 0 && extent != [1; 3],
            ));
        }
    }
    cases
}

/// Inputs, outputs and groups: depthwise ones, those of ResNeXt, and odd ones.
const GROUPS: [[usize; 3]; 14] = [
    [33, 33, 33],
    [34, 34, 17],
    [20, 20, 5],
    [128, 128, 32],
    [24, 24, 3],
    [64, 64, 4],
    [64, 64, 2],
    [15, 30, 15],
    [30, 15, 15],
    [6, 4, 2],
    [36, 60, 3],
    [66, 33, 3],
    [48, 96, 3],
    [14, 14, 2],
];

/// Convolutions within groups of channels: forward, transposed, both gradients.
pub fn grouped(precision: DType) -> Vec<Case> {
    use Side::{Features, Image};
    let window = |kernel, stride, padding| Window { kernel, stride, padding };
    let windows = [
        Window::same([3; 3], [1; 3]),
        Window::same([1, 3, 3], [1, 2, 2]),
        Window::point(),
        Window::same([3; 3], [2, 1, 2]),
        window([1, 7, 7], [1, 2, 2], [0, 3, 3]),
        Window::blocks([1, 2, 2]),
    ];
    let mut cases = Vec::new();
    for (i, [channels, out, groups]) in GROUPS.into_iter().enumerate() {
        for j in 0..3 {
            let window = windows[(i + j) % windows.len()];
            let extent = if j == 0 { [1, 23, 37] } else { EXTENTS[(i + j) % EXTENTS.len()] };
            let Some(output) = window.output(extent) else { continue };
            let batch = 1 + (i + j) % 2;
            let mut w = Writer::new(precision);
            let y = w.features("y", batch, channels, extent);
            let x = if j == 1 { w.norm_act(y, true) } else { y };
            let weights = w.grouped_weights(out, &[channels], groups, window.kernel, (Features, Features));
            let bias = w.channels("bias", out);
            w.result(Conv::new(window, 1, true, Features).grouped(groups), &[x, weights, bias]);
            let dy = w.features("dy", batch, out, output);
            let grad = ConvWeightGrad {
                window,
                groups,
                loads: vec![Load::Plain],
                result_load: Load::Plain,
                from: Features,
                to: Features,
            };
            let dw = w.push(grad, &[x, dy])[0];
            // The norm sees what lies between the groups, too.
            w.result(GradNorm, &[dw]);
            w.program.mark_output(dw, "dw");
            let back = ConvTranspose {
                window,
                groups,
                load: Load::Plain,
                first_channel: 0,
                channels,
                output: extent,
                to: Features,
                bias: j == 1,
                accumulate: j == 2,
            };
            let mut operands = vec![dy, weights];
            operands.extend((j == 1).then(|| w.channels("bias of the transpose", channels)));
            operands.extend((j == 2).then(|| w.features("known", batch, channels, extent)));
            w.result(back, &operands);
            let name =
                format!("{groups} groups {channels}→{out} of {batch}×{extent:?}, {window:?}, {precision:?}");
            cases.push(w.case(name, 0));
        }
    }
    for (channels, out, groups) in [(3, 33, 3), (4, 34, 2), (6, 12, 3)] {
        let (window, extent) = (Window::same([3; 3], [1, 2, 1]), [3, 17, 5]);
        let mut w = Writer::new(precision);
        let image = w.image("image", 2, channels, extent);
        let weights = w.grouped_weights(out, &[channels], groups, window.kernel, (Image, Features));
        w.result(Conv::new(window, 1, false, Features).grouped(groups), &[image, weights]);
        let dy = w.features("dy", 2, out, window.output(extent).unwrap_or_default());
        let (loads, result_load) = (vec![Load::Plain], Load::Plain);
        let grad = ConvWeightGrad { window, groups, loads, result_load, from: Image, to: Features };
        let dw = w.push(grad, &[image, dy])[0];
        w.result(GradNorm, &[dw]);
        w.program.mark_output(dw, "dw");
        cases.push(w.case(format!("{groups} groups of an image {channels}→{out}, {precision:?}"), 0));
    }
    cases
}

/// Convolutions three wide, to results of widths that tiles of a row fill, do not fill, or run over.
pub fn convolutions_of_rows(precision: DType) -> Vec<Case> {
    let window = |kernel, padding| Window { kernel, stride: [1; 3], padding };
    let windows = [
        Window::same([3; 3], [1; 3]),
        Window::same([1, 3, 3], [1; 3]),
        window([1, 1, 3], [0; 3]),
        window([2, 1, 3], [1, 0, 2]),
    ];
    let mut cases = Vec::new();
    for (i, width) in [1, 2, 3, 4, 5, 6, 7, 17, 30].into_iter().enumerate() {
        for (j, window) in windows.into_iter().enumerate() {
            let channels = [(1, 33), (33, 3), (15, 15), (3, 1)][(i + j) % 4];
            cases.extend(convolution(precision, window, (1, [2, 9, width]), channels, i % 2 == 0));
        }
    }
    // More chunks than tasks are wanted, and several blocks on either side.
    cases.extend(convolution(precision, windows[0], (2, [5, 23, 17]), (17, 33), true));
    cases
}

/// One of them, if the window fits, with a second source or without.
fn convolution(
    precision: DType,
    window: Window,
    (batch, extent): (usize, [usize; 3]),
    (channels, out): (usize, usize),
    two: bool,
) -> Option<Case> {
    use Side::Features;
    let output = window.output(extent)?;
    let mut w = Writer::new(precision);
    let mut sources = vec![w.features("a", batch, channels, extent)];
    let mut widths = vec![channels];
    if two {
        let b = w.features("b", batch, 5, extent);
        sources.push(w.norm_act(b, true));
        widths.push(5);
    }
    let weights = w.weights(out, &widths, window.kernel, (Features, Features));
    let bias = w.channels("bias", out);
    let mut operands = sources.clone();
    operands.extend([weights, bias]);
    w.result(Conv::new(window, sources.len(), true, Features), &operands);
    let dy = w.features("dy", batch, out, output);
    sources.push(dy);
    let grad = ConvWeightGrad {
        window,
        groups: 1,
        loads: vec![Load::Plain; widths.len()],
        result_load: Load::Plain,
        from: Features,
        to: Features,
    };
    w.result(grad, &sources);
    let mut first_channel = 0;
    for (source, channels) in widths.iter().enumerate() {
        let mut operands = vec![dy, weights];
        operands.extend((source == 0).then(|| w.features("known", batch, *channels, extent)));
        let back = ConvTranspose {
            window,
            groups: 1,
            load: Load::Plain,
            first_channel,
            channels: *channels,
            output: extent,
            to: Features,
            bias: false,
            accumulate: source == 0,
        };
        w.result(back, &operands);
        first_channel += channels;
    }
    let name = format!("convolution {channels}→{out} of {batch}×{extent:?}, {window:?}, {precision:?}");
    Some(w.case(name, 0))
}

/// Transposed convolutions as U-Nets go up with them: kernel = stride, a normalising load, a bias; and their gradients.
pub fn transposed(precision: DType) -> Vec<Case> {
    use Side::Features;
    let strides = [[2, 2, 2], [1, 2, 2], [1, 1, 2], [3, 1, 2]];
    let mut cases = Vec::new();
    for (i, stride) in strides.into_iter().enumerate() {
        for (j, extent) in EXTENTS.into_iter().enumerate() {
            let (out, channels) = CHANNELS[(i + j) % CHANNELS.len()];
            let window = Window::blocks(stride);
            let output = [0, 1, 2].map(|axis| extent[axis] * stride[axis]);
            let mut w = Writer::new(precision);
            let y = w.features("y", 2, channels, extent);
            let z = w.norm_act(y, i % 2 == 0);
            let weights = w.weights(channels, &[out], stride, (Features, Features));
            let bias = w.channels("bias", out);
            let up = ConvTranspose {
                window,
                groups: 1,
                load: Load::Plain,
                first_channel: 0,
                channels: out,
                output,
                to: Features,
                bias: true,
                accumulate: false,
            };
            w.result(up, &[z, weights, bias]);
            let du = w.features("du", 2, out, output);
            w.result(Conv::new(window, 1, false, Features), &[du, weights]);
            let grad = ConvWeightGrad {
                window,
                groups: 1,
                loads: vec![Load::Plain],
                result_load: Load::Plain,
                from: Features,
                to: Features,
            };
            w.result(grad, &[du, z]);
            w.result(ChannelSum, &[du]);
            let name = format!("transposed {channels}→{out} of {extent:?} by {stride:?}, {precision:?}");
            cases.push(w.case(name, 0));
        }
    }
    cases
}

/// First layers (from images of 1 to 5 channels) and heads (to logits), with their gradients.
pub fn rims(precision: DType) -> Vec<Case> {
    use Side::{Features, Image};
    let mut cases = Vec::new();
    let usual = EXTENTS.into_iter().enumerate().map(|(i, extent)| (1 + i, windows()[i % 3], extent));
    // The stem of residual networks among others.
    let stem = Window { kernel: [1, 7, 7], stride: [1, 2, 2], padding: [0, 3, 3] };
    let others = [
        (3, stem, [1, 33, 20]),
        (1, stem, [1, 17, 31]),
        (4, Window::same([5; 3], [1, 2, 2]), [3, 17, 5]),
        (2, Window::point(), [4, 6, 8]),
        (1, Window::same([3, 3, 1], [2, 1, 1]), [5, 3, 31]),
        (3, Window::same([7; 3], [1; 3]), [1, 9, 17]),
    ];
    for (i, (channels, window, extent)) in usual.chain(others).enumerate() {
        let Some(output) = window.output(extent) else { continue };
        let out = CHANNELS[i % CHANNELS.len()].1;
        let mut w = Writer::new(precision);
        let image = w.image("image", 2, channels, extent);
        let weights = w.weights(out, &[channels], window.kernel, (Image, Features));
        w.result(Conv::new(window, 1, false, Features), &[image, weights]);
        let dy = w.features("dy", 2, out, output);
        let (loads, result_load) = (vec![Load::Plain], Load::Plain);
        let grad = ConvWeightGrad { window, groups: 1, loads, result_load, from: Image, to: Features };
        w.result(grad, &[image, dy]);
        cases.push(
            w.case(format!("first layer {channels}→{out} of {extent:?}, {window:?}, {precision:?}"), 0),
        );
    }
    for (i, extent) in EXTENTS.into_iter().enumerate() {
        let (channels, classes) = (CHANNELS[i % CHANNELS.len()].0, [2, 1, 9, 14, 3][i]);
        let mut w = Writer::new(precision);
        let y = w.features("y", 2, channels, extent);
        let z = w.norm_act(y, true);
        let weights = w.weights(classes, &[channels], [1; 3], (Features, Image));
        let bias = w.channels("bias", classes);
        w.result(Conv::new(Window::point(), 1, true, Image), &[z, weights, bias]);
        let dlogits = w.image("dlogits", 2, classes, extent);
        let back = ConvTranspose {
            window: Window::point(),
            groups: 1,
            load: Load::Plain,
            first_channel: 0,
            channels,
            output: extent,
            to: Features,
            bias: false,
            accumulate: i % 2 == 0,
        };
        let mut operands = vec![dlogits, weights];
        operands.extend((i % 2 == 0).then(|| w.features("known", 2, channels, extent)));
        w.result(back, &operands);
        let grad = ConvWeightGrad {
            window: Window::point(),
            groups: 1,
            loads: vec![Load::Plain],
            result_load: Load::Plain,
            from: Features,
            to: Image,
        };
        w.result(grad, &[z, dlogits]);
        // The norm sees what fills up blocks, too.
        let sum = w.push(ChannelSum, &[dlogits])[0];
        w.result(GradNorm, &[sum]);
        w.program.mark_output(sum, "sums");
        cases.push(w.case(format!("head {channels}→{classes} of {extent:?}, {precision:?}"), 0));
    }
    cases
}

/// Normalisation, its gradient, and element-wise ops.
pub fn maps(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, extent) in EXTENTS.into_iter().chain([[9, 30, 40]]).enumerate() {
        let channels = CHANNELS[i % CHANNELS.len()].0;
        let affine = i % 2 == 0;
        let mut w = Writer::new(precision);
        let y = w.features("y", 2, channels, extent);
        let z = w.norm_act(y, affine);
        w.result(LeakyRelu { slope: 0.2 }, &[z]);
        let node = w.program.nodes[1].clone();
        w.result(NormStats { epsilon: 1e-5 }, &[y]);
        let dz = w.features("dz", 2, channels, extent);
        let mut operands = vec![dz];
        operands.extend(&node.inputs);
        w.result(NormActGrad { slope: 0.01, affine }, &operands);
        w.result(Add, &[y, dz]);
        w.result(LeakyReluGrad { slope: 0.2 }, &[dz, y]);
        w.result(ChannelSum, &[y]);
        cases.push(w.case(format!("maps of {channels}×{extent:?}, {precision:?}"), 0));
    }
    for (layer, channels, extent) in
        [(0, 1, [1, 1, 1]), (1, 3, [1, 2, 3]), (2, 33, [17, 3, 5]), (3, 16, [3, 31, 67])]
    {
        let mut w = Writer::new(precision);
        let (x, dy) = (w.features("x", 2, channels, extent), w.features("dy", 2, channels, extent));
        let noise = w.program.input(crate::NOISE, Shape(vec![NOISE]), Kind::Table);
        w.result(Dropout { p: 0.25, layer }, &[x, noise]);
        w.result(Dropout { p: 0.0, layer }, &[dy, noise]);
        cases.push(w.case(format!("dropout of {channels} channels on {extent:?}"), 0));
    }
    cases
}

/// Losses, scores, labels, optimizers and arithmetic on tables: what does not depend on how features are stored.
pub fn rest() -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, extent) in EXTENTS.into_iter().chain([[13, 30, 40]]).enumerate() {
        let classes = [2, 3, 1, 14, 2, 5][i];
        let dice = SoftDice {
            weight: 0.7,
            batch: i % 2 == 0,
            include_background: i % 3 != 0,
            squared: i % 2 == 1,
            ..SoftDice::default()
        };
        let loss = Loss { ignore: (i > 2).then_some(1), ..Loss::dice_ce(dice, 1.2) };
        let mut w = Writer::new(DType::F32);
        let logits = w.image("logits", 2, classes, extent);
        let labels = w.labels("labels", 2, extent);
        let sums = w.loss(&loss, logits, labels);
        w.result(HardCounts { ignore: loss.ignore }, &[logits, labels]);
        w.result(DownsampleLabels { output: extent.map(|n| n.div_ceil(2)) }, &[labels]);
        w.result(WeightedSum { weights: vec![0.25, -2.0] }, &[sums, sums]);
        cases.push(w.case(format!("losses of {classes} classes on {extent:?}"), classes));
    }
    for (i, channels) in [3, 33, 40_000].into_iter().enumerate() {
        let mut w = Writer::new(DType::F32);
        let shape = Shape(vec![channels]);
        let gradients: Vec<TensorId> = ["g0", "g1"].map(|name| w.channels(name, channels)).to_vec();
        let norm = w.push(GradNorm, &gradients)[0];
        w.program.mark_output(norm, "norm");
        let rates = w.program.input("rates", Shape(vec![3]), Kind::Table);
        let mut state = |name: &str| w.program.state(name, shape.clone(), Kind::Channels);
        let (p0, m0, v0) = (state("p0"), state("m0"), state("v0"));
        let (p1, b1, held) = (state("p1"), state("b1"), state("held"));
        let max_norm = (i > 0).then_some(0.5);
        let adam =
            AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01, max_norm, clear: false };
        let clip = max_norm.map(|_| norm);
        let with = |operands: [TensorId; 4], clip: Option<TensorId>| -> Vec<TensorId> {
            operands.into_iter().chain([rates]).chain(clip).collect()
        };
        w.result(adam, &with([p0, gradients[0], m0, v0], clip));
        w.result(Accumulate, &[held, gradients[1]]);
        let sgd = Sgd { momentum: 0.99, weight_decay: 3e-5, max_norm, clear: true };
        let operands: Vec<TensorId> = [p1, held, b1, rates].into_iter().chain(clip).collect();
        w.result(sgd, &operands);
        cases.push(w.case(format!("optimizers over {channels} numbers"), 0));
    }
    cases
}

/// Every component of a loss, with options that its defaults leave out.
pub fn components(classes: usize) -> Vec<Component> {
    let class_weights: Vec<f32> = (0..classes).map(|class| 0.25 + class as f32 / 2.0).collect();
    let dice = SoftDice { class_weights: class_weights.clone(), ..SoftDice::default() };
    let without_background = SoftDice { include_background: false, squared: true, ..SoftDice::default() };
    let tversky = Tversky { alpha: 0.3, beta: 0.7, ..Tversky::default() };
    let bce = WeightedBce { pos_weight: 2.8, ..WeightedBce::default() };
    let activation = Activation::Sigmoid;
    let focal = Focal { alpha: Some(0.25), class_weights: class_weights.clone(), ..Focal::default() };
    vec![
        Component::SoftDice(SoftDice { batch: true, ..dice }),
        Component::LogCoshDice(without_background),
        Component::GeneralizedDice(GeneralizedDice::default()),
        Component::GeneralizedDice(GeneralizedDice {
            batch: true,
            include_background: false,
            volume_weight: VolumeWeight::Simple,
            ..GeneralizedDice::default()
        }),
        Component::Tversky(tversky),
        Component::FocalTversky(FocalTversky { batch: true, ..FocalTversky::default() }),
        Component::CrossEntropy(CrossEntropy {
            class_weights: class_weights.clone(),
            ..CrossEntropy::default()
        }),
        Component::WeightedBce(WeightedBce { class_weights, ..bce.clone() }),
        Component::WeightedBce(WeightedBce { activation, include_background: true, ..bce }),
        Component::Focal(focal.clone()),
        Component::Focal(Focal { gamma: 1.5, alpha: None, include_background: false, ..focal.clone() }),
        Component::Focal(Focal { activation, ..focal.clone() }),
        Component::Focal(Focal { activation, gamma: 0.7, ..focal }),
    ]
}

/// Losses of each component, and of all together, of logits that come from features stored in the precision.
pub fn losses(precision: DType) -> Vec<Case> {
    use Side::{Features, Image};
    let extents = [[1, 1, 1], [3, 17, 5], [1, 9, 17], [13, 30, 40]];
    let mut cases = Vec::new();
    for (i, (extent, classes)) in extents.into_iter().zip([2, 3, 1, 14]).enumerate() {
        let all = components(classes);
        let mut lists: Vec<Vec<Component>> = all.iter().map(|component| vec![component.clone()]).collect();
        lists.push(all);
        for (j, components) in lists.into_iter().enumerate() {
            let names: Vec<&str> = components.iter().map(Component::name).collect();
            let name =
                format!("{} ({j}) of {classes} classes on {extent:?}, {precision:?}", names.join(" + "));
            let loss = Loss { components, ignore: ((i + j) % 2 == 1).then_some(1) };
            let mut w = Writer::new(precision);
            let features = w.features("features", 2, 3, extent);
            let weights = w.weights(classes, &[3], [1; 3], (Features, Image));
            let head = Conv::new(Window::point(), 1, false, Image);
            let logits = w.push(head, &[features, weights])[0];
            let labels = w.labels("labels", 2, extent);
            w.loss(&loss, logits, labels);
            cases.push(w.case(name, classes));
        }
    }
    cases
}

/// Heads whose logits only losses and counts read, so that they are folded; some of more than one tile.
pub fn heads(precision: DType) -> Vec<Case> {
    use Side::{Features, Image};
    let sizes = [
        (1, 2, [1, 1, 1], false),
        (3, 14, [3, 5, 17], true),
        (33, 3, [2, 67, 67], true),
        (16, 5, [17, 3, 31], false),
        (3, 70, [33, 32, 33], false),
    ];
    let mut cases = Vec::new();
    for (i, (channels, classes, extent, normalised)) in sizes.into_iter().enumerate() {
        let focal = Component::Focal(Focal::default());
        let plain = Loss { ignore: (i == 1).then_some(1), ..Loss::default() };
        for loss in [plain, Loss { components: vec![focal], ignore: None }] {
            let mut w = Writer::new(precision);
            let x = w.features("x", 2, channels, extent);
            let map = if normalised { w.norm_act(x, i % 2 == 1) } else { x };
            let weights = w.weights(classes, &[channels], [1; 3], (Features, Image));
            let bias = w.channels("bias", classes);
            let labels = w.labels("labels", 2, extent);
            let has_bias = i != 3;
            let mut operands = vec![map, weights];
            operands.extend(has_bias.then_some(bias));
            let logits = w.push(Conv::new(Window::point(), 1, has_bias, Image), &operands)[0];
            let sums = w.push(loss.stats(), &[logits, labels])[0];
            w.program.mark_output(sums, "sums");
            w.result(CompositeLoss { loss: loss.clone() }, &[sums, logits, labels]);
            if !normalised {
                // Sums of these few numbers of few bits are exact: there is no doubt about which logit is the largest.
                w.result(HardCounts { ignore: loss.ignore }, &[logits, labels]);
            }
            let upstream = w.push(Fill { value: 0.5, shape: Shape(vec![1]) }, &[])[0];
            let gradient = CompositeLossGrad { loss: loss.clone() };
            let gradient = w.push(gradient, &[logits, labels, sums, upstream])[0];
            let grad = ConvWeightGrad {
                window: Window::point(),
                groups: 1,
                loads: vec![Load::Plain],
                result_load: Load::Plain,
                from: Features,
                to: Image,
            };
            w.result(grad, &[map, gradient]);
            if has_bias {
                w.result(ChannelSum, &[gradient]);
            }
            let back = ConvTranspose {
                window: Window::point(),
                groups: 1,
                load: Load::Plain,
                first_channel: 0,
                channels,
                output: extent,
                to: Features,
                bias: false,
                accumulate: i % 2 == 0,
            };
            let mut operands = vec![gradient, weights];
            operands.extend((i % 2 == 0).then(|| w.features("known", 2, channels, extent)));
            w.result(back, &operands);
            let name = loss.components[0].name();
            cases.push(w.case(
                format!("folded head {channels}→{classes} of {extent:?}, {name}, {precision:?}"),
                classes,
            ));
        }
    }
    cases
}

/// Losses that see shapes, with all that they are made of, of probabilities as well as of logits.
pub fn structures() -> Vec<Case> {
    let mut cases = Vec::new();
    let extents: [[usize; 3]; 4] = [[1, 1, 1], [3, 17, 5], [1, 9, 18], [7, 10, 33]];
    for (i, (extent, classes)) in extents.into_iter().zip([2, 3, 2, 5]).enumerate() {
        let ignore = (i % 2 == 1).then_some(1);
        let coarse = extent.map(|n| n.div_ceil(2));
        let mut w = Writer::new(DType::F32);
        let logits = w.image("logits", 2, classes, extent);
        let labels = w.labels("labels", 2, extent);
        let p = w.push(Probabilities, &[logits])[0];
        w.result(Probabilities, &[logits]);
        let slopes = w.image("slopes", 2, classes - 1, extent);
        w.result(ProbabilitiesGrad, &[logits, slopes]);
        w.result(MeanPool { output: coarse }, &[p]);
        let coarse = w.image("coarse", 2, classes - 1, coarse);
        w.result(MeanPoolGrad { input: extent }, &[coarse]);
        let upstream = w.program.input("upstream", Shape(vec![1]), Kind::Table);
        let sums = w.push(BoundaryL1 { ignore }, &[p, labels]);
        w.result(BoundaryL1Grad { ignore }, &[p, labels, sums[1], upstream]);
        w.result(Join, &[sums[0], sums[1], upstream]);
        let surface = |form| DistanceTerm::Surface { tolerance: 1.5, form };
        let target = w.image("distances", 2, classes - 1, extent);
        for term in [
            DistanceTerm::Boundary,
            DistanceTerm::Hausdorff { alpha: 2.0, log: false },
            DistanceTerm::Hausdorff { alpha: 1.3, log: true },
            surface(SurfaceForm::Symmetric),
            surface(SurfaceForm::AsPublished),
        ] {
            let mut operands = vec![p, labels, target];
            if term.of_prediction() {
                let op = PredictedDistance { spacing: [2.5, 0.7, 0.8], signed: term.is_signed(), ignore };
                operands.push(w.push(op, &[p, labels])[0]);
            }
            let loss = DistanceLoss { term, ignore };
            let results = w.push(loss, &operands);
            w.result(loss, &operands);
            operands.extend([results[1], upstream]);
            w.result(DistanceLossGrad { loss }, &operands);
        }
        if extent.iter().product::<usize>() > 1 {
            // Masks are neither empty nor full.
            let op = PredictedDistance { spacing: [2.5, 0.7, 0.8], signed: true, ignore: None };
            w.result(op, &[p, labels]);
        }
        cases.push(w.case(format!("shapes of {classes} classes on {extent:?}"), classes));
    }
    cases
}

/// All cases of a precision.
pub fn all(precision: DType) -> Vec<Case> {
    let mut cases = convolutions(precision);
    cases.extend(grouped(precision));
    cases.extend(convolutions_of_rows(precision));
    cases.extend(transposed(precision));
    cases.extend(rims(precision));
    cases.extend(maps(precision));
    cases.extend(losses(precision));
    cases.extend(heads(precision));
    if precision == DType::F32 {
        cases.extend(rest());
        cases.extend(structures());
        cases.extend(morphology());
    }
    cases
}
