//! The cases: every op, in the shapes that networks have and in the odd ones that break kernels.

use plimsoll_graph::ops::{
    Accumulate, Activation, AdamW, Add, ChannelSum, Component, CompositeLoss, CompositeLossGrad, Conv,
    ConvTranspose, ConvWeightGrad, CrossEntropy, DownsampleLabels, Fill, Focal, FocalTversky,
    GeneralizedDice, GradNorm, HardCounts, LeakyRelu, LeakyReluGrad, Load, Loss, NormAct, NormActGrad,
    NormStats, Sgd, SoftDice, Tversky, VolumeWeight, WeightedBce, WeightedSum,
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
        let [d, h, w] = kernel;
        let kind = Kind::Weights { sources: sources.to_vec(), from: sides.0, to: sides.1 };
        self.program.input("weights", Shape(vec![out, sources.iter().sum(), d, h, w]), kind)
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
    ]
}

/// Extents with one, two, three and seventeen voxels on an axis.
const EXTENTS: [[usize; 3]; 5] = [[4, 6, 8], [3, 17, 5], [2, 2, 2], [1, 9, 17], [5, 3, 31]];

/// Extents that kernels cut into pieces along every axis, with something left over.
const LARGE: &[[usize; 3]] = &[[5, 37, 23], [11, 19, 18]];

/// Channels that do not fill a block, fill one, or run over.
const CHANNELS: [(usize, usize); 4] = [(16, 32), (33, 15), (3, 48), (20, 1)];

/// Convolutions between features: forward, both gradients, one or two sources, with and without normalising loads.
pub fn convolutions(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, window) in windows().into_iter().enumerate() {
        let large = if i < 3 { LARGE } else { &[] };
        for (j, extent) in EXTENTS.iter().chain(large).copied().enumerate() {
            // Not every pair with every other: the channels walk along.
            let (channels, batch) = (CHANNELS[(i + j) % CHANNELS.len()], 1 + (i + j) % 2);
            cases.extend(convolution(precision, window, (batch, extent), channels, (i + j) % 3 == 0));
        }
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
    for (i, extent) in EXTENTS.into_iter().enumerate() {
        let window = windows()[i % 3];
        let Some(output) = window.output(extent) else { continue };
        let (channels, out) = (1 + i, CHANNELS[i % CHANNELS.len()].1);
        let mut w = Writer::new(precision);
        let image = w.image("image", 2, channels, extent);
        let weights = w.weights(out, &[channels], window.kernel, (Image, Features));
        w.result(Conv::new(window, 1, false, Features), &[image, weights]);
        let dy = w.features("dy", 2, out, output);
        let (loads, result_load) = (vec![Load::Plain], Load::Plain);
        let grad = ConvWeightGrad { window, loads, result_load, from: Image, to: Features };
        w.result(grad, &[image, dy]);
        cases.push(
            w.case(format!("first layer {channels}→{out} of {extent:?}, {window:?}, {precision:?}"), 0),
        );

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

/// All cases of a precision.
pub fn all(precision: DType) -> Vec<Case> {
    let mut cases = convolutions(precision);
    cases.extend(convolutions_of_rows(precision));
    cases.extend(transposed(precision));
    cases.extend(rims(precision));
    cases.extend(maps(precision));
    cases.extend(losses(precision));
    if precision == DType::F32 {
        cases.extend(rest());
    }
    cases
}
