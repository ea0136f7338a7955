//! The gradient of a convolution with respect to its weights.

use serde::{Deserialize, Serialize};

use super::conv::{conv_flops, for_each_tap, infer_sources, inputs_of, planes, weight_shape};
use crate::op::{expect_shape, expect_volume};
use crate::{Array, Cost, GraphError, Kind, Rule, Shape, Signature, TensorInfo, Window};

/// The gradient of a [`Conv`](super::Conv) with respect to its weights.
///
/// Operands: the convolution's sources, then the gradient of its result `[N, O, D', H', W']`. (For a transposed convolution the
/// two change places: its own source is the "result" here.) Result: `[O, ΣCᵢ / groups, kd, kh, kw]`, f32.
///
/// dw\[o,i,k\] = Σ dy\[n,o,p\] · x\[n,g(o) + i,s·p − padding + d·k\], with g as there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvWeightGrad {
    /// Kernel, stride s, padding and dilation d of the convolution.
    pub window: Window,
    /// Groups of channels.
    pub groups: usize,
}

const NAME: &str = "conv_weight_grad";

impl Rule for ConvWeightGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let Some((gradient, sources)) = inputs.split_last() else {
            return Err(GraphError::OperandCount { op: NAME, expected: "2 or more".into(), found: 0 });
        };
        let sources = infer_sources(NAME, sources)?;
        const GRADIENT: &str = "the gradient of the result";
        expect_volume(NAME, GRADIENT, gradient)?;
        let outputs = gradient.shape.channels();
        let spatial = self.window.output(sources.spatial).ok_or_else(|| GraphError::Shape {
            op: NAME,
            operand: "a source",
            found: inputs[0].shape.clone(),
            expected: format!("the kernel {:?} does not fit into it", self.window.kernel),
        })?;
        let expected = Shape::volume(sources.batch, outputs, spatial);
        expect_shape(NAME, GRADIENT, &gradient.shape, &expected)?;
        let shape = weight_shape(NAME, outputs, &sources.channels, &self.window, self.groups)?;
        Ok(vec![Signature::new(shape, Kind::Weights)])
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let strided = &inputs[inputs.len() - 1].shape;
        Cost {
            flops: conv_flops(strided, outputs[0].shape.dim(1), &self.window),
            ..Cost::streaming(inputs, outputs)
        }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (sources, dy) = (&inputs[..inputs.len() - 1], inputs[inputs.len() - 1]);
        let mut dw = Array::zeros(results[0].clone());
        let (batch, outputs) = (dy.shape.batch(), dy.shape.channels());
        let (width, taps) = (dw.shape.dim(1), self.window.taps());
        let (planes, extent) = (planes(sources), sources[0].shape.spatial());
        let channels = planes.len() / batch;
        for_each_tap(&self.window, dy.shape.spatial(), extent, |tap, pairs| {
            for (n, o) in (0..batch).flat_map(|n| (0..outputs).map(move |o| (n, o))) {
                let dy = &dy.data[dy.plane(n, o)..];
                for (i, channel) in inputs_of(o, outputs, channels, self.groups).enumerate() {
                    let x = planes[n * channels + channel];
                    let products = pairs.iter().map(|(place, voxel)| dy[*place] * x[*voxel]);
                    dw.data[(o * width + i) * taps + tap] += products.sum::<f64>();
                }
            }
        });
        vec![dw]
    }
}
