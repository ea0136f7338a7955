//! The layers of SE-ResNeXt, appended to a program node by node.

use plimsoll_graph::ops::{Add, Conv, Dropout, Gate, GlobalMean, LeakyRelu, MaxPool, Sigmoid, ZeroClass};
use plimsoll_graph::{DType, GraphError, Kind, Program, Shape, TensorId, Window};

use super::super::batch_norm::{EPSILON, batch_norm};
use super::super::builder::NoiseSource;
use super::names::{HEAD, Names};
use super::{Head, SEResNeXt50, StemPool};
use crate::ForwardMode;

/// Groups of the middle convolution of a block.
pub(super) const GROUPS: usize = 32;
/// The factor by which the squeeze divides the features of a block before the excitation.
pub(super) const REDUCTION: usize = 16;
/// Features of the stem.
const STEM: usize = 64;
/// Features between the linear layers of a head of several.
pub(super) const HIDDEN: [usize; 2] = [512, 128];

/// A program to which the network is being appended.
pub(super) struct Layers<'p> {
    program: &'p mut Program,
    mode: ForwardMode,
    names: Names,
    noise: Option<NoiseSource>,
}

/// A convolution without bias and a batch normalisation.
struct ConvNorm<'a> {
    conv: &'a str,
    norm: &'a str,
    features: usize,
    window: Window,
    groups: usize,
}

/// A window over height and width, with padding that keeps an odd kernel's extent.
fn flat(kernel: usize, stride: usize) -> Window {
    Window::same([1, kernel, kernel], [1, stride, stride])
}

impl<'p> Layers<'p> {
    pub(super) fn new(program: &'p mut Program, net: &SEResNeXt50, mode: ForwardMode) -> Layers<'p> {
        let has_dropout = mode.training && net.dropout > 0.0;
        let noise = has_dropout.then(|| NoiseSource::declare(program));
        Layers { program, mode, names: Names::for_stem(net.pool), noise }
    }

    fn weights(&mut self, name: &str, shape: [usize; 5]) -> TensorId {
        self.program.parameter(format!("{name}.weight"), Shape(shape.to_vec()), Kind::Weights)
    }

    /// A convolution and a normalisation, without activation.
    fn conv_norm(&mut self, of: ConvNorm<'_>, map: TensorId) -> Result<TensorId, GraphError> {
        let inputs = self.program.shape(map).channels() / of.groups;
        let [d, h, w] = of.window.kernel;
        let weights = self.weights(of.conv, [of.features, inputs, d, h, w]);
        let conv = Conv::new(of.window, false, self.mode.precision).grouped(of.groups);
        let raw = self.program.push_one(conv, &[map, weights])?;
        self.program.rename(raw, format!("{} raw", of.conv));
        batch_norm(self.program, of.norm, raw, EPSILON, self.mode.training)
    }

    fn relu(&mut self, map: TensorId) -> Result<TensorId, GraphError> {
        self.program.push_one(LeakyRelu { slope: 0.0 }, &[map])
    }

    /// A linear layer with bias, of vectors.
    fn linear(&mut self, name: &str, vectors: TensorId, features: usize) -> Result<TensorId, GraphError> {
        let inputs = self.program.shape(vectors).channels();
        let weights = self.weights(name, [features, inputs, 1, 1, 1]);
        let bias = self.program.parameter(format!("{name}.bias"), Shape(vec![features]), Kind::Channels);
        self.program.push_one(Conv::new(Window::point(), true, DType::F32), &[vectors, weights, bias])
    }

    fn dropout(&mut self, vectors: TensorId, p: f32) -> Result<TensorId, GraphError> {
        let Some(source) = &mut self.noise else { return Ok(vectors) };
        let (layer, noise) = source.next_layer();
        self.program.push_one(Dropout { p, layer, whole_channels: false }, &[vectors, noise])
    }

    /// 7×7 convolution of stride 2, normalisation, ReLU, and a max pool of stride 2.
    pub(super) fn stem(&mut self, image: TensorId, pool: StemPool) -> Result<TensorId, GraphError> {
        let Names { stem: conv, stem_norm: norm, .. } = self.names;
        let y =
            self.conv_norm(ConvNorm { conv, norm, features: STEM, window: flat(7, 2), groups: 1 }, image)?;
        let z = self.relu(y)?;
        self.program.push_one(pool.op(), &[z])
    }

    /// A bottleneck with squeeze-and-excitation before its sum, where `features` are those that come out of it.
    pub(super) fn block(
        &mut self,
        name: &str,
        map: TensorId,
        features: usize,
        stride: usize,
    ) -> Result<TensorId, GraphError> {
        let part = |part: &str| format!("{name}.{part}");
        let convs = [1, 2, 3].map(|i| (part(&format!("conv{i}")), part(&format!("bn{i}"))));
        let [first, second, third] = &convs;
        let of = |(conv, norm): &'_ (String, String)| (conv.clone(), norm.clone());
        let width = features / 2;
        let mut x = map;
        for ((conv, norm), window, groups) in
            [(of(first), Window::point(), 1), (of(second), flat(3, stride), GROUPS)]
        {
            x = self.conv_norm(ConvNorm { conv: &conv, norm: &norm, features: width, window, groups }, x)?;
            x = self.relu(x)?;
        }
        let (conv, norm) = (&third.0, &third.1);
        x = self.conv_norm(ConvNorm { conv, norm, features, window: Window::point(), groups: 1 }, x)?;
        let gated = self.excite(&part(self.names.squeeze), x)?;
        let is_same = stride == 1 && self.program.shape(map).channels() == features;
        let shortcut = match is_same {
            true => map,
            false => {
                let (conv, norm) = (&part("downsample.0"), &part("downsample.1"));
                self.conv_norm(ConvNorm { conv, norm, features, window: flat(1, stride), groups: 1 }, map)?
            }
        };
        let sum = self.program.push_one(Add, &[gated, shortcut])?;
        let z = self.relu(sum)?;
        self.program.rename(z, name);
        Ok(z)
    }

    /// A map times a factor for each channel, which follows from the means of all.
    fn excite(&mut self, name: &str, map: TensorId) -> Result<TensorId, GraphError> {
        let features = self.program.shape(map).channels();
        let mean = self.program.push_one(GlobalMean, &[map])?;
        let hidden = self.linear(&format!("{name}.fc1"), mean, features / REDUCTION)?;
        let hidden = self.relu(hidden)?;
        let logits = self.linear(&format!("{name}.fc2"), hidden, features)?;
        let factors = self.program.push_one(Sigmoid, &[logits])?;
        self.program.push_one(Gate, &[map, factors])
    }

    /// The logits of the last map.
    pub(super) fn head(&mut self, map: TensorId, net: &SEResNeXt50) -> Result<TensorId, GraphError> {
        let mut x = self.program.push_one(GlobalMean, &[map])?;
        x = self.dropout(x, net.dropout)?;
        let logits = if net.single_logit { 1 } else { net.classes };
        let x = match net.head {
            Head::Linear => self.linear(self.names.classifier, x, logits)?,
            Head::Mlp => {
                for (place, features) in HIDDEN.into_iter().enumerate() {
                    x = self.linear(&format!("{HEAD}{}", 4 * place + 1), x, features)?;
                    x = self.relu(x)?;
                    let norm = format!("{HEAD}{}", 4 * place + 3);
                    x = batch_norm(self.program, &norm, x, EPSILON, self.mode.training)?;
                    x = self.dropout(x, net.dropout / 2.0)?;
                }
                self.linear(&format!("{HEAD}9"), x, logits)?
            }
        };
        self.program.rename(x, "logits of the head");
        if net.single_logit { self.program.push_one(ZeroClass, &[x]) } else { Ok(x) }
    }
}

impl StemPool {
    fn op(self) -> MaxPool {
        let window = flat(3, 2);
        match self {
            StemPool::Padded => MaxPool { window, ceil: false },
            StemPool::Ceil => MaxPool { window: Window { padding: [0; 3], ..window }, ceil: true },
        }
    }
}
