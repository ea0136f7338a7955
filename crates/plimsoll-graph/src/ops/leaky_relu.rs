//! Leaky ReLU by itself, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{expect_like, expect_operands, expect_volume, upstream};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = x where x > 0, else slope · x. Operand and result: a volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeakyRelu {
    /// Below zero.
    pub slope: f32,
}

/// The gradient of [`LeakyRelu`]. Operands: the gradient of its result, and its operand. Result: the gradient of its operand.
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
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        if let Some(dz) = upstream(tape, node, 0).filter(|_| tape.needs(node.inputs[0])) {
            let dx = tape.push(LeakyReluGrad { slope: self.slope }, &[dz, node.inputs[0]])?[0];
            tape.add(node.inputs[0], dx)?;
        }
        Ok(())
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
        expect_operands(GRAD, inputs.len(), 2)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        expect_like(GRAD, "the operand", inputs[1], inputs[0])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let slope = f64::from(self.slope);
        vec![Array::from_fn(results[0].clone(), |i| {
            inputs[0].data[i] * leaky_slope(inputs[1].data[i], slope)
        })]
    }
}

/// The leaky ReLU of a number.
fn leaky(x: f64, slope: f64) -> f64 {
    x * leaky_slope(x, slope)
}

/// Its derivative; at zero that from below, as PyTorch has it.
fn leaky_slope(x: f64, slope: f64) -> f64 {
    if x > 0.0 { 1.0 } else { slope }
}
