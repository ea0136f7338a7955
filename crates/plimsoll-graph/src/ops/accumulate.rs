//! Gradient accumulation over micro-batches.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_shape};
use crate::{Array, GraphError, Recompute, Rule, Shape, Signature, TensorInfo};

/// Adds the second operand to the first, a state, in place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accumulate;

const NAME: &str = "accumulate";

impl Rule for Accumulate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_shape(NAME, "the second operand", &inputs[1].shape, &inputs[0].shape)?;
        Ok(Vec::new())
    }

    fn updates(&self) -> Vec<usize> {
        vec![0]
    }

    fn recompute(&self) -> Recompute {
        Recompute::Never
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| inputs[0].data[i] + inputs[1].data[i])]
    }
}
