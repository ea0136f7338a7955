//! Small networks with their gradients, as differentiation writes them: what fused kernels meet in training.

use plimsoll_graph::ops::{
    Add, AvgPool, CompositeLoss, Conv, ConvTranspose, DownsampleLabels, Dropout, Gate, GlobalMean, LeakyRelu,
    Loss, MaxPool, NOISE, NormStats, Normalise, Over, Sigmoid, Upsample2, WeightedSum,
};
use plimsoll_graph::{DType, Kind, Program, Role, Shape, TensorId, Window, differentiate};

use super::Writer;
use crate::Case;

/// Networks with several heads: deep supervision of a small U-Net, two heads on one map, residual blocks of all
/// kinds, and squeeze-and-excitation.
pub fn networks(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (affine, extent, classes) in [(true, [4, 6, 10], 3), (false, [3, 8, 18], 2)] {
        cases.push(unet(precision, affine, extent, classes));
        cases.push(two_heads(precision, affine, extent, classes));
    }
    for (over, affine, extent) in [
        (Over::Instance, true, [2, 6, 10]),
        (Over::Group(4), false, [4, 4, 18]),
        (Over::Batch, true, [1, 8, 6]),
    ] {
        cases.push(residual(precision, over, affine, extent));
    }
    cases.push(squeezed(precision, true, [1, 8, 7]));
    cases
}

struct Network {
    w: Writer,
    learned: Vec<TensorId>,
}

impl Network {
    fn weights(&mut self, shape: [usize; 5]) -> TensorId {
        let name = format!("weights {}", self.learned.len());
        self.learn(name, Shape(shape.to_vec()), Kind::Weights)
    }

    fn bias(&mut self, channels: usize) -> TensorId {
        let name = format!("bias {}", self.learned.len());
        self.learn(name, Shape(vec![channels]), Kind::Channels)
    }

    fn learn(&mut self, name: String, shape: Shape, kind: Kind) -> TensorId {
        let id = self.w.program.parameter(name, shape, kind);
        self.learned.push(id);
        id
    }

    fn conv(&mut self, window: Window, sources: &[TensorId], out: usize) -> TensorId {
        let inputs = sources.iter().map(|id| self.w.program.shape(*id).channels()).sum();
        let [d, h, w] = window.kernel;
        let weights = self.weights([out, inputs, d, h, w]);
        let operands: Vec<TensorId> = sources.iter().copied().chain([weights]).collect();
        self.w.push(Conv::new(window, false, self.w.precision), &operands)[0]
    }

    /// A head on a map: its loss.
    fn head(&mut self, map: TensorId, labels: TensorId, classes: usize, loss: &Loss) -> TensorId {
        let channels = self.w.program.shape(map).channels();
        let (weights, bias) = (self.weights([classes, channels, 1, 1, 1]), self.bias(classes));
        let logits = self.w.push(Conv::new(Window::point(), true, DType::F32), &[map, weights, bias])[0];
        let sums = self.w.push(loss.stats(), &[logits, labels])[0];
        self.w.push(CompositeLoss { loss: loss.clone() }, &[sums])[0]
    }

    /// The weighted sum of losses and all gradients are compared.
    fn case(mut self, name: String, losses: &[TensorId], classes: usize) -> Case {
        let weights = vec![0.75, 0.25];
        let loss = self.w.push(WeightedSum { weights }, losses)[0];
        let program: &mut Program = &mut self.w.program;
        let image = program.with_role(Role::Input).find(|id| program.tensor(*id).name == "image");
        let wanted: Vec<TensorId> = self.learned.iter().copied().chain(image).collect();
        let gradients = differentiate(program, loss, 1.0, &wanted);
        let gradients = gradients.unwrap_or_else(|error| panic!("a case is wrong: {error}"));
        for (id, gradient) in wanted.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                let name = format!("gradient of {}", program.tensor(*id).name);
                program.mark_output(gradient, name);
            }
        }
        program.mark_output(loss, "loss");
        // Gradients cancel where probabilities are all 0 or 1.
        Case { may_be_large: false, depth: 8.0, ..Case::new(name, self.w.program, classes) }
    }
}

fn unet(precision: DType, affine: bool, extent: [usize; 3], classes: usize) -> Case {
    let mut n = Network { w: Writer::new(precision), learned: Vec::new() };
    let image = n.w.image("image", 2, 2, extent);
    let labels = n.w.labels("labels", 2, extent);
    let noise = n.w.program.input(crate::NOISE, Shape(vec![NOISE]), Kind::Table);
    let y0 = n.conv(Window::same([3; 3], [1; 3]), &[image], 17);
    let z0 = n.w.norm_act(y0, affine);
    let down = Window::same([1, 3, 3], [1, 2, 2]);
    let y1 = n.conv(down, &[z0], 20);
    let dropped = n.w.push(Dropout { p: 0.25, layer: 1, whole_channels: false }, &[y1, noise])[0];
    let z1 = n.w.norm_act(dropped, affine);
    let (weights, bias) = (n.weights([20, 17, 1, 2, 2]), n.bias(17));
    let window = Window::blocks([1, 2, 2]);
    let up = ConvTranspose {
        window,
        groups: 1,
        first_channel: 0,
        channels: 17,
        output: extent,
        bias: true,
        dtype: precision,
    };
    let up = n.w.push(up, &[z1, weights, bias])[0];
    let y2 = n.conv(Window::same([3; 3], [1; 3]), &[up, z0], 5);
    let z2 = n.w.norm_act(y2, affine);
    let loss = Loss::default();
    let coarse = n.w.program.shape(z1).spatial();
    let small = n.w.push(DownsampleLabels { output: coarse }, &[labels])[0];
    let losses = [n.head(z2, labels, classes, &loss), n.head(z1, small, classes, &loss)];
    n.case(format!("U-Net on {extent:?}, affine: {affine}, {precision:?}"), &losses, classes)
}

impl Network {
    fn normalise(&mut self, y: TensorId, over: Over, affine: bool) -> TensorId {
        let channels = self.w.program.shape(y).channels();
        let mut operands = vec![y, self.w.push(NormStats { over, epsilon: 1e-5 }, &[y])[0]];
        if affine {
            operands.extend([self.bias(channels), self.bias(channels)]);
        }
        self.w.push(Normalise { affine }, &operands)[0]
    }

    fn act(&mut self, map: TensorId, slope: f32) -> TensorId {
        self.w.push(LeakyRelu { slope }, &[map])[0]
    }
}

/// Blocks that end in lrelu(normalised + x), in lrelu(normalised + normalised) behind a pool, and in x + convolution; then up
/// again by interpolation, added to the map of that level.
fn residual(precision: DType, over: Over, affine: bool, extent: [usize; 3]) -> Case {
    let mut n = Network { w: Writer::new(precision), learned: Vec::new() };
    let image = n.w.image("image", 2, 2, extent);
    let labels = n.w.labels("labels", 2, extent);
    let same = Window::same([3; 3], [1; 3]);
    let y = n.conv(same, &[image], 20);
    let x = n.w.norm_act(y, affine);
    // An identity as the shortcut.
    let y = n.conv(same, &[x], 20);
    let u = n.normalise(y, over, affine);
    let sum = n.w.push(Add, &[u, x])[0];
    let skip = n.act(sum, 0.5);
    // A pool, a point and a normalisation as the shortcut, to more channels.
    let down = [1, 2, 2];
    let y = n.conv(Window::same([1, 3, 3], down), &[skip], 32);
    let u = n.normalise(y, over, affine);
    let pooled = n.w.push(AvgPool { window: down }, &[skip])[0];
    let r = n.conv(Window::point(), &[pooled], 32);
    let r = n.normalise(r, over, !affine);
    let sum = n.w.push(Add, &[u, r])[0];
    let x = n.act(sum, 0.5);
    // Normalisation and activation first; nothing behind the sum.
    let u = n.normalise(x, over, affine);
    let z = n.act(u, 0.25);
    let y = n.conv(same, &[z], 32);
    let low = n.w.push(Add, &[x, y])[0];
    let y = n.conv(Window::point(), &[low], 20);
    let up = n.w.push(Upsample2 { axes: [false, true, true] }, &[y])[0];
    let high = n.w.push(Add, &[skip, up])[0];
    let loss = Loss::default();
    let coarse = n.w.program.shape(low).spatial();
    let small = n.w.push(DownsampleLabels { output: coarse }, &[labels])[0];
    // Over all channels of a sample, so that a shift of one of them counts.
    let [high, low] = [high, low].map(|map| {
        let u = n.normalise(map, Over::Group(1), affine);
        n.act(u, 0.25)
    });
    let losses = [n.head(high, labels, 3, &loss), n.head(low, small, 3, &loss)];
    // Twice as deep as the others, and with kinks that bf16 may cross.
    let name = format!("residual blocks over {over:?} on {extent:?}, {precision:?}");
    Case { depth: 24.0, ..n.case(name, &losses, 3) }
}

/// Two blocks with squeeze-and-excitation behind a max pool, the second with a shortcut that is normalised, and a head of the whole
/// image.
fn squeezed(precision: DType, affine: bool, extent: [usize; 3]) -> Case {
    let mut n = Network { w: Writer::new(precision), learned: Vec::new() };
    let image = n.w.image("image", 2, 3, extent);
    let labels = n.w.labels("labels", 2, [1; 3]);
    let window = Window::new([1, 3, 3], [1, 2, 2], [0, 1, 1]);
    let y = n.conv(Window::same([1, 3, 3], [1; 3]), &[image], 20);
    let x = n.w.norm_act(y, affine);
    let mut map = n.w.push(MaxPool { window, ceil: false }, &[x])[0];
    for features in [20, 33] {
        let y = n.conv(Window::point(), &[map], features);
        let u = n.normalise(y, Over::Batch, affine);
        let mean = n.w.push(GlobalMean, &[u])[0];
        let (weights, bias) = (n.weights([features, features, 1, 1, 1]), n.bias(features));
        let s = n.w.push(Conv::new(Window::point(), true, DType::F32), &[mean, weights, bias])[0];
        let s = n.w.push(Sigmoid, &[s])[0];
        let gated = n.w.push(Gate, &[u, s])[0];
        let shortcut = if features == 20 {
            map
        } else {
            let y = n.conv(Window::point(), &[map], features);
            n.normalise(y, Over::Batch, !affine)
        };
        let sum = n.w.push(Add, &[gated, shortcut])[0];
        map = n.act(sum, 0.25);
    }
    let vector = n.w.push(GlobalMean, &[map])[0];
    let loss = Loss::default();
    let losses = [n.head(vector, labels, 3, &loss), n.head(vector, labels, 2, &loss)];
    n.case(format!("squeeze-and-excitation on {extent:?}, affine: {affine}, {precision:?}"), &losses, 3)
}

fn two_heads(precision: DType, affine: bool, extent: [usize; 3], classes: usize) -> Case {
    let mut n = Network { w: Writer::new(precision), learned: Vec::new() };
    let image = n.w.image("image", 1, 3, extent);
    let labels = n.w.labels("labels", 1, extent);
    let y = n.conv(Window::same([3, 1, 3], [1; 3]), &[image], 33);
    let z = n.w.norm_act(y, affine);
    let loss = Loss { ignore: Some(1), ..Loss::default() };
    let losses = [n.head(z, labels, classes, &loss), n.head(z, labels, classes + 1, &Loss::default())];
    n.case(format!("two heads on {extent:?}, affine: {affine}, {precision:?}"), &losses, classes + 1)
}
