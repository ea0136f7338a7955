//! Optimizers: one node updates one parameter and its moments in place, unless the step's numbers went wrong.

use serde::{Deserialize, Serialize};

use crate::op::{expect_learned, expect_like, expect_operands, expect_table};
use crate::{Array, GraphError, Rule, Shape, Signature, TensorInfo};

/// The numbers that change from step to step, in the operand `rates`: learning rate; 1 − β₁ᵗ; 1 − β₂ᵗ; what gradients, and their norm, are
/// multiplied by before anything else, which is 1 / the scale of the loss, and 1 where it is not scaled.
pub const RATES: usize = 4;

/// The use that an update makes of the norm of all gradients, its last operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormUse {
    /// It has no such operand: nothing is scaled, and nothing is refused.
    Unread,
    /// The step is refused if the norm is not finite: parameter and moments keep their bits.
    Guard,
    /// Acts as [`NormUse::Guard`], and scales gradients so that their common norm is at most this.
    Clip(f32),
}

impl NormUse {
    /// Returns `true` if the norm is an operand.
    pub fn reads(self) -> bool {
        self != NormUse::Unread
    }

    /// Returns the factor of gradients that are to be multiplied by `unscale`, as `torch.nn.utils.clip_grad_norm_`
    /// computes it; none if the step is refused.
    pub(crate) fn scale(self, norm: Option<f64>, unscale: f64) -> Option<f64> {
        if norm.is_some_and(|norm| !norm.is_finite()) {
            return None;
        }
        Some(match (self, norm) {
            (NormUse::Clip(max), Some(norm)) => {
                unscale * (f64::from(max) / (norm * unscale + CLIP_EPSILON)).min(1.0)
            }
            _ => unscale,
        })
    }
}

/// Added to the norm before gradients are scaled down to the largest norm allowed, as `clip_grad_norm_` does.
const CLIP_EPSILON: f64 = 1e-6;

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as `torch.optim.AdamW`; or with a penalty of squares that is part of
/// the gradient (Kingma and Ba 2015), as `torch.optim.Adam`.
///
/// Operands: parameter, gradient, first moment, second moment, rates `[4]` and, where `norm` reads it, the gradients' norm `[1]`.
/// Updates the parameter and the moments, and with `clear` sets the gradient (a state) to zero. Where the norm is not finite, the
/// parameter and the moments keep their bits; with `clear` the gradient is zero nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Pull towards zero, per unit of learning rate.
    pub weight_decay: f32,
    /// `true` if the decay, times the parameter, is added to the gradient before the moments are taken, instead of pulling the parameter.
    pub coupled: bool,
    /// Multiplies the learning rate, and with it AdamW's weight decay, as `lr` of one of PyTorch's parameter groups.
    pub rate_factor: f32,
    /// The use of the norm of all gradients.
    pub norm: NormUse,
    /// `true` if the gradient is set to zero afterwards.
    pub clear: bool,
}

/// Stochastic gradient descent with Nesterov momentum, as `torch.optim.SGD(nesterov=True)`.
///
/// Operands: parameter, gradient, momentum, rates `[4]` and, where `norm` reads it, the gradients' norm `[1]`. Updates the
/// parameter and the momentum, and with `clear` sets the gradient (a state) to zero. Where the norm is not finite, the parameter
/// and the momentum keep their bits; with `clear` the gradient is zero nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sgd {
    /// Decay of the momentum.
    pub momentum: f32,
    /// Added to the gradient, times the parameter.
    pub weight_decay: f32,
    /// Multiplies the learning rate, as `lr` of one of PyTorch's parameter groups.
    pub rate_factor: f32,
    /// The use of the norm of all gradients.
    pub norm: NormUse,
    /// `true` if the gradient is set to zero afterwards.
    pub clear: bool,
}

/// Checks parameter, gradient, `moments` moments, rates, and the norm where there is one.
fn expect_update(op: &'static str, inputs: &[&TensorInfo], moments: usize, norm: NormUse, rate_factor: f32) -> Result<Vec<Signature>, GraphError> {
    let positive = |attribute, value: f32| {
        let (found, expected) = (value.to_string(), "it must be finite and above zero".into());
        let fault = GraphError::Attribute { op, attribute, found, expected };
        if value.is_finite() && value > 0.0 { Ok(()) } else { Err(fault) }
    };
    positive("rate_factor", rate_factor)?;
    if let NormUse::Clip(max) = norm {
        positive("the largest norm", max)?;
    }
    expect_operands(op, inputs.len(), 3 + moments + usize::from(norm.reads()))?;
    expect_learned(op, "the parameter", inputs[0])?;
    for tensor in &inputs[1..2 + moments] {
        expect_like(op, "a gradient or moment", tensor, inputs[0])?;
    }
    expect_table(op, "the rates", inputs[2 + moments], &[RATES])?;
    if let Some(norm) = inputs.get(3 + moments) {
        expect_table(op, "the norm", norm, &[1])?;
    }
    Ok(Vec::new())
}

/// The elements of a parameter that are updated, with the scale of their gradients: none where the step is refused.
fn each_element(scale: Option<f64>, parameter: &Array) -> impl Iterator<Item = (usize, f64)> {
    let count = parameter.data.len();
    scale.into_iter().flat_map(move |scale| (0..count).map(move |i| (i, scale)))
}

impl Rule for AdamW {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_update(self.name(), inputs, 2, self.norm, self.rate_factor)
    }

    fn updates(&self) -> Vec<usize> {
        if self.clear { vec![0, 2, 3, 1] } else { vec![0, 2, 3] }
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], _results: &[Shape]) -> Vec<Array> {
        let [rate, correction1, correction2, unscale] = inputs[4].data[..] else { return Vec::new() };
        let scale = self.norm.scale(inputs.get(5).map(|norm| norm.data[0]), unscale);
        let rate = rate * f64::from(self.rate_factor);
        let (beta1, beta2) = (f64::from(self.beta1), f64::from(self.beta2));
        let mut results = vec![inputs[0].clone(), inputs[2].clone(), inputs[3].clone()];
        let decay = f64::from(self.weight_decay);
        let (coupled, pull) = if self.coupled { (decay, 0.0) } else { (0.0, rate * decay) };
        for (i, scale) in each_element(scale, inputs[0]) {
            let g = inputs[1].data[i] * scale + coupled * inputs[0].data[i];
            let m = beta1 * inputs[2].data[i] + (1.0 - beta1) * g;
            let v = beta2 * inputs[3].data[i] + (1.0 - beta2) * g * g;
            let decayed = inputs[0].data[i] * (1.0 - pull);
            let step = m / correction1 / ((v / correction2).sqrt() + f64::from(self.epsilon));
            results[0].data[i] = decayed - rate * step;
            results[1].data[i] = m;
            results[2].data[i] = v;
        }
        results.extend(self.clear.then(|| Array::zeros(inputs[1].shape.clone())));
        results
    }
}

impl Rule for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_update(self.name(), inputs, 1, self.norm, self.rate_factor)
    }

    fn updates(&self) -> Vec<usize> {
        if self.clear { vec![0, 2, 1] } else { vec![0, 2] }
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], _results: &[Shape]) -> Vec<Array> {
        let [rate, _, _, unscale] = inputs[3].data[..] else { return Vec::new() };
        let scale = self.norm.scale(inputs.get(4).map(|norm| norm.data[0]), unscale);
        let rate = rate * f64::from(self.rate_factor);
        let momentum = f64::from(self.momentum);
        let mut results = vec![inputs[0].clone(), inputs[2].clone()];
        for (i, scale) in each_element(scale, inputs[0]) {
            let p = inputs[0].data[i];
            let g = inputs[1].data[i] * scale + f64::from(self.weight_decay) * p;
            let b = momentum * inputs[2].data[i] + g;
            results[0].data[i] = p - rate * (g + momentum * b);
            results[1].data[i] = b;
        }
        results.extend(self.clear.then(|| Array::zeros(inputs[1].shape.clone())));
        results
    }
}
