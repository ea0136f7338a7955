//! Tables one after the other.

use serde::{Deserialize, Serialize};

use crate::op::expect_kind;
use crate::{Array, GraphError, Kind, Rule, Shape, Signature, TensorInfo};

/// The numbers of several tables, one table after the other. Operands: one or more tables. Result: `[count]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join;

const NAME: &str = "join";

impl Rule for Join {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        for operand in inputs {
            expect_kind(NAME, "an operand", operand, |kind| *kind == Kind::Table, "a table")?;
        }
        let count = inputs.iter().map(|operand| operand.shape.count()).sum();
        Ok(vec![Signature::new(Shape(vec![count]), Kind::Table)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let data = inputs.iter().flat_map(|table| table.data.iter().copied()).collect();
        vec![Array { shape: results[0].clone(), data }]
    }
}
