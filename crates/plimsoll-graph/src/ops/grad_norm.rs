//! The norm of all gradients, which also says whether a step may be taken.

use serde::{Deserialize, Serialize};

use crate::op::{expect_learned, expect_table};
use crate::{Array, GraphError, Rule, Shape, Signature, TensorInfo};

/// The Euclidean norm of all operands taken as one vector. Result: `[1]`. With `loss` the first operand is the loss `[1]`,
/// which is no part of the vector.
///
/// It is finite only where a step may be taken: it is NaN where the loss is not finite or a gradient is NaN, and infinite
/// where a gradient is, or where the sum of squares is more than f32 holds, as PyTorch's norm of f32 is: AdamW squares gradients
/// in f32, and an infinite second moment would hold its parameter still for good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradNorm {
    /// `true` if the first operand is the loss.
    pub loss: bool,
}

impl GradNorm {
    /// The norm, of the sum of squares, where the loss is this one.
    pub fn from_squares(squares: f64, loss: Option<f64>) -> f64 {
        match loss {
            Some(loss) if !loss.is_finite() => f64::NAN,
            _ if squares > f64::from(f32::MAX) => f64::INFINITY,
            _ => squares.sqrt(),
        }
    }
}

impl Rule for GradNorm {
    fn name(&self) -> &'static str {
        "grad_norm"
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let gradients = match inputs.split_first() {
            Some((loss, gradients)) if self.loss => {
                expect_table(self.name(), "the loss", loss, &[1])?;
                gradients
            }
            None if self.loss => {
                let expected = "the loss and gradients as".into();
                return Err(GraphError::OperandCount { op: self.name(), expected, found: 0 });
            }
            _ => inputs,
        };
        for operand in gradients {
            expect_learned(self.name(), "a gradient", operand)?;
        }
        Ok(vec![Signature::table([1])])
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], _results: &[Shape]) -> Vec<Array> {
        let (loss, gradients) = inputs.split_at(usize::from(self.loss));
        let squares: f64 = gradients.iter().flat_map(|gradient| &gradient.data).map(|g| g * g).sum();
        let norm = GradNorm::from_squares(squares, loss.first().map(|loss| loss.data[0]));
        vec![Array { shape: Shape(vec![1]), data: vec![norm] }]
    }
}
