//! Small networks with their gradients, as differentiation writes them: what fused kernels meet in training.

use plimsoll_graph::ops::{
    CompositeLoss, Conv, ConvTranspose, DownsampleLabels, Dropout, Loss, NOISE, WeightedSum,
};
use plimsoll_graph::{DType, Kind, Program, Role, Shape, TensorId, Window, differentiate};

use super::Writer;
use crate::Case;

/// Networks with several heads: deep supervision of a small U-Net, and two heads on one map.
pub fn networks(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (affine, extent, classes) in [(true, [4, 6, 10], 3), (false, [3, 8, 18], 2)] {
        cases.push(unet(precision, affine, extent, classes));
        cases.push(two_heads(precision, affine, extent, classes));
    }
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
    let dropped = n.w.push(Dropout { p: 0.25, layer: 1 }, &[y1, noise])[0];
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
