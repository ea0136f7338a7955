//! Leaky ReLU by itself, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{add_pointwise_gradient, infer_pointwise, infer_pointwise_gradient};
use crate::{Array, GraphError, Node, Op, Rule, Shape, Signature, Tape, TensorId, TensorInfo};

/// z = x where x > 0, else slope · x. Operand and result: a volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeakyRelu {
    /// Below zero.
    pub slope: f32,
}

/// The gradient of [`LeakyRelu`]. Operands: the gradient of its result, and its operand, or where the slope is not negative its result:
/// both are positive together. Result: the gradient of its operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeakyReluGrad {
    /// Below zero.
    pub slope: f32,
}

const NAME: &str = "leaky_relu";
const GRAD: &str = "leaky_relu_grad";

impl Rule for LeakyRelu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_pointwise(NAME, inputs)
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let x = node.inputs[0];
        // With the result the operand need not be held. What is made by a normalisation need not be held either way: it is recomputed
        // from the value that it is computed from.
        let known = if self.slope >= 0.0 && !is_normalised(tape, x) { node.outputs[0] } else { x };
        add_pointwise_gradient(tape, node, LeakyReluGrad { slope: self.slope }, known)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let slope = f64::from(self.slope);
        vec![Array::from_fn(results[0].clone(), |i| leaky(inputs[0].data[i], slope))]
    }
}

impl Rule for LeakyReluGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_pointwise_gradient(GRAD, "the operand", inputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let slope = f64::from(self.slope);
        vec![Array::from_fn(results[0].clone(), |i| {
            inputs[0].data[i] * leaky_slope(inputs[1].data[i], slope)
        })]
    }
}

/// Returns `true` if a normalisation makes a tensor, or one of the summands of the sum that makes it.
fn is_normalised(tape: &Tape<'_>, tensor: TensorId) -> bool {
    let is_norm = |id: &TensorId| tape.maker(*id).is_some_and(|maker| matches!(maker.op, Op::Normalise(_)));
    let is_of_norm = |maker: &Node| matches!(maker.op, Op::Add(_)) && maker.inputs.iter().any(is_norm);
    is_norm(&tensor) || tape.maker(tensor).is_some_and(is_of_norm)
}

/// The leaky ReLU of a number.
fn leaky(x: f64, slope: f64) -> f64 {
    x * leaky_slope(x, slope)
}

/// Its derivative; at zero that from below, as PyTorch has it.
fn leaky_slope(x: f64, slope: f64) -> f64 {
    if x > 0.0 { 1.0 } else { slope }
}
