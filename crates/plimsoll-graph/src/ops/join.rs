//! Tables one after the other.

use serde::{Deserialize, Serialize};

use crate::op::expect_table_of;
use crate::{Array, DType, GraphError, Rule, Shape, Signature, TensorInfo};

/// The numbers of several tables, one table after the other. Operands: one or more tables. Result: `[count]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join;

const NAME: &str = "join";

impl Rule for Join {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        if inputs.is_empty() {
            return Err(GraphError::OperandCount { op: NAME, expected: "1 or more".into(), found: 0 });
        }
        for operand in inputs {
            expect_table_of(NAME, "an operand", operand, DType::F32, "f32")?;
        }
        let count: usize = inputs.iter().map(|operand| operand.shape.count()).sum();
        Ok(vec![Signature::table([count])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let data = inputs.iter().flat_map(|table| table.data.iter().copied()).collect();
        vec![Array { shape: results[0].clone(), data }]
    }
}
