//! Convolution.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{ChannelSum, ConvTranspose, ConvWeightGrad};
use crate::op::{expect_channels, expect_like, expect_volume, expect_volume_dtype, expect_weights, upstream};
use crate::{Array, Cost, DType, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo, Window};

/// Convolution (cross-correlation, as the field calls it) over one or several sources, read as if they stood one behind the
/// other along the channels: a concatenation that never exists.
///
/// Operands: the sources `[N, Cᵢ, D, H, W]`, all of one dtype; weights `[O, ΣCᵢ / groups, kd, kh, kw]`; and where `bias`, `[O]`.
/// Result: `[N, O, D', H', W']` with D' = ⌊(D + 2p − d(k − 1) − 1)/s⌋ + 1.
///
/// y\[n,o,p\] = b\[o\] + Σ w\[o,i,k\] · x\[n,g(o) + i,s·p − padding + d·k\]
///
/// Channels are cut into groups, in order; each output is a sum over the inputs of its own group, whose first is
/// g(o) = ⌊o · groups / O⌋ · C / groups (as `torch.nn.Conv3d` has it; one group is the convolution of all with all, as many
/// groups as channels the depthwise one). More than one group needs a single source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    /// Kernel, stride s, padding and dilation d.
    pub window: Window,
    /// Groups of channels.
    pub groups: usize,
    /// `true` if a bias is added.
    pub bias: bool,
    /// The storage of the result: f32, bf16 or f16.
    pub dtype: DType,
}

impl Conv {
    /// A convolution of all channels with all.
    pub fn new(window: Window, bias: bool, dtype: DType) -> Conv {
        Conv { window, groups: 1, bias, dtype }
    }

    /// The same within groups of channels.
    #[must_use]
    pub fn grouped(self, groups: usize) -> Conv {
        Conv { groups, ..self }
    }

    /// The number of sources among `operands` operands.
    pub fn sources(&self, operands: usize) -> usize {
        operands.saturating_sub(1 + usize::from(self.bias))
    }
}

const NAME: &str = "conv";

/// The common shape of several sources: their batch, extent, and the channels of each.
pub(super) struct Sources {
    pub(super) batch: usize,
    pub(super) spatial: [usize; 3],
    pub(super) channels: Vec<usize>,
}

pub(super) fn infer_sources(op: &'static str, sources: &[&TensorInfo]) -> Result<Sources, GraphError> {
    let Some(first) = sources.first() else {
        return Err(GraphError::OperandCount { op, expected: "at least one source".into(), found: 0 });
    };
    expect_volume(op, "a source", first)?;
    let (batch, spatial) = (first.shape.batch(), first.shape.spatial());
    let mut channels = Vec::with_capacity(sources.len());
    for source in sources {
        let shape = Shape::volume(batch, source.shape.channels(), spatial);
        expect_like(op, "a source", source, &TensorInfo { shape, ..(*first).clone() })?;
        channels.push(source.shape.channels());
    }
    Ok(Sources { batch, spatial, channels })
}

/// The shape of the weights of a convolution, if its channels can be cut into such groups.
pub(super) fn weight_shape(
    op: &'static str,
    outputs: usize,
    sources: &[usize],
    window: &Window,
    groups: usize,
) -> Result<Shape, GraphError> {
    let inputs: usize = sources.iter().sum();
    let even = groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups);
    if !even || (groups > 1 && sources.len() > 1) {
        return Err(GraphError::Groups { op, groups, sources: sources.to_vec(), outputs });
    }
    let [kd, kh, kw] = window.kernel;
    Ok(Shape(vec![outputs, inputs / groups, kd, kh, kw]))
}

/// Operations of a convolution, from the volume on its strided side and the channels of a group on the other.
pub(super) fn conv_flops(strided: &Shape, other_channels: usize, window: &Window) -> u64 {
    (2 * strided.count() as u64).saturating_mul((other_channels * window.taps()) as u64)
}

/// The inputs that an output is a sum over, one after the other.
pub(super) fn inputs_of(output: usize, outputs: usize, inputs: usize, groups: usize) -> Range<usize> {
    let width = inputs / groups;
    let first = output * groups / outputs * width;
    first..first + width
}

impl Rule for Conv {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_volume_dtype(NAME, self.dtype)?;
        let (sources, rest) = inputs.split_at(self.sources(inputs.len()));
        let of_sources = infer_sources(NAME, sources)?;
        let outputs = rest[0].shape.dim(0);
        let expected = weight_shape(NAME, outputs, &of_sources.channels, &self.window, self.groups)?;
        expect_weights(NAME, rest[0], &expected)?;
        if let Some(bias) = rest.get(1) {
            expect_channels(NAME, "the bias", bias, outputs)?;
        }
        let spatial = self.window.output(of_sources.spatial).ok_or_else(|| GraphError::Shape {
            op: NAME,
            operand: "a source",
            found: inputs[0].shape.clone(),
            expected: format!("the kernel {:?} does not fit into it", self.window.kernel),
        })?;
        Ok(vec![Signature::volume(Shape::volume(of_sources.batch, outputs, spatial), self.dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dy) = upstream(tape, node, 0) else { return Ok(()) };
        let (sources, rest) = node.inputs.split_at(self.sources(node.inputs.len()));
        let weights = rest[0];
        if tape.needs(weights) {
            let grad = ConvWeightGrad { window: self.window, groups: self.groups };
            let mut operands = sources.to_vec();
            operands.push(dy);
            let dw = tape.push(grad, &operands)?[0];
            tape.add(weights, dw)?;
        }
        if let Some(bias) = rest.get(1).filter(|bias| tape.needs(**bias)) {
            let db = tape.push(ChannelSum, &[dy])?[0];
            tape.add(*bias, db)?;
        }
        let mut first_channel = 0;
        for source in sources {
            let info = tape.program().tensor(*source);
            let (channels, output, dtype) = (info.shape.channels(), info.shape.spatial(), info.dtype);
            if tape.needs(*source) {
                let grad = ConvTranspose {
                    window: self.window,
                    groups: self.groups,
                    first_channel,
                    channels,
                    output,
                    bias: false,
                    dtype,
                };
                let dx = tape.push(grad, &[dy, weights])?[0];
                tape.add(*source, dx)?;
            }
            first_channel += channels;
        }
        Ok(())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let sources = &inputs[..self.sources(inputs.len())];
        let channels: usize = sources.iter().map(|source| source.shape.channels()).sum();
        Cost {
            flops: conv_flops(&outputs[0].shape, channels / self.groups, &self.window),
            ..Cost::streaming(inputs, outputs)
        }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (sources, rest) = inputs.split_at(self.sources(inputs.len()));
        let mut y = Array::zeros(results[0].clone());
        let (batch, outputs) = (y.shape.batch(), y.shape.channels());
        let (planes, extent) = (planes(sources), sources[0].shape.spatial());
        let channels = planes.len() / batch;
        for_each_tap(&self.window, y.shape.spatial(), extent, |tap, pairs| {
            for (n, o) in (0..batch).flat_map(|n| (0..outputs).map(move |o| (n, o))) {
                let to = y.plane(n, o);
                for (i, channel) in inputs_of(o, outputs, channels, self.groups).enumerate() {
                    let (w, x) = (weight_at(rest[0], o, i, tap), planes[n * channels + channel]);
                    for (place, voxel) in pairs {
                        y.data[to + place] += w * x[*voxel];
                    }
                }
            }
        });
        if let Some(bias) = rest.get(1) {
            let (voxels, channels) = (y.shape.voxels(), y.shape.channels());
            for (place, value) in y.data.iter_mut().enumerate() {
                *value += bias.data[place / voxels % channels];
            }
        }
        vec![y]
    }
}

/// The channels of sources, at least one, that stand one behind the other, sample by sample.
pub(super) fn planes<'a>(sources: &[&'a Array]) -> Vec<&'a [f64]> {
    let batch = sources[0].shape.batch();
    let of_sample = |(n, source): (usize, &&'a Array)| {
        let source = *source;
        (0..source.shape.channels())
            .map(move |channel| &source.data[source.plane(n, channel)..][..source.shape.voxels()])
    };
    (0..batch).flat_map(|n| sources.iter().flat_map(move |source| of_sample((n, source)))).collect()
}

/// The weight of an output, an input of its group and a tap (the place within the kernel).
pub(super) fn weight_at(weights: &Array, output: usize, input: usize, tap: usize) -> f64 {
    let taps = weights.shape.spatial().iter().product::<usize>();
    weights.data[(output * weights.shape.dim(1) + input) * taps + tap]
}

/// Calls `visit(tap, pairs)` for each tap of a convolution, with all pairs of a place in the result and the voxel of the source
/// that meets it there; places whose voxel is in the padding are left out.
pub(super) fn for_each_tap(
    window: &Window,
    output: [usize; 3],
    input: [usize; 3],
    mut visit: impl FnMut(usize, &[(usize, usize)]),
) {
    let mut pairs = Vec::with_capacity(output.iter().product());
    for (tap, (i, j, k)) in grid(window.kernel).enumerate() {
        pairs.clear();
        for (place, (d, h, w)) in grid(output).enumerate() {
            let along = |axis: usize, place: usize, tap: usize| {
                let reached = place * window.stride[axis] + tap * window.dilation[axis];
                let at = reached.checked_sub(window.padding[axis])?;
                (at < input[axis]).then_some(at)
            };
            if let (Some(d), Some(h), Some(w)) = (along(0, d, i), along(1, h, j), along(2, w, k)) {
                pairs.push((place, (d * input[1] + h) * input[2] + w));
            }
        }
        visit(tap, &pairs);
    }
}

/// All places of a box, the last axis fastest.
pub(super) fn grid([d, h, w]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..d).flat_map(move |i| (0..h).flat_map(move |j| (0..w).map(move |k| (i, j, k))))
}
