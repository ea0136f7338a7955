//! Transposed convolution, which is also the gradient of a convolution with respect to its source.

use serde::{Deserialize, Serialize};

use super::conv::{conv_flops, for_each_tap, inputs_of, weight_at, weight_shape};
use super::{ChannelSum, Conv, ConvWeightGrad};
use crate::op::{
    expect_channels, expect_operands, expect_volume, expect_volume_dtype, expect_weights, upstream,
};
use crate::{Array, Cost, DType, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo, Window};

/// The transpose of a [`Conv`] as a linear map, from its result to some channels of its sources.
///
/// Operands: a source `[N, O, D', H', W']`; weights `[O, I / groups, kd, kh, kw]`, as of the convolution that this transposes
/// (which is how PyTorch stores `ConvTranspose3d.weight`); where `bias`, `[channels]`. Result: `[N, channels, D, H, W]`.
///
/// x\[n,i,s·p − padding + d·k\] += w\[o, first_channel + i, k\] · y\[n,o,p\]
///
/// With groups, x\[n,g(o) + i,…\] += w\[o,i,k\] · y\[n,o,p\] with g as there; all channels are then wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvTranspose {
    /// Kernel, stride s, padding and dilation d of the convolution that this transposes.
    pub window: Window,
    /// Groups of channels.
    pub groups: usize,
    /// The first of the weights' inputs that is wanted.
    pub first_channel: usize,
    /// The number of the weights' inputs that are computed.
    pub channels: usize,
    /// Extent of the result: with stride, several extents of a convolution's source lead to the same result.
    pub output: [usize; 3],
    /// `true` if a bias is added.
    pub bias: bool,
    /// The storage of the result: f32, bf16 or f16.
    pub dtype: DType,
}

const NAME: &str = "conv_transpose";

impl Rule for ConvTranspose {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2 + usize::from(self.bias))?;
        expect_volume_dtype(NAME, self.dtype)?;
        let (source, weights) = (inputs[0], inputs[1]);
        expect_volume(NAME, "the source", source)?;
        let shape = &source.shape;
        let all = weights.shape.dim(1).saturating_mul(self.groups);
        let outputs = shape.channels();
        expect_weights(NAME, weights, &weight_shape(NAME, outputs, &[all], &self.window, self.groups)?)?;
        if self.window.output(self.output) != Some(shape.spatial()) {
            return Err(GraphError::Shape {
                op: NAME,
                operand: "the source",
                found: shape.clone(),
                expected: format!("an extent that a convolution makes of {:?} is needed", self.output),
            });
        }
        let end = self.first_channel.checked_add(self.channels).filter(|end| *end <= all);
        if end.is_none() || self.channels == 0 || (self.groups > 1 && self.channels != all) {
            return Err(GraphError::Attribute {
                op: NAME,
                attribute: "channels",
                found: format!("{} from {} on", self.channels, self.first_channel),
                expected: format!("the weights have {all} in {} groups", self.groups),
            });
        }
        if self.bias {
            expect_channels(NAME, "the bias", inputs[2], self.channels)?;
        }
        Ok(vec![Signature::volume(Shape::volume(shape.batch(), self.channels, self.output), self.dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dx) = upstream(tape, node, 0) else { return Ok(()) };
        let (source, weights) = (node.inputs[0], node.inputs[1]);
        if tape.program().shape(weights).dim(1) * self.groups != self.channels {
            return Err(GraphError::NoGradient { op: NAME, operand: "its source, of some channels only" });
        }
        let dtype = tape.program().tensor(source).dtype;
        if tape.needs(weights) {
            let grad = ConvWeightGrad { window: self.window, groups: self.groups };
            let dw = tape.push(grad, &[dx, source])?[0];
            tape.add(weights, dw)?;
        }
        if self.bias && tape.needs(node.inputs[2]) {
            let db = tape.push(ChannelSum, &[dx])?[0];
            tape.add(node.inputs[2], db)?;
        }
        if tape.needs(source) {
            let conv = Conv { window: self.window, groups: self.groups, bias: false, dtype };
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

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (source, weights) = (inputs[0], inputs[1]);
        let mut x = Array::zeros(results[0].clone());
        let (extent, outputs) = (x.shape.spatial(), source.shape.channels());
        for_each_tap(&self.window, source.shape.spatial(), extent, |tap, pairs| {
            for (n, o) in (0..x.shape.batch()).flat_map(|n| (0..outputs).map(move |o| (n, o))) {
                let y = &source.data[source.plane(n, o)..];
                for (i, channel) in inputs_of(o, outputs, self.channels, self.groups).enumerate() {
                    let (w, to) = (weight_at(weights, o, self.first_channel + i, tap), x.plane(n, channel));
                    for (place, voxel) in pairs {
                        x.data[to + voxel] += w * y[*place];
                    }
                }
            }
        });
        if let Some(bias) = inputs.get(2) {
            let voxels = x.shape.voxels();
            for (place, value) in x.data.iter_mut().enumerate() {
                *value += bias.data[place / voxels % self.channels];
            }
        }
        vec![x]
    }
}
