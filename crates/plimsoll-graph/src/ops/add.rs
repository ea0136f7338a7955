//! Sum of two tensors.

use serde::{Deserialize, Serialize};

use crate::op::{expect_like, expect_operands, upstream};
use crate::{Array, DType, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// Element-wise sum. Operands: two tensors of one shape, kind and float type. Result: like them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Add;

const NAME: &str = "add";

impl Rule for Add {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        let (a, b) = (inputs[0], inputs[1]);
        expect_like(NAME, "the second operand", b, a)?;
        if a.dtype == DType::U8 {
            return Err(GraphError::DType {
                op: NAME,
                operand: "an operand",
                found: a.dtype,
                expected: "a float",
            });
        }
        Ok(vec![Signature::like(a)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        if let Some(gradient) = upstream(tape, node, 0) {
            for operand in &node.inputs {
                if tape.needs(*operand) {
                    tape.add(*operand, gradient)?;
                }
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| inputs[0].data[i] + inputs[1].data[i])]
    }
}
