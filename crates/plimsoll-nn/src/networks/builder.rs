//! Blocks that networks are built of, appended to a program node by node.

use plimsoll_graph::ops::{
    Add, AvgPool, AvgPoolGrad, Conv, ConvTranspose, Dropout, LeakyRelu, NOISE, NormStats, Normalise, Over,
    SampleDrop, Subpixel, TokenNorm, Upsample2,
};
use plimsoll_graph::{DType, GraphError, Kind, Op, Program, Shape, TensorId, Window};

use super::batch_norm::batch_norm;
use crate::names;

/// A program to which a network is being appended.
pub(crate) struct NetBuilder<'p> {
    program: &'p mut Program,
    /// The storage type of feature maps; logits are f32.
    precision: DType,
    /// The probability with which an element of a convolution's result is dropped.
    dropout: f32,
    /// `true` if dropout is of whole channels.
    whole_channels: bool,
    noise: Option<NoiseSource>,
    /// `true` if it is a training pass, in which batches are normalised with their own statistics.
    training: bool,
}

/// The source of the dropout layers' random numbers. Layers are numbered in the order in which they are built, so that
/// each draws its own.
pub(crate) struct NoiseSource {
    table: TensorId,
    layers: u32,
}

impl NoiseSource {
    /// Declares the input of a program's noise.
    pub(crate) fn declare(program: &mut Program) -> NoiseSource {
        let table = program.input(names::NOISE, Shape(vec![NOISE]), Kind::Table);
        NoiseSource { table, layers: 0 }
    }

    /// The number of the next layer, and the noise.
    pub(crate) fn next_layer(&mut self) -> (u32, TensorId) {
        self.layers += 1;
        (self.layers - 1, self.table)
    }
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
    pub(crate) window: Window,
}

impl ConvShape {
    /// Padding (k − 1) / 2.
    pub(crate) fn same(features: usize, kernel: [usize; 3], stride: [usize; 3]) -> ConvShape {
        ConvShape { features, window: Window::same(kernel, stride) }
    }

    /// A 1×1×1 convolution.
    pub(crate) fn point(features: usize) -> ConvShape {
        ConvShape { features, window: Window::point() }
    }
}

/// A transposed convolution.
struct Transposition {
    features: usize,
    groups: usize,
    window: Window,
    bias: bool,
    /// The extent of the result.
    output: [usize; 3],
}

/// The statistics that a map is normalised with.
#[derive(Clone, Copy)]
pub(crate) enum Statistics {
    /// Its own, of the values that share them.
    Own(Over),
    /// The statistics of its batch while training, which running statistics follow; running statistics otherwise.
    Batch,
}

/// Normalisation and leaky ReLU.
#[derive(Clone, Copy)]
pub(crate) struct NormActOptions {
    /// The statistics to normalise with.
    pub(crate) statistics: Statistics,
    /// Added to the variance.
    pub(crate) epsilon: f32,
    /// The slope of the leaky ReLU.
    pub(crate) slope: f32,
    /// `true` if the normalisation has a scale and a shift.
    pub(crate) affine: bool,
    /// `true` if the convolution before it has a bias. Statistics of a map itself cancel it, running statistics do not.
    pub(crate) conv_bias: bool,
}

impl<'p> NetBuilder<'p> {
    /// Appends to `program` a network whose feature maps are stored as `precision`; with a probability of `dropout` above 0 after
    /// an input for its noise.
    pub(crate) fn new(program: &'p mut Program, precision: DType, dropout: f32) -> NetBuilder<'p> {
        let mut builder =
            NetBuilder { program, precision, dropout, whole_channels: false, noise: None, training: false };
        if dropout > 0.0 {
            builder.add_noise();
        }
        builder
    }

    /// Declares the input from which dropout of any kind is made.
    pub(crate) fn add_noise(&mut self) {
        self.noise = Some(NoiseSource::declare(self.program));
    }

    /// The number of the next dropout layer, and the noise that it is made from; none where there is no noise.
    pub(crate) fn next_layer(&mut self) -> Option<(u32, TensorId)> {
        self.noise.as_mut().map(NoiseSource::next_layer)
    }

    /// The program so far.
    pub(crate) fn program(&self) -> &Program {
        self.program
    }

    /// Appends a node and gives its first result, which is returned, a name.
    pub(crate) fn push(
        &mut self,
        name: &str,
        op: impl Into<Op>,
        operands: &[TensorId],
    ) -> Result<TensorId, GraphError> {
        let first = self.program.push(op, operands)?[0];
        self.program.rename(first, name);
        Ok(first)
    }

    /// Returns the storage type of feature maps.
    pub(crate) fn precision(&self) -> DType {
        self.precision
    }

    /// Declares a learned table.
    pub(crate) fn table(&mut self, name: String, shape: [usize; 2]) -> TensorId {
        self.program.parameter(name, Shape(shape.to_vec()), Kind::Table)
    }

    /// The same, for a training pass.
    pub(crate) fn for_training(mut self, training: bool) -> NetBuilder<'p> {
        self.training = training;
        self
    }

    /// The same, with dropout of whole channels.
    pub(crate) fn dropping_channels(mut self) -> NetBuilder<'p> {
        self.whole_channels = true;
        self
    }

    /// Declares the weights of a convolution from this number of inputs, all sources together.
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

    /// A convolution over concatenated sources, with a bias or without, and dropout where there is any.
    pub(crate) fn conv(
        &mut self,
        name: &str,
        sources: &[TensorId],
        shape: ConvShape,
        bias: bool,
    ) -> Result<TensorId, GraphError> {
        let y = self.bare_conv(name, sources, shape, bias)?;
        self.dropout(y, self.dropout)
    }

    /// A convolution over concatenated sources, with a bias or without, and without dropout.
    pub(crate) fn bare_conv(
        &mut self,
        name: &str,
        sources: &[TensorId],
        shape: ConvShape,
        bias: bool,
    ) -> Result<TensorId, GraphError> {
        let inputs = sources.iter().map(|id| self.program.shape(*id).channels()).sum();
        let weights = self.weights(name, shape.features, inputs, shape.window.kernel);
        let mut operands = sources.to_vec();
        operands.push(weights);
        if bias {
            operands.push(self.channels(format!("{name}.bias"), shape.features));
        }
        self.program.push_one(Conv::new(shape.window, bias, self.precision), &operands)
    }

    /// Elements, or whole channels, dropped with a probability, where there is noise to choose them.
    pub(crate) fn dropout(&mut self, map: TensorId, p: f32) -> Result<TensorId, GraphError> {
        match if p > 0.0 { self.next_layer() } else { None } {
            Some((layer, noise)) => {
                let dropout = Dropout { p, layer, whole_channels: self.whole_channels };
                self.program.push_one(dropout, &[map, noise])
            }
            None => Ok(map),
        }
    }

    /// Samples dropped with a probability, where there is noise to choose them.
    pub(crate) fn sample_drop(&mut self, map: TensorId, p: f32) -> Result<TensorId, GraphError> {
        match if p > 0.0 { self.next_layer() } else { None } {
            Some((layer, noise)) => self.program.push_one(SampleDrop { p, layer }, &[map, noise]),
            None => Ok(map),
        }
    }

    /// A linear layer over the channels of each token: a 1×1×1 convolution.
    pub(crate) fn linear(
        &mut self,
        name: &str,
        map: TensorId,
        features: usize,
        bias: bool,
    ) -> Result<TensorId, GraphError> {
        let shape = ConvShape::point(features);
        let tokens = self.bare_conv(name, &[map], shape, bias)?;
        self.program.rename(tokens, name);
        Ok(tokens)
    }

    /// Layer normalisation of tokens, with scale and shift under a name, or without.
    pub(crate) fn token_norm(
        &mut self,
        map: TensorId,
        epsilon: f32,
        affine: Option<&str>,
    ) -> Result<TensorId, GraphError> {
        let mut operands = vec![map];
        if let Some(name) = affine {
            let features = self.program.shape(map).channels();
            operands.extend(["weight", "bias"].map(|part| self.channels(format!("{name}.{part}"), features)));
        }
        let of = self.program.tensor(map).name.clone();
        let name = affine.map_or(format!("{of} normalised"), str::to_string);
        self.push(&name, TokenNorm { epsilon, affine: affine.is_some() }, &operands)
    }

    /// Normalisation.
    pub(crate) fn norm(
        &mut self,
        name: &str,
        map: TensorId,
        options: NormActOptions,
    ) -> Result<TensorId, GraphError> {
        let NormActOptions { statistics, epsilon, affine, .. } = options;
        let over = match statistics {
            Statistics::Own(over) => over,
            Statistics::Batch => return batch_norm(self.program, name, map, epsilon, self.training),
        };
        let statistics = self.program.push_one(NormStats { over, epsilon }, &[map])?;
        let mut operands = vec![map, statistics];
        if affine {
            let features = self.program.shape(map).channels();
            operands.push(self.channels(format!("{name}.weight"), features));
            operands.push(self.channels(format!("{name}.bias"), features));
        }
        let u = self.program.push_one(Normalise { affine }, &operands)?;
        self.program.rename(u, format!("{name} normalised"));
        Ok(u)
    }

    /// Normalisation and leaky ReLU.
    pub(crate) fn norm_act(
        &mut self,
        name: &str,
        map: TensorId,
        options: NormActOptions,
    ) -> Result<TensorId, GraphError> {
        let u = self.norm(name, map, options)?;
        let z = self.program.push_one(LeakyRelu { slope: options.slope }, &[u])?;
        self.program.rename(z, name);
        Ok(z)
    }

    /// The sum of two maps; what comes second may be computed in the same pass as the sum.
    pub(crate) fn add(&mut self, first: TensorId, second: TensorId) -> Result<TensorId, GraphError> {
        self.program.push_one(Add, &[first, second])
    }

    /// The leaky ReLU of a sum.
    pub(crate) fn add_act(
        &mut self,
        name: &str,
        first: TensorId,
        second: TensorId,
        slope: f32,
    ) -> Result<TensorId, GraphError> {
        let sum = self.add(first, second)?;
        let z = self.program.push_one(LeakyRelu { slope }, &[sum])?;
        self.program.rename(z, name);
        Ok(z)
    }

    /// Means over windows.
    pub(crate) fn avg_pool(&mut self, map: TensorId, window: [usize; 3]) -> Result<TensorId, GraphError> {
        self.program.push_one(AvgPool { window }, &[map])
    }

    /// Interpolation by the nearest voxel to the extent times a window, whose extents are 1 or 2.
    pub(crate) fn nearest(&mut self, map: TensorId, window: [usize; 3]) -> Result<TensorId, GraphError> {
        // The gradient of a mean gives each voxel of a window its share. Doubled once for each axis before, the share is the whole;
        // powers of two do not round.
        let mut shares = map;
        for _ in window.iter().filter(|extent| **extent == 2) {
            shares = self.add(shares, shares)?;
        }
        let spatial = self.program.shape(map).spatial();
        let input = [0, 1, 2].map(|axis| spatial[axis] * window[axis]);
        match window {
            [1, 1, 1] => Ok(map),
            window => self.program.push_one(AvgPoolGrad { window, input }, &[shares]),
        }
    }

    /// Linear interpolation to twice the extent along some axes.
    pub(crate) fn interpolate(&mut self, map: TensorId, axes: [bool; 3]) -> Result<TensorId, GraphError> {
        self.program.push_one(Upsample2 { axes }, &[map])
    }

    /// A 3×3×3 convolution with a channel for each voxel of a grid that is twice as fine along some axes, then those voxels, smoothed.
    pub(crate) fn subpixel(
        &mut self,
        name: &str,
        map: TensorId,
        features: usize,
        axes: [bool; 3],
        bias: bool,
    ) -> Result<TensorId, GraphError> {
        let spread = Subpixel { axes };
        let kernel = axes.map(|doubled| if doubled { 3 } else { 1 });
        let shape = ConvShape::same(features * spread.parts(), kernel, [1; 3]);
        let parts = self.bare_conv(name, &[map], shape, bias)?;
        self.program.push_one(spread, &[parts])
    }

    /// A convolution over concatenated sources, with a bias or without, dropout where there is any, normalisation and leaky ReLU.
    pub(crate) fn conv_norm_act(
        &mut self,
        names: &ConvNames,
        sources: &[TensorId],
        shape: ConvShape,
        options: NormActOptions,
    ) -> Result<TensorId, GraphError> {
        let y = self.conv(&names.conv, sources, shape, options.conv_bias)?;
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
        self.transposed(name, map, features, Window::blocks(stride), bias)
    }

    /// A transposed convolution that multiplies extents by its stride.
    pub(crate) fn transposed(
        &mut self,
        name: &str,
        map: TensorId,
        features: usize,
        window: Window,
        bias: bool,
    ) -> Result<TensorId, GraphError> {
        let spatial = self.program.shape(map).spatial();
        let output = [0, 1, 2].map(|axis| spatial[axis] * window.stride[axis]);
        self.transposition(name, map, Transposition { features, groups: 1, window, bias, output })
    }

    /// A convolution of each channel by itself, without a bias.
    pub(crate) fn depthwise(
        &mut self,
        name: &str,
        map: TensorId,
        window: Window,
    ) -> Result<TensorId, GraphError> {
        let channels = self.program.shape(map).channels();
        let weights = self.weights(name, channels, 1, window.kernel);
        let conv = Conv::new(window, false, self.precision).grouped(channels);
        self.push(name, conv, &[map, weights])
    }

    /// The transpose of such a convolution, to the least extent that it leads to.
    pub(crate) fn depthwise_transposed(
        &mut self,
        name: &str,
        map: TensorId,
        window: Window,
    ) -> Result<TensorId, GraphError> {
        let channels = self.program.shape(map).channels();
        let output = self.least_output(map, window)?;
        let of = Transposition { features: channels, groups: channels, window, bias: false, output };
        self.transposition(name, map, of)
    }

    /// A transposed convolution with bias, to the least extent that it leads to.
    pub(crate) fn transposed_to_least(
        &mut self,
        name: &str,
        map: TensorId,
        features: usize,
        window: Window,
    ) -> Result<TensorId, GraphError> {
        let output = self.least_output(map, window)?;
        self.transposition(name, map, Transposition { features, groups: 1, window, bias: true, output })
    }

    /// The least extent that a transposed convolution of a map leads to.
    fn least_output(&self, map: TensorId, window: Window) -> Result<[usize; 3], GraphError> {
        let shape = self.program.shape(map);
        window.transposed_output(shape.spatial()).ok_or_else(|| GraphError::Shape {
            op: "conv_transpose",
            operand: "the source",
            found: shape.clone(),
            expected: format!("the kernel {:?} leads to no voxel", window.kernel),
        })
    }

    fn transposition(
        &mut self,
        name: &str,
        map: TensorId,
        Transposition { features, groups, window, bias, output }: Transposition,
    ) -> Result<TensorId, GraphError> {
        let inputs = self.program.shape(map).channels();
        let weights = self.weights(name, inputs, features / groups, window.kernel);
        let mut operands = vec![map, weights];
        if bias {
            operands.push(self.channels(format!("{name}.bias"), features));
        }
        let up = ConvTranspose {
            window,
            groups,
            first_channel: 0,
            channels: features,
            output,
            bias,
            dtype: self.precision,
        };
        self.push(name, up, &operands)
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
