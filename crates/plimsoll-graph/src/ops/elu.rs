//! The exponential linear unit, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{add_pointwise_gradient, infer_pointwise, infer_pointwise_gradient};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = x where x > 0, else eˣ − 1 (Clevert et al. 2015, arXiv:1511.07289, with α = 1; `torch.nn.ELU()`). Operand and result: a volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Elu;

/// The gradient of [`Elu`], 1 where its result z > 0, else z + 1. Operands: the gradient of its result, and its result. Result: the gradient of
/// its operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EluGrad;

const NAME: &str = "elu";
const GRAD: &str = "elu_grad";

impl Rule for Elu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_pointwise(NAME, inputs)
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        add_pointwise_gradient(tape, node, EluGrad, node.outputs[0])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| {
            let x = inputs[0].data[i];
            if x > 0.0 { x } else { x.exp_m1() }
        })]
    }
}

impl Rule for EluGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_pointwise_gradient(GRAD, "the result", inputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| {
            let (dz, z) = (inputs[0].data[i], inputs[1].data[i]);
            if z > 0.0 { dz } else { dz * (z + 1.0) }
        })]
    }
}
