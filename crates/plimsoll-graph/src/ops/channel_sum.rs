//! Sum over samples and voxels.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_volume};
use crate::{Array, GraphError, Kind, Rule, Shape, Signature, TensorInfo};

/// The sum of each channel over samples and voxels, in f32: the gradient of a bias. Operand: `[N, C, D, H, W]`. Result: `[C]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelSum;

const NAME: &str = "channel_sum";

impl Rule for ChannelSum {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        Ok(vec![Signature::new(Shape(vec![inputs[0].shape.channels()]), Kind::Channels)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut sum = Array::zeros(results[0].clone());
        let (voxels, channels) = (inputs[0].shape.voxels(), inputs[0].shape.channels());
        for (place, value) in inputs[0].data.iter().enumerate() {
            sum.data[place / voxels % channels] += value;
        }
        vec![sum]
    }
}
