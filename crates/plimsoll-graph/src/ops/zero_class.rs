//! Two classes of one logit.

use serde::{Deserialize, Serialize};

use crate::op::{expect_f32_volume, expect_operands, expect_shape, upstream};
use crate::{Array, DType, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The logits (0, x) of two classes, of one logit x: the softmax of them is (1 − σ(x), σ(x)), so that their cross-entropy is
/// `torch.nn.BCEWithLogitsLoss` of x. Operand: an f32 volume `[N, 1, D, H, W]`. Result: `[N, 2, D, H, W]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZeroClass;

/// The gradient of [`ZeroClass`]: the second channel's. Operand: the gradient of its result. Result: the gradient of its
/// operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZeroClassGrad;

const NAME: &str = "zero_class";
const GRAD: &str = "zero_class_grad";

/// Checks that there is one operand, with this number of channels, and returns its shape with another number.
fn infer(op: &'static str, inputs: &[&TensorInfo], from: usize, to: usize) -> Result<Vec<Signature>, GraphError> {
    expect_operands(op, inputs.len(), 1)?;
    expect_f32_volume(op, "the operand", inputs[0])?;
    let shape = &inputs[0].shape;
    expect_shape(op, "the operand", shape, &Shape::volume(shape.batch(), from, shape.spatial()))?;
    Ok(vec![Signature::volume(Shape::volume(shape.batch(), to, shape.spatial()), DType::F32)])
}

impl Rule for ZeroClass {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer(NAME, inputs, 1, 2)
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        let dx = tape.push(ZeroClassGrad, &[gradient])?[0];
        tape.add(node.inputs[0], dx)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let voxels = inputs[0].shape.voxels();
        vec![Array::from_fn(results[0].clone(), |i| match i / voxels % 2 {
            0 => 0.0,
            _ => inputs[0].data[i / voxels / 2 * voxels + i % voxels],
        })]
    }
}

impl Rule for ZeroClassGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer(GRAD, inputs, 2, 1)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let voxels = results[0].voxels();
        vec![Array::from_fn(results[0].clone(), |i| {
            inputs[0].data[(2 * (i / voxels) + 1) * voxels + i % voxels]
        })]
    }
}
