//! Weighted sum of small tables.

use serde::{Deserialize, Serialize};

use crate::op::{expect_like, expect_operands, expect_table_of, upstream};
use crate::{Array, DType, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// Σ wᵢ xᵢ over tables of one shape: how the losses of several heads become one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightedSum {
    /// One weight per operand.
    pub weights: Vec<f32>,
}

const NAME: &str = "weighted_sum";

impl Rule for WeightedSum {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), self.weights.len().max(1))?;
        for operand in inputs {
            expect_table_of(NAME, "an operand", operand, DType::F32, "f32")?;
            expect_like(NAME, "an operand", operand, inputs[0])?;
        }
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        for (operand, weight) in node.inputs.iter().zip(&self.weights) {
            if tape.needs(*operand) {
                let scaled = tape.push(WeightedSum { weights: vec![*weight] }, &[gradient])?[0];
                tape.add(*operand, scaled)?;
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| {
            inputs.iter().zip(&self.weights).map(|(x, w)| f64::from(*w) * x.data[i]).sum()
        })]
    }
}
