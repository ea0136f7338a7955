//! Transposed convolution, which is also the gradient of a convolution with respect to its source.

use serde::{Deserialize, Serialize};

use super::conv::{check_norm, conv_flops, expect_weights, for_each_tap, inputs_of, one_group, weight_at};
use super::{ChannelSum, Conv, ConvWeightGrad, Load, SourceOperands};
use crate::op::{expect_shape, expect_volume, upstream};
use crate::{
    Array, Cost, GraphError, Kind, Node, Recompute, Rule, Shape, Side, Signature, Tape, TensorInfo, Window,
};

/// The transpose of a [`Conv`] as a linear map, from its result to some channels of its sources.
///
/// Operands: a source `[N, O, D', H', W']` with what its load takes; weights `[O, I / groups, kd, kh, kw]`, as of the convolution that
/// this transposes (which is how PyTorch stores `ConvTranspose3d.weight`); where `bias`, `[channels]`; where `accumulate`, a
/// volume like the result, to which the result is added. Result: `[N, channels, D, H, W]`.
///
/// x\[n,i,s·p − padding + k\] += w\[o, first_channel + i, k\] · y\[n,o,p\]
///
/// With groups, x\[n,g(o) + i,…\] += w\[o,i,k\] · y\[n,o,p\] with g as there; all channels are then wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvTranspose {
    /// Kernel, stride and padding of the convolution that this transposes.
    pub window: Window,
    /// Groups of channels.
    #[serde(default = "one_group")]
    pub groups: usize,
    /// How the source is read.
    pub load: Load,
    /// The first of the weights' inputs that is wanted.
    pub first_channel: usize,
    /// How many of the weights' inputs are wanted.
    pub channels: usize,
    /// Extent of the result: with stride, several extents of a convolution's source lead to the same result.
    pub output: [usize; 3],
    /// Where the result lies.
    pub to: Side,
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether the result is added to a volume that is given.
    pub accumulate: bool,
}

const NAME: &str = "conv_transpose";

impl Rule for ConvTranspose {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let rest = 1 + usize::from(self.bias) + usize::from(self.accumulate);
        let (sources, rest) = Load::take_exactly(NAME, &[self.load], inputs, rest)?;
        let source = &sources[0];
        let side = expect_volume(NAME, "the source", source.value)?;
        check_norm(NAME, source)?;
        let shape = &source.value.shape;
        let weights = rest[0];
        let Kind::Weights { sources: of_weights, .. } = &weights.kind else {
            return Err(GraphError::Kind {
                op: NAME,
                operand: "weights",
                found: weights.kind.clone(),
                expected: "weights",
            });
        };
        let outputs =
            expect_weights(NAME, weights, (&self.window, self.groups), of_weights, (self.to, side))?;
        if outputs != shape.channels() || self.window.output(self.output) != Some(shape.spatial()) {
            return Err(GraphError::Shape {
                op: NAME,
                operand: "the source",
                found: shape.clone(),
                expected: format!(
                    "{outputs} channels and an extent that a convolution makes of {:?} are needed",
                    self.output
                ),
            });
        }
        // The wanted channels must be those of whole sources, because backends lay each source out by itself.
        let mut first = 0;
        let whole = of_weights.iter().any(|channels| {
            first += channels;
            self.first_channel + channels == first && *channels == self.channels
        });
        if !whole {
            return Err(GraphError::Shape {
                op: NAME,
                operand: "weights",
                found: weights.shape.clone(),
                expected: format!(
                    "channels {}..{} are not those of one source",
                    self.first_channel,
                    self.first_channel + self.channels
                ),
            });
        }
        if self.bias {
            expect_shape(NAME, "the bias", &rest[1].shape, &Shape(vec![self.channels]))?;
        }
        let result = Shape::volume(shape.batch(), self.channels, self.output);
        if self.accumulate {
            expect_shape(NAME, "the volume added to", &rest[rest.len() - 1].shape, &result)?;
        }
        Ok(vec![Signature::new(result, self.to.into())])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dx) = upstream(tape, node, 0) else { return Ok(()) };
        let (source, weights) = (node.inputs[0], node.inputs[1]);
        let whole = tape.program().shape(weights).dim(1) * self.groups == self.channels;
        if self.load != Load::Plain || self.accumulate || !whole {
            return Err(GraphError::NoGradient { op: NAME, operand: "its source, in this form" });
        }
        let Some(side) = tape.program().tensor(source).kind.side() else { return Ok(()) };
        if tape.needs(weights) {
            let grad = ConvWeightGrad {
                window: self.window,
                groups: self.groups,
                loads: vec![Load::Plain],
                result_load: Load::Plain,
                from: self.to,
                to: side,
            };
            let dw = tape.push(grad, &[dx, source])?[0];
            tape.add(weights, dw)?;
        }
        if self.bias && tape.needs(node.inputs[2]) {
            let db = tape.push(ChannelSum, &[dx])?[0];
            tape.add(node.inputs[2], db)?;
        }
        if tape.needs(source) {
            let conv = Conv::new(self.window, 1, false, side).grouped(self.groups);
            let dy = tape.push(conv, &[dx, weights])?[0];
            tape.add(source, dy)?;
        }
        Ok(())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        Cost {
            flops: conv_flops(&inputs[0].shape, self.channels / self.groups, &self.window),
            ..Cost::streaming(inputs, outputs)
        }
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        match self.accumulate {
            true => vec![(0, self.load.operands() + 1 + usize::from(self.bias))],
            false => Vec::new(),
        }
    }

    fn recompute(&self) -> Recompute {
        Recompute::Dear
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let Some((source, rest)) = self.load.take(inputs) else { return Vec::new() };
        let source = SourceOperands::loaded(&source);
        let mut x = match self.accumulate {
            true => rest[rest.len() - 1].clone(),
            false => Array::zeros(results[0].clone()),
        };
        let (extent, outputs) = (x.shape.spatial(), source.shape.channels());
        for_each_tap(&self.window, &source.shape, |n, o, place, at, tap| {
            let mut offset = 0;
            for (at, extent) in at.into_iter().zip(extent) {
                match usize::try_from(at) {
                    Ok(at) if at < extent => offset = offset * extent + at,
                    _ => return,
                }
            }
            for (i, channel) in inputs_of(o, outputs, self.channels, self.groups).enumerate() {
                let w = weight_at(rest[0], o, self.first_channel + i, tap);
                let to = x.plane(n, channel) + offset;
                x.data[to] += w * source.data[place];
            }
        });
        if self.bias {
            let voxels = x.shape.voxels();
            for (place, value) in x.data.iter_mut().enumerate() {
                *value += rest[1].data[place / voxels % self.channels];
            }
        }
        vec![x]
    }
}
