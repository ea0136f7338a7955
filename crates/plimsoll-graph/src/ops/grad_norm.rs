//! The norm of all gradients.

use serde::{Deserialize, Serialize};

use crate::{Array, GraphError, Kind, Recompute, Rule, Shape, Signature, TensorInfo};

/// The Euclidean norm of all operands taken as one vector. Result: `[1]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradNorm;

impl Rule for GradNorm {
    fn name(&self) -> &'static str {
        "grad_norm"
    }

    fn infer(&self, _inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        Ok(vec![Signature::new(Shape(vec![1]), Kind::Table)])
    }

    fn recompute(&self) -> Recompute {
        Recompute::Never
    }

    fn evaluate(&self, inputs: &[&Array], _results: &[Shape]) -> Vec<Array> {
        let squares: f64 = inputs.iter().flat_map(|gradient| &gradient.data).map(|g| g * g).sum();
        vec![Array { shape: Shape(vec![1]), data: vec![squares.sqrt()] }]
    }
}
