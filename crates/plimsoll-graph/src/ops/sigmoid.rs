//! The logistic function, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{add_pointwise_gradient, infer_pointwise, infer_pointwise_gradient};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// s = 1 / (1 + e⁻ˣ). Operand and result: a volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sigmoid;

/// The gradient of [`Sigmoid`], g · s · (1 − s). Operands: the gradient g of its result, and its result s. Result: the gradient of
/// its operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SigmoidGrad;

const NAME: &str = "sigmoid";
const GRAD: &str = "sigmoid_grad";

impl Rule for Sigmoid {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_pointwise(NAME, inputs)
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        add_pointwise_gradient(tape, node, SigmoidGrad, node.outputs[0])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| 1.0 / (1.0 + (-inputs[0].data[i]).exp()))]
    }
}

impl Rule for SigmoidGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_pointwise_gradient(GRAD, "the result", inputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| {
            let s = inputs[1].data[i];
            inputs[0].data[i] * s * (1.0 - s)
        })]
    }
}
