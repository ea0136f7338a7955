//! The mean of each channel over its voxels.

use serde::{Deserialize, Serialize};

use crate::op::{expect_f32_volume, expect_operands, expect_volume, expect_volume_dtype, upstream};
use crate::{Array, DType, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The mean of each channel of each sample over its voxels, as `torch.nn.AdaptiveAvgPool3d(1)`. Operand: a volume
/// `[N, C, D, H, W]`. Result: a vector per sample, `[N, C, 1, 1, 1]`, f32 whatever the operand's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlobalMean;

/// The gradient of [`GlobalMean`]: its share of the result's gradient for each voxel. Operand: the gradient of the result. Result:
/// the gradient of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlobalMeanGrad {
    /// Extent of the operand of the [`GlobalMean`].
    pub input: [usize; 3],
    /// Its dtype.
    pub dtype: DType,
}

const NAME: &str = "global_mean";
const GRAD: &str = "global_mean_grad";

/// The shape of a vector for each sample of a volume.
pub(super) fn vectors_of(volume: &Shape) -> Shape {
    Shape::volume(volume.batch(), volume.channels(), [1; 3])
}

/// Checks that an operand is an f32 vector for each of some samples.
pub(super) fn expect_vectors(
    op: &'static str,
    operand: &'static str,
    tensor: &TensorInfo,
) -> Result<(), GraphError> {
    expect_f32_volume(op, operand, tensor)?;
    crate::op::expect_shape(op, operand, &tensor.shape, &vectors_of(&tensor.shape))
}

impl Rule for GlobalMean {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        Ok(vec![Signature::volume(vectors_of(&inputs[0].shape), DType::F32)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        let operand = tape.program().tensor(node.inputs[0]);
        let grad = GlobalMeanGrad { input: operand.shape.spatial(), dtype: operand.dtype };
        let gradient = tape.push(grad, &[gradient])?[0];
        tape.add(node.inputs[0], gradient)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let voxels = inputs[0].shape.voxels();
        vec![Array::from_fn(results[0].clone(), |plane| {
            inputs[0].data[plane * voxels..][..voxels].iter().sum::<f64>() / voxels as f64
        })]
    }
}

impl Rule for GlobalMeanGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_volume_dtype(GRAD, self.dtype)?;
        expect_vectors(GRAD, "the gradient", inputs[0])?;
        let shape = &inputs[0].shape;
        Ok(vec![Signature::volume(Shape::volume(shape.batch(), shape.channels(), self.input), self.dtype)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let voxels = results[0].voxels();
        vec![Array::from_fn(results[0].clone(), |i| inputs[0].data[i / voxels] / voxels as f64)]
    }
}
