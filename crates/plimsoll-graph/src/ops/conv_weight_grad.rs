//! The gradient of a convolution with respect to its weights.

use serde::{Deserialize, Serialize};

use super::conv::{
    all_channels, check_norm, conv_flops, for_each_tap, infer_sources, inputs_of, one_group, voxel_of,
    weight_shape,
};
use super::{Load, SourceOperands};
use crate::op::{expect_shape, expect_volume};
use crate::{Array, Cost, GraphError, Kind, Recompute, Rule, Shape, Side, Signature, TensorInfo, Window};

/// The gradient of a [`Conv`](super::Conv) with respect to its weights.
///
/// Operands: the convolution's sources with what their loads take, then the gradient of its result `[N, O, D', H', W']` with
/// what `result_load` takes. (For a transposed convolution the two change places: its own source is the "result" here, and
/// may be one that is normalised on the way in.) Result: `[O, ΣCᵢ / groups, kd, kh, kw]`.
///
/// dw\[o,i,k\] = Σ dy\[n,o,p\] · x\[n,g(o) + i,s·p − padding + k\], with g as there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvWeightGrad {
    /// Kernel, stride and padding of the convolution.
    pub window: Window,
    /// Groups of channels.
    #[serde(default = "one_group")]
    pub groups: usize,
    /// How each source is read.
    pub loads: Vec<Load>,
    /// How the gradient of the result is read.
    pub result_load: Load,
    /// Where the convolution's sources lie.
    pub from: Side,
    /// Where its result lies.
    pub to: Side,
}

const NAME: &str = "conv_weight_grad";

impl Rule for ConvWeightGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let (sources, rest) = Load::take_exactly(NAME, &self.loads, inputs, self.result_load.operands())?;
        let sources = infer_sources(NAME, &sources)?;
        let (result, _) = Load::take_exactly(NAME, &[self.result_load], rest, 0)?;
        let result = &result[0];
        let to = expect_volume(NAME, "the gradient of the result", result.value)?;
        check_norm(NAME, result)?;
        let outputs = result.value.shape.channels();
        let spatial = self.window.output(sources.spatial).unwrap_or_default();
        let expected = Shape::volume(sources.batch, outputs, spatial);
        expect_shape(NAME, "the gradient of the result", &result.value.shape, &expected)?;
        if (sources.side, to) != (self.from, self.to) {
            return Err(GraphError::Kind {
                op: NAME,
                operand: "a volume",
                found: inputs[0].kind.clone(),
                expected: "on the side that the op says",
            });
        }
        let shape = weight_shape(NAME, outputs, &sources.channels, &self.window, self.groups)?;
        let kind = Kind::Weights { sources: sources.channels, from: self.from, to: self.to };
        Ok(vec![Signature::new(shape, kind)])
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let strided = Load::take_all(&self.loads, inputs).map(|(_, rest)| &rest[0].shape);
        Cost {
            flops: strided.map_or(0, |shape| conv_flops(shape, outputs[0].shape.dim(1), &self.window)),
            ..Cost::streaming(inputs, outputs)
        }
    }

    fn recompute(&self) -> Recompute {
        Recompute::Dear
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let Some((sources, rest)) = Load::take_all(&self.loads, inputs) else { return Vec::new() };
        let Some((result, _)) = self.result_load.take(rest) else { return Vec::new() };
        let loaded: Vec<Array> = sources.iter().map(SourceOperands::loaded).collect();
        let dy = result.loaded();
        let mut dw = Array::zeros(results[0].clone());
        let (inputs, outputs) = (all_channels(&loaded), dy.shape.channels());
        let (width, taps) = (dw.shape.dim(1), self.window.taps());
        for_each_tap(&self.window, &dy.shape, |n, o, place, at, tap| {
            for (i, channel) in inputs_of(o, outputs, inputs, self.groups).enumerate() {
                dw.data[(o * width + i) * taps + tap] += dy.data[place] * voxel_of(&loaded, n, channel, at);
            }
        });
        vec![dw]
    }
}
