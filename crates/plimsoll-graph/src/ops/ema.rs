//! Averages of parameters over the steps.

use serde::{Deserialize, Serialize};

use crate::op::{expect_learned, expect_like, expect_operands, expect_table};
use crate::{Array, GraphError, Rule, Shape, Signature, TensorInfo};

/// The exponential moving average of a parameter, as `torch.optim.swa_utils.get_ema_avg_fn`: average ← decay · average +
/// (1 − decay) · parameter.
///
/// Operands: average (a state), parameter and, if `guarded`, the gradients' norm `[1]`. Updates the average; where the norm is
/// not finite, it keeps its bits, since the parameter took no step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ema {
    /// The share of the average that a step keeps, from 0 to 1.
    pub decay: f32,
    /// `true` if the norm of all gradients is an operand.
    pub guarded: bool,
}

impl Rule for Ema {
    fn name(&self) -> &'static str {
        "ema"
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        if !(0.0..=1.0).contains(&self.decay) {
            return Err(GraphError::Attribute {
                op: self.name(),
                attribute: "decay",
                found: self.decay.to_string(),
                expected: "it must be from 0 to 1".into(),
            });
        }
        expect_operands(self.name(), inputs.len(), 2 + usize::from(self.guarded))?;
        expect_learned(self.name(), "the average", inputs[0])?;
        expect_like(self.name(), "the parameter", inputs[1], inputs[0])?;
        if let Some(norm) = inputs.get(2) {
            expect_table(self.name(), "the norm", norm, &[1])?;
        }
        Ok(Vec::new())
    }

    fn updates(&self) -> Vec<usize> {
        vec![0]
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        if inputs.get(2).is_some_and(|norm| !norm.data[0].is_finite()) {
            return vec![inputs[0].clone()];
        }
        let decay = f64::from(self.decay);
        let average = |i: usize| decay * inputs[0].data[i] + (1.0 - decay) * inputs[1].data[i];
        vec![Array::from_fn(results[0].clone(), average)]
    }
}
