//! Convolution.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{ChannelSum, ConvTranspose, ConvWeightGrad, Load, SourceOperands};
use crate::op::{expect_kind, expect_shape, expect_volume, upstream};
use crate::{
    Array, Cost, GraphError, Kind, Node, Recompute, Rule, Shape, Side, Signature, Tape, TensorInfo, Window,
};

/// Convolution (cross-correlation, as the field calls it) over one or several sources, read as if they stood one behind the
/// other along the channels: a concatenation that never exists.
///
/// Operands: the sources `[N, Cᵢ, D, H, W]` with what their loads take, weights `[O, ΣCᵢ / groups, kd, kh, kw]`, and where
/// `bias`, `[O]`. Result: `[N, O, D', H', W']` with D' = ⌊(D + 2p − k)/s⌋ + 1.
///
/// y\[n,o,p\] = b\[o\] + Σ w\[o,i,k\] · x\[n,g(o) + i,s·p − padding + k\]
///
/// Channels are cut into groups, in order; each output is a sum over the inputs of its own group, whose first is
/// g(o) = ⌊o · groups / O⌋ · C / groups (as `torch.nn.Conv3d` has it; one group is the convolution of all with all, as many
/// groups as channels the depthwise one). More than one group needs a single source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    /// Kernel, stride and padding.
    pub window: Window,
    /// Groups of channels.
    #[serde(default = "one_group")]
    pub groups: usize,
    /// How each source is read.
    pub loads: Vec<Load>,
    /// Whether a bias is added.
    pub bias: bool,
    /// Where the result lies.
    pub to: Side,
}

impl Conv {
    /// A convolution of plainly read sources, all channels with all.
    pub fn new(window: Window, sources: usize, bias: bool, to: Side) -> Conv {
        Conv { window, groups: 1, loads: vec![Load::Plain; sources], bias, to }
    }

    /// The same within groups of channels.
    #[must_use]
    pub fn grouped(self, groups: usize) -> Conv {
        Conv { groups, ..self }
    }
}

/// What a program means that says nothing about groups.
pub(super) fn one_group() -> usize {
    1
}

const NAME: &str = "conv";

/// The common shape of several sources: their side, batch, extent, and the channels of each.
pub(super) struct Sources {
    pub(super) side: Side,
    pub(super) batch: usize,
    pub(super) spatial: [usize; 3],
    pub(super) channels: Vec<usize>,
}

pub(super) fn infer_sources(
    op: &'static str,
    sources: &[SourceOperands<&TensorInfo>],
) -> Result<Sources, GraphError> {
    let Some(first) = sources.first() else {
        return Err(GraphError::OperandCount { op, expected: "at least one source".into(), found: 0 });
    };
    let side = expect_volume(op, "a source", first.value)?;
    let (batch, spatial) = (first.value.shape.batch(), first.value.shape.spatial());
    let mut channels = Vec::with_capacity(sources.len());
    for source in sources {
        expect_kind(op, "a source", source.value, |kind| *kind == side.into(), "like the first")?;
        let shape = &source.value.shape;
        expect_shape(op, "a source", shape, &Shape::volume(batch, shape.channels(), spatial))?;
        check_norm(op, source)?;
        channels.push(shape.channels());
    }
    Ok(Sources { side, batch, spatial, channels })
}

/// Checks the operands with which a source is normalised on the way in.
pub(super) fn check_norm(op: &'static str, source: &SourceOperands<&TensorInfo>) -> Result<(), GraphError> {
    let shape = &source.value.shape;
    if let Some(statistics) = source.statistics {
        let expected = Shape(vec![shape.batch(), shape.channels(), 2]);
        expect_shape(op, "the statistics", &statistics.shape, &expected)?;
    }
    if let Some((scale, shift)) = source.affine {
        expect_shape(op, "the scale", &scale.shape, &Shape(vec![shape.channels()]))?;
        expect_shape(op, "the shift", &shift.shape, &Shape(vec![shape.channels()]))?;
    }
    Ok(())
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

/// Checks a weight operand and returns its number of outputs.
pub(super) fn expect_weights(
    op: &'static str,
    weights: &TensorInfo,
    (window, groups): (&Window, usize),
    sources: &[usize],
    sides: (Side, Side),
) -> Result<usize, GraphError> {
    let expected = Kind::Weights { sources: sources.to_vec(), from: sides.0, to: sides.1 };
    expect_kind(op, "weights", weights, |kind| *kind == expected, "weights for these sources and sides")?;
    let outputs = weights.shape.dim(0);
    expect_shape(op, "weights", &weights.shape, &weight_shape(op, outputs, sources, window, groups)?)?;
    Ok(outputs)
}

/// Operations of a convolution, from the volume on its strided side and the channels of a group on the other.
pub(super) fn conv_flops(strided: &Shape, other_channels: usize, window: &Window) -> u64 {
    2 * strided.count() as u64 * other_channels as u64 * window.taps() as u64
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
        let (sources, rest) = Load::take_exactly(NAME, &self.loads, inputs, 1 + usize::from(self.bias))?;
        let sources = infer_sources(NAME, &sources)?;
        let outputs = expect_weights(
            NAME,
            rest[0],
            (&self.window, self.groups),
            &sources.channels,
            (sources.side, self.to),
        )?;
        if let Some(bias) = rest.get(1) {
            expect_shape(NAME, "the bias", &bias.shape, &Shape(vec![outputs]))?;
        }
        let spatial = self.window.output(sources.spatial).ok_or_else(|| GraphError::Shape {
            op: NAME,
            operand: "a source",
            found: inputs[0].shape.clone(),
            expected: format!("the kernel {:?} does not fit into it", self.window.kernel),
        })?;
        Ok(vec![Signature::new(Shape::volume(sources.batch, outputs, spatial), self.to.into())])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dy) = upstream(tape, node, 0) else { return Ok(()) };
        if self.loads.iter().any(|load| *load != Load::Plain) {
            return Err(GraphError::NoGradient { op: NAME, operand: "a source that it normalises" });
        }
        let (sources, rest) = node.inputs.split_at(self.loads.len());
        let weights = rest[0];
        if tape.needs(weights) {
            let Kind::Weights { from, .. } = tape.program().tensor(weights).kind else {
                return Err(GraphError::NoGradient { op: NAME, operand: "weights" });
            };
            let grad = ConvWeightGrad {
                window: self.window,
                groups: self.groups,
                loads: self.loads.clone(),
                result_load: Load::Plain,
                from,
                to: self.to,
            };
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
            let (channels, spatial) = (info.shape.channels(), info.shape.spatial());
            let side = info.kind.side();
            if let (true, Some(to)) = (tape.needs(*source), side) {
                let known = tape.gradient_of(*source);
                let grad = ConvTranspose {
                    window: self.window,
                    groups: self.groups,
                    load: Load::Plain,
                    first_channel,
                    channels,
                    output: spatial,
                    to,
                    bias: false,
                    accumulate: known.is_some(),
                };
                let mut operands = vec![dy, weights];
                operands.extend(known);
                let dx = tape.push(grad, &operands)?[0];
                tape.replace(*source, dx);
            }
            first_channel += channels;
        }
        Ok(())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let channels = Load::take_all(&self.loads, inputs)
            .map_or(0, |(sources, _)| sources.iter().map(|source| source.value.shape.channels()).sum());
        Cost {
            flops: conv_flops(&outputs[0].shape, channels / self.groups, &self.window),
            ..Cost::streaming(inputs, outputs)
        }
    }

    fn recompute(&self) -> Recompute {
        Recompute::Dear
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let Some((sources, rest)) = Load::take_all(&self.loads, inputs) else { return Vec::new() };
        let loaded: Vec<Array> = sources.iter().map(SourceOperands::loaded).collect();
        let mut y = Array::zeros(results[0].clone());
        let (inputs, outputs) = (all_channels(&loaded), results[0].channels());
        for_each_tap(&self.window, &results[0], |n, o, place, at, tap| {
            for (i, channel) in inputs_of(o, outputs, inputs, self.groups).enumerate() {
                y.data[place] += weight_at(rest[0], o, i, tap) * voxel_of(&loaded, n, channel, at);
            }
        });
        if let Some(bias) = rest.get(1) {
            let voxels = y.shape.voxels();
            let channels = y.shape.channels();
            for (place, value) in y.data.iter_mut().enumerate() {
                *value += bias.data[place / voxels % channels];
            }
        }
        vec![y]
    }
}

/// Channels of all sources.
pub(super) fn all_channels(sources: &[Array]) -> usize {
    sources.iter().map(|source| source.shape.channels()).sum()
}

/// A voxel of sources that stand one behind the other along the channels.
pub(super) fn voxel_of(sources: &[Array], sample: usize, mut channel: usize, at: [isize; 3]) -> f64 {
    for source in sources {
        if channel < source.shape.channels() {
            return source.voxel(sample, channel, at);
        }
        channel -= source.shape.channels();
    }
    0.0
}

/// The weight of an output, an input of its group and a tap (the place within the kernel).
pub(super) fn weight_at(weights: &Array, output: usize, input: usize, tap: usize) -> f64 {
    let taps = weights.shape.spatial().iter().product::<usize>();
    weights.data[(output * weights.shape.dim(1) + input) * taps + tap]
}

/// Calls `visit(sample, output channel, output place, input voxel, tap)` for everything that meets in a convolution.
pub(super) fn for_each_tap(
    window: &Window,
    output: &Shape,
    mut visit: impl FnMut(usize, usize, usize, [isize; 3], usize),
) {
    let [od, oh, ow] = output.spatial();
    let [kd, kh, kw] = window.kernel;
    let mut place = 0;
    for (n, o) in (0..output.batch()).flat_map(|n| (0..output.channels()).map(move |o| (n, o))) {
        for (d, h, w) in grid([od, oh, ow]) {
            for (tap, (i, j, k)) in grid([kd, kh, kw]).enumerate() {
                let at = [(d, i), (h, j), (w, k)];
                let mut voxel = [0; 3];
                for (axis, (position, tap)) in at.into_iter().enumerate() {
                    voxel[axis] =
                        (position * window.stride[axis] + tap) as isize - window.padding[axis] as isize;
                }
                visit(n, o, place, voxel, tap);
            }
            place += 1;
        }
    }
}

/// All places of a box, the last axis fastest.
pub(super) fn grid([d, h, w]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..d).flat_map(move |i| (0..h).flat_map(move |j| (0..w).map(move |k| (i, j, k))))
}
