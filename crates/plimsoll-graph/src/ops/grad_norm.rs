//! The norm of all gradients.

use serde::{Deserialize, Serialize};

use crate::op::expect_learned;
use crate::{Array, GraphError, Rule, Shape, Signature, TensorInfo};

/// The Euclidean norm of all operands taken as one vector. Result: `[1]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradNorm;

impl Rule for GradNorm {
    fn name(&self) -> &'static str {
        "grad_norm"
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        for operand in inputs {
            expect_learned(self.name(), "a gradient", operand)?;
        }
        Ok(vec![Signature::table([1])])
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], _results: &[Shape]) -> Vec<Array> {
        let squares: f64 = inputs.iter().flat_map(|gradient| &gradient.data).map(|g| g * g).sum();
        vec![Array { shape: Shape(vec![1]), data: vec![squares.sqrt()] }]
    }
}
