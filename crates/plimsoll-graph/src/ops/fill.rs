//! A constant.

use serde::{Deserialize, Serialize};

use crate::op::expect_operands;
use crate::{Array, GraphError, Kind, Rule, Shape, Signature, TensorInfo};

/// An f32 table with one value everywhere. No operands. Result: `shape`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// The value.
    pub value: f32,
    /// The shape of the result.
    pub shape: Shape,
}

impl Rule for Fill {
    fn name(&self) -> &'static str {
        "fill"
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(self.name(), inputs.len(), 0)?;
        Ok(vec![Signature::new(self.shape.clone(), Kind::Table)])
    }

    fn may_be_recomputed(&self) -> bool {
        // There is nothing to hold.
        false
    }

    fn evaluate(&self, _inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |_| f64::from(self.value))]
    }
}
