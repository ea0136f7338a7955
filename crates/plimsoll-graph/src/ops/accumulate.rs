//! Gradient accumulation over micro-batches.

use serde::{Deserialize, Serialize};

use crate::op::{expect_learned, expect_like, expect_operands};
use crate::{Array, GraphError, Rule, Shape, Signature, TensorInfo};

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
        expect_learned(NAME, "the first operand", inputs[0])?;
        expect_like(NAME, "the second operand", inputs[1], inputs[0])?;
        Ok(Vec::new())
    }

    fn updates(&self) -> Vec<usize> {
        vec![0]
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| inputs[0].data[i] + inputs[1].data[i])]
    }
}
