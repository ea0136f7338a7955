//! Blocks that networks are built of, appended to a program node by node.

use plimsoll_graph::ops::{Conv, ConvTranspose, Dropout, LeakyRelu, NOISE, NormStats, Normalise};
use plimsoll_graph::{DType, GraphError, Kind, Program, Shape, TensorId, Window};

use crate::names;

/// A program to which a network is being appended.
pub(crate) struct NetBuilder<'p> {
    program: &'p mut Program,
    /// How feature maps are stored; logits are f32.
    precision: DType,
    dropout: Option<DropoutSource>,
}

/// What dropout layers are made from. They are numbered in the order in which they are built, so that each draws for itself.
struct DropoutSource {
    p: f32,
    noise: TensorId,
    layers: u32,
}

/// The names of a convolution and of the normalisation behind it.
pub(crate) struct ConvNames {
    pub(crate) conv: String,
    pub(crate) norm: String,
}

/// A convolution with padding, so that only its stride changes extents.
#[derive(Clone, Copy)]
pub(crate) struct ConvShape {
    pub(crate) features: usize,
    pub(crate) kernel: [usize; 3],
    pub(crate) stride: [usize; 3],
}

/// Instance normalisation and leaky ReLU.
#[derive(Clone, Copy)]
pub(crate) struct NormActOptions {
    /// Added to the variance.
    pub(crate) epsilon: f32,
    /// Of the leaky ReLU.
    pub(crate) slope: f32,
    /// Whether the normalisation has a scale and a shift.
    pub(crate) affine: bool,
}

impl<'p> NetBuilder<'p> {
    /// Appends to `program` a network whose feature maps are stored as `precision`; with a probability of `dropout` above 0 after
    /// an input for its noise.
    pub(crate) fn new(program: &'p mut Program, precision: DType, dropout: f32) -> NetBuilder<'p> {
        let dropout = (dropout > 0.0).then(|| DropoutSource {
            p: dropout,
            noise: program.input(names::NOISE, Shape(vec![NOISE]), Kind::Table),
            layers: 0,
        });
        NetBuilder { program, precision, dropout }
    }

    /// Declares the weights of a convolution from so many inputs, those of all sources.
    pub(crate) fn weights(
        &mut self,
        name: &str,
        outputs: usize,
        inputs: usize,
        kernel: [usize; 3],
    ) -> TensorId {
        let [d, h, w] = kernel;
        let shape = Shape(vec![outputs, inputs, d, h, w]);
        self.program.parameter(format!("{name}.weight"), shape, Kind::Weights)
    }

    /// Declares a parameter with a number for each channel.
    pub(crate) fn channels(&mut self, name: String, channels: usize) -> TensorId {
        self.program.parameter(name, Shape(vec![channels]), Kind::Channels)
    }

    /// A convolution over concatenated sources, without bias, and dropout where there is any.
    pub(crate) fn conv(
        &mut self,
        name: &str,
        sources: &[TensorId],
        shape: ConvShape,
    ) -> Result<TensorId, GraphError> {
        let inputs = sources.iter().map(|id| self.program.shape(*id).channels()).sum();
        let weights = self.weights(name, shape.features, inputs, shape.kernel);
        let mut operands = sources.to_vec();
        operands.push(weights);
        let window = Window::same(shape.kernel, shape.stride);
        let y = self.program.push_one(Conv::new(window, false, self.precision), &operands)?;
        self.dropout(y)
    }

    fn dropout(&mut self, map: TensorId) -> Result<TensorId, GraphError> {
        let Some(source) = &mut self.dropout else { return Ok(map) };
        let dropout = Dropout { p: source.p, layer: source.layers };
        source.layers += 1;
        let noise = source.noise;
        self.program.push_one(dropout, &[map, noise])
    }

    /// Instance normalisation and leaky ReLU.
    pub(crate) fn norm_act(
        &mut self,
        name: &str,
        map: TensorId,
        options: NormActOptions,
    ) -> Result<TensorId, GraphError> {
        let NormActOptions { epsilon, slope, affine } = options;
        let statistics = self.program.push_one(NormStats { epsilon }, &[map])?;
        let mut operands = vec![map, statistics];
        if affine {
            let features = self.program.shape(map).channels();
            operands.push(self.channels(format!("{name}.weight"), features));
            operands.push(self.channels(format!("{name}.bias"), features));
        }
        let u = self.program.push_one(Normalise { affine }, &operands)?;
        let z = self.program.push_one(LeakyRelu { slope }, &[u])?;
        self.program.rename(u, format!("{name} normalised"));
        self.program.rename(z, name);
        Ok(z)
    }

    /// A convolution over concatenated sources, dropout where there is any, instance normalisation and leaky ReLU.
    pub(crate) fn conv_norm_act(
        &mut self,
        names: &ConvNames,
        sources: &[TensorId],
        shape: ConvShape,
        options: NormActOptions,
    ) -> Result<TensorId, GraphError> {
        let y = self.conv(&names.conv, sources, shape)?;
        let z = self.norm_act(&names.norm, y, options)?;
        self.program.rename(y, format!("{} raw", names.conv));
        Ok(z)
    }

    /// A transposed convolution with kernel = stride, which multiplies extents by it.
    pub(crate) fn up(
        &mut self,
        name: &str,
        map: TensorId,
        features: usize,
        stride: [usize; 3],
        bias: bool,
    ) -> Result<TensorId, GraphError> {
        let shape = self.program.shape(map).clone();
        let weights = self.weights(name, shape.channels(), features, stride);
        let mut operands = vec![map, weights];
        if bias {
            operands.push(self.channels(format!("{name}.bias"), features));
        }
        let spatial = shape.spatial();
        let up = ConvTranspose {
            window: Window::blocks(stride),
            groups: 1,
            first_channel: 0,
            channels: features,
            output: [0, 1, 2].map(|axis| spatial[axis] * stride[axis]),
            bias,
            dtype: self.precision,
        };
        let up = self.program.push_one(up, &operands)?;
        self.program.rename(up, name);
        Ok(up)
    }

    /// The logits of a map: a 1×1×1 convolution with bias.
    pub(crate) fn head(&mut self, name: &str, map: TensorId, classes: usize) -> Result<TensorId, GraphError> {
        let inputs = self.program.shape(map).channels();
        let weights = self.weights(name, classes, inputs, [1; 3]);
        let bias = self.channels(format!("{name}.bias"), classes);
        let conv = Conv::new(Window::point(), true, DType::F32);
        let logits = self.program.push_one(conv, &[map, weights, bias])?;
        self.program.rename(logits, format!("{name} logits"));
        Ok(logits)
    }
}
