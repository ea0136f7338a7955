//! Values weighted by a gate with the sigmoid linear unit, and the gradients.

use serde::{Deserialize, Serialize};

use crate::op::{expect_like, expect_operands, expect_volume, upstream};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = g σ(g) v, with σ the logistic function: the product of a gated linear unit with the sigmoid linear unit (Shazeer 2020, "GLU
/// variants improve transformer", arXiv:2002.05202; timm's `SwiGLU`). Operands: the gate g and the values v, volumes of one shape
/// and dtype. Result: like them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwiGlu;

/// The gradients of [`SwiGlu`], dg = dz v σ(g) (1 + g (1 − σ(g))) and dv = dz g σ(g). Operands: the gradient dz of its result, then its
/// operands. Results: the gradients of the gate and of the values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwiGluGrad;

const NAME: &str = "swiglu";
const GRAD: &str = "swiglu_grad";

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Rule for SwiGlu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_volume(NAME, "the gate", inputs[0])?;
        expect_like(NAME, "the values", inputs[1], inputs[0])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let gradients = tape.push(SwiGluGrad, &[dz, node.inputs[0], node.inputs[1]])?;
        for (operand, gradient) in node.inputs.iter().zip(gradients) {
            if tape.needs(*operand) {
                tape.add(*operand, gradient)?;
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| {
            let (gate, value) = (inputs[0].data[i], inputs[1].data[i]);
            gate * logistic(gate) * value
        })]
    }
}

impl Rule for SwiGluGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 3)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        expect_like(GRAD, "the gate", inputs[1], inputs[0])?;
        expect_like(GRAD, "the values", inputs[2], inputs[0])?;
        Ok(vec![Signature::like(inputs[0]), Signature::like(inputs[0])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let of_gate = Array::from_fn(results[0].clone(), |i| {
            let [dz, gate, value] = [0, 1, 2].map(|operand| inputs[operand].data[i]);
            let share = logistic(gate);
            dz * value * share * (1.0 + gate * (1.0 - share))
        });
        let of_values = Array::from_fn(results[1].clone(), |i| {
            let [dz, gate] = [0, 1].map(|operand| inputs[operand].data[i]);
            dz * gate * logistic(gate)
        });
        vec![of_gate, of_values]
    }
}
