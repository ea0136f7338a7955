//! The cases: every op, in the shapes that networks have and in the odd ones that break kernels.

mod attention_networks;
mod convolutions;
mod fusion;
mod long_sums;
mod losses;
mod morphology;
mod networks;
mod pooling;
mod resample;
mod tokens;
mod transformers;

pub use attention_networks::attention_networks;
pub use convolutions::{
    convolutions, convolutions_of_rows, depthwise, dilated, grouped, transposed, upsampling,
};
pub use fusion::unusual;
pub use long_sums::long_sums;
pub use losses::{components, heads, losses, regions, structures};
pub use morphology::morphology;
pub use networks::networks;
pub use pooling::{gates, max_pools, running, zero_classes};
pub use resample::resampled;
pub use tokens::tokens;
pub use transformers::{rotary_attention, rotary_attention_alone};

use plimsoll_graph::ops::{
    Accumulate, AdamW, Add, ChannelSum, CompositeLoss, CompositeLossGrad, Conv, ConvTranspose,
    ConvWeightGrad, DownsampleLabels, Dropout, Ema, Fill, GradNorm, HardCounts, Join, LeakyRelu,
    LeakyReluGrad, Loss, NOISE, NormStats, NormUse, Normalise, NormaliseGrad, Over, SampleDrop, Sgd,
    SoftDice, WeightedSum,
};
use plimsoll_graph::{DType, Kind, Op, Program, Shape, TensorId, Window};

use convolutions::windows;

use crate::Case;

/// A program that is being written, with less ceremony.
struct Writer {
    program: Program,
    /// The storage type of feature maps.
    precision: DType,
    results: usize,
}

impl Writer {
    fn new(precision: DType) -> Writer {
        Writer { program: Program::new("case"), precision, results: 0 }
    }

    /// A volume in the precision of the case.
    fn features(&mut self, name: &str, batch: usize, channels: usize, spatial: [usize; 3]) -> TensorId {
        let id = self.image(name, batch, channels, spatial);
        self.program.tensors[id.index()].dtype = self.precision;
        id
    }

    /// A volume of f32.
    fn image(&mut self, name: &str, batch: usize, channels: usize, spatial: [usize; 3]) -> TensorId {
        self.program.input(name, Shape::volume(batch, channels, spatial), Kind::Volume)
    }

    fn labels(&mut self, name: &str, batch: usize, spatial: [usize; 3]) -> TensorId {
        self.program.input(name, Shape::volume(batch, 1, spatial), Kind::Labels)
    }

    /// Weights of a convolution with this number of inputs in each group.
    fn weights(&mut self, out: usize, inputs: usize, [d, h, w]: [usize; 3]) -> TensorId {
        self.program.input("weights", Shape(vec![out, inputs, d, h, w]), Kind::Weights)
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

    /// Appends a transposed convolution, whose result is compared, or where something is known already the sum of both.
    fn transpose(&mut self, op: ConvTranspose, operands: &[TensorId], known: Option<TensorId>) {
        let Some(known) = known else { return self.result(op, operands) };
        let new = self.push(op, operands)[0];
        self.result(Add, &[known, new]);
    }

    /// Appends a loss and its gradient, which are compared; returns the sums that it is made of, which are compared
    /// as well.
    fn loss(&mut self, loss: &Loss, logits: TensorId, labels: TensorId) -> TensorId {
        let sums = self.push(loss.stats(), &[logits, labels])[0];
        self.program.mark_output(sums, "sums");
        self.result(CompositeLoss { loss: loss.clone() }, &[sums]);
        let upstream = self.push(Fill { value: 0.5, shape: Shape(vec![1]) }, &[])[0];
        self.result(CompositeLossGrad { loss: loss.clone() }, &[logits, labels, sums, upstream]);
        sums
    }

    /// Normalises a map; returns it and the operands of the normalisation.
    fn normalise(&mut self, y: TensorId, over: Over, affine: bool) -> (TensorId, Vec<TensorId>) {
        let channels = self.program.shape(y).channels();
        let statistics = self.push(NormStats { over, epsilon: 1e-5 }, &[y])[0];
        let mut operands = vec![y, statistics];
        if affine {
            let n = self.program.tensors.len();
            operands.push(self.channels(&format!("scale {n}"), channels));
            operands.push(self.channels(&format!("shift {n}"), channels));
        }
        (self.push(Normalise { affine }, &operands)[0], operands)
    }

    /// Normalises and activates a map; backends may do so while a convolution reads it.
    fn norm_act(&mut self, y: TensorId, affine: bool) -> TensorId {
        let (u, _) = self.normalise(y, Over::Instance, affine);
        self.push(LeakyRelu { slope: SLOPE }, &[u])[0]
    }

    /// A case of convolutions and what stands between them.
    fn maps(self, name: String) -> Case {
        Case { between_convolutions: true, ..Case::new(name, self.program, 0) }
    }

    /// A case of other ops.
    fn case(self, name: String, classes: usize) -> Case {
        Case::new(name, self.program, classes)
    }
}

/// The slope of the leaky ReLUs behind normalisations.
const SLOPE: f32 = 0.01;

/// Extents with one, two, three and seventeen voxels on an axis.
const EXTENTS: [[usize; 3]; 5] = [[4, 6, 8], [3, 17, 5], [2, 2, 2], [1, 9, 17], [5, 3, 31]];

/// Channels that do not fill a block, fill one, or run over.
const CHANNELS: [(usize, usize); 6] = [(16, 32), (33, 15), (3, 48), (20, 1), (1, 33), (15, 3)];

/// First layers (from images of 1 to 5 channels) and heads (to logits), with their gradients.
pub fn rims(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    let usual = EXTENTS.into_iter().enumerate().map(|(i, extent)| (1 + i, windows()[i % 3], extent));
    // The stem of residual networks among others.
    let stem = Window::new([1, 7, 7], [1, 2, 2], [0, 3, 3]);
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
        let weights = w.weights(out, channels, window.kernel);
        w.result(Conv::new(window, false, precision), &[image, weights]);
        let dy = w.features("dy", 2, out, output);
        let grad = ConvWeightGrad { window, groups: 1 };
        w.result(grad, &[image, dy]);
        cases.push(w.maps(format!("first layer {channels}→{out} of {extent:?}, {window:?}, {precision:?}")));
    }
    for (i, extent) in EXTENTS.into_iter().enumerate() {
        let (channels, classes) = (CHANNELS[i % CHANNELS.len()].0, [2, 1, 9, 14, 3][i]);
        let mut w = Writer::new(precision);
        let y = w.features("y", 2, channels, extent);
        let z = w.norm_act(y, i % 3 != 0);
        let weights = w.weights(classes, channels, [1; 3]);
        let bias = w.channels("bias", classes);
        w.result(Conv::new(Window::point(), true, DType::F32), &[z, weights, bias]);
        let dlogits = w.image("dlogits", 2, classes, extent);
        let back = ConvTranspose {
            window: Window::point(),
            groups: 1,
            first_channel: 0,
            channels,
            output: extent,
            dtype: precision,
            bias: false,
        };
        let known = (i % 2 == 0).then(|| w.features("known", 2, channels, extent));
        w.transpose(back, &[dlogits, weights], known);
        let grad = ConvWeightGrad { window: Window::point(), groups: 1 };
        w.result(grad, &[z, dlogits]);
        // The norm sees what fills up blocks, too.
        let sum = w.push(ChannelSum, &[dlogits])[0];
        w.result(GradNorm { loss: false }, &[sum]);
        w.program.mark_output(sum, "sums");
        cases.push(w.maps(format!("head {channels}→{classes} of {extent:?}, {precision:?}")));
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
        let dz = w.features("dz", 2, channels, extent);
        // Groups within a block of sixteen channels, of one channel, across blocks, of all channels; then a batch.
        let [few, many] = [[1, 16], [3, 11], [1, 3], [4, 10], [1, 1], [3, 5]][i];
        for over in [Over::Instance, Over::Group(few), Over::Group(many), Over::Batch] {
            // With an activation and without, each with its gradient.
            let (u, operands) = w.normalise(y, over, affine);
            w.result(LeakyRelu { slope: SLOPE }, &[u]);
            let du = w.push(LeakyReluGrad { slope: SLOPE }, &[dz, u])[0];
            let of_act: Vec<TensorId> = [du].into_iter().chain(operands).collect();
            w.result(NormaliseGrad { over, affine }, &of_act);
            let (u, operands) = w.normalise(y, over, !affine);
            w.program.mark_output(u, format!("normalised {}", w.results));
            let alone: Vec<TensorId> = [dz].into_iter().chain(operands).collect();
            w.result(NormaliseGrad { over, affine: !affine }, &alone);
            w.result(NormStats { over, epsilon: 1e-5 }, &[y]);
        }
        w.result(LeakyRelu { slope: 0.2 }, &[y]);
        w.result(LeakyReluGrad { slope: 0.2 }, &[dz, y]);
        w.result(Add, &[y, dz]);
        w.result(Add, &[y, y]);
        w.result(ChannelSum, &[y]);
        cases.push(w.maps(format!("maps of {channels}×{extent:?}, {precision:?}")));
    }
    for (layer, channels, extent) in
        [(0, 1, [1, 1, 1]), (1, 3, [1, 2, 3]), (2, 33, [17, 3, 5]), (3, 16, [3, 31, 67])]
    {
        let mut w = Writer::new(precision);
        let (x, dy) = (w.features("x", 2, channels, extent), w.features("dy", 2, channels, extent));
        let noise = w.program.input(crate::NOISE, Shape(vec![NOISE]), Kind::Table);
        w.result(Dropout { p: 0.25, layer, whole_channels: false }, &[x, noise]);
        w.result(Dropout { p: 0.0, layer, whole_channels: false }, &[dy, noise]);
        w.result(Dropout { p: 0.5, layer, whole_channels: true }, &[x, noise]);
        w.result(SampleDrop { p: 0.5, layer }, &[x, noise]);
        cases.push(w.maps(format!("dropout of {channels} channels on {extent:?}, {precision:?}")));
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
        w.result(Join, &[sums, sums]);
        cases.push(w.case(format!("losses of {classes} classes on {extent:?}"), classes));
    }
    for (i, channels) in [3, 33, 40_000].into_iter().enumerate() {
        let mut w = Writer::new(DType::F32);
        let shape = Shape(vec![channels]);
        let gradients: Vec<TensorId> = ["g0", "g1"].map(|name| w.channels(name, channels)).to_vec();
        let loss = w.program.input("loss", Shape(vec![1]), Kind::Table);
        let (of_adam, of_sgd) = [
            (NormUse::Unread, NormUse::Unread),
            (NormUse::Clip(0.5), NormUse::Clip(0.5)),
            (NormUse::Guard, NormUse::Clip(0.5)),
        ][i];
        let norm = match i {
            1 => w.push(GradNorm { loss: false }, &gradients)[0],
            _ => w.push(GradNorm { loss: true }, &[&[loss], &gradients[..]].concat())[0],
        };
        w.program.mark_output(norm, "norm");
        let rates = w.program.input("rates", Shape(vec![4]), Kind::Table);
        let mut state = |name: &str| w.program.state(name, shape.clone(), Kind::Channels);
        let (p0, m0, v0) = (state("p0"), state("m0"), state("v0"));
        let (p1, b1, held) = (state("p1"), state("b1"), state("held"));
        let (a0, a1) = (state("a0"), state("a1"));
        let with = |operands: &[TensorId], of: NormUse| -> Vec<TensorId> {
            operands.iter().copied().chain(of.reads().then_some(norm)).collect()
        };
        let rate_factor = [1.0, 0.25, 4.0][i];
        let (beta1, beta2, epsilon, weight_decay) = (0.9, 0.999, 1e-8, 0.01);
        let adam = AdamW {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            coupled: i == 1,
            rate_factor,
            norm: of_adam,
            clear: false,
        };
        w.result(adam, &with(&[p0, gradients[0], m0, v0, rates], of_adam));
        w.result(Ema { decay: 0.875, guarded: of_adam.reads() }, &with(&[a0, p0], of_adam));
        w.result(Accumulate, &[held, gradients[1]]);
        let sgd = Sgd { momentum: 0.99, weight_decay: 3e-5, rate_factor, norm: of_sgd, clear: true };
        w.result(sgd, &with(&[p1, held, b1, rates], of_sgd));
        w.result(Ema { decay: 0.999, guarded: of_sgd.reads() }, &with(&[a1, p1], of_sgd));
        cases.push(w.case(format!("optimizers over {channels} numbers"), 0));
    }
    cases
}

/// Convolutions of all kinds.
pub fn all_convolutions(precision: DType) -> Vec<Case> {
    let mut cases = convolutions(precision);
    cases.extend(grouped(precision));
    cases.extend(depthwise(precision));
    cases.extend(dilated(precision));
    cases.extend(convolutions_of_rows(precision));
    cases.extend(transposed(precision));
    cases.extend(upsampling(precision));
    cases.extend(rims(precision));
    cases
}

/// All other cases that depend on how feature maps are stored.
pub fn all_of_maps(precision: DType) -> Vec<Case> {
    let mut cases = maps(precision);
    cases.extend(max_pools(precision));
    cases.extend(attention_networks(precision));
    cases.extend(losses(precision));
    cases.extend(heads(precision));
    cases.extend(networks(precision));
    cases.extend(resampled(precision));
    cases.extend(tokens(precision));
    cases.extend(unusual(precision));
    cases
}

/// All that remains.
pub fn all_others() -> Vec<Case> {
    let mut cases = rest();
    cases.extend(running());
    cases.extend(zero_classes());
    cases.extend(structures());
    cases.extend(morphology());
    cases.extend(regions());
    cases
}

/// All cases of a precision.
pub fn all(precision: DType) -> Vec<Case> {
    let mut cases = all_convolutions(precision);
    cases.extend(all_of_maps(precision));
    cases.extend(attention_networks(precision));
    if precision == DType::F32 {
        cases.extend(all_others());
    }
    cases
}
