//! Optimizers as settings, and as nodes.

use plimsoll_graph::ops::{AdamW, RATES, Sgd};
use plimsoll_graph::{GraphError, Program, TensorId};
use serde::{Deserialize, Serialize};

/// Which optimizer, with its constants. Learning rates come from the [`Schedule`](crate::Schedule).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "name", deny_unknown_fields)]
pub enum Optimizer {
    /// `torch.optim.AdamW`.
    AdamW {
        /// Decay of the first moment.
        #[serde(default = "beta1")]
        beta1: f32,
        /// Decay of the second moment.
        #[serde(default = "beta2")]
        beta2: f32,
        /// Added to the root of the second moment.
        #[serde(default = "epsilon")]
        epsilon: f32,
        /// Pull towards zero, per unit of learning rate.
        #[serde(default = "adamw_decay")]
        weight_decay: f32,
    },
    /// `torch.optim.SGD` with Nesterov momentum.
    Sgd {
        /// Decay of the momentum.
        #[serde(default = "momentum")]
        momentum: f32,
        /// Added to the gradient, times the parameter.
        #[serde(default = "sgd_decay")]
        weight_decay: f32,
    },
}

const fn beta1() -> f32 {
    0.9
}

const fn beta2() -> f32 {
    0.999
}

const fn epsilon() -> f32 {
    1e-8
}

const fn adamw_decay() -> f32 {
    0.01
}

const fn momentum() -> f32 {
    0.99
}

const fn sgd_decay() -> f32 {
    3e-5
}

impl Optimizer {
    /// PyTorch's defaults for AdamW.
    pub fn adamw() -> Optimizer {
        let (beta1, beta2, epsilon) = (beta1(), beta2(), epsilon());
        Optimizer::AdamW { beta1, beta2, epsilon, weight_decay: adamw_decay() }
    }

    /// nnU-Net's optimizer: momentum 0.99, weight decay 3 · 10⁻⁵.
    pub fn nnunet() -> Optimizer {
        Optimizer::Sgd { momentum: momentum(), weight_decay: sgd_decay() }
    }

    /// Names of the moments that go with a parameter.
    pub fn moments(&self, parameter: &str) -> Vec<String> {
        let names: &[&str] = match self {
            Optimizer::AdamW { .. } => &["exp_avg", "exp_avg_sq"],
            Optimizer::Sgd { .. } => &["momentum_buffer"],
        };
        names.iter().map(|name| format!("{parameter}/{name}")).collect()
    }

    /// What a step (counted from 1) reads as its rates.
    pub fn rates(&self, learning_rate: f64, step: u64) -> [f32; RATES] {
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(step as f64);
        let (first, second) = match self {
            Optimizer::AdamW { beta1, beta2, .. } => (correction(*beta1), correction(*beta2)),
            Optimizer::Sgd { .. } => (1.0, 1.0),
        };
        [learning_rate as f32, first as f32, second as f32]
    }

    /// Appends the update of one parameter; with `clear` its gradient, a state, is zero afterwards.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub(crate) fn update(
        &self,
        program: &mut Program,
        (parameter, gradient): (TensorId, TensorId),
        rates: TensorId,
        clip: Option<(f32, TensorId)>,
        clear: bool,
    ) -> Result<(), GraphError> {
        let info = program.tensor(parameter).clone();
        let mut operands = vec![parameter, gradient];
        for name in self.moments(&info.name) {
            operands.push(program.state(name, info.shape.clone(), info.kind));
        }
        operands.push(rates);
        operands.extend(clip.map(|(_, norm)| norm));
        let max_norm = clip.map(|(max, _)| max);
        match *self {
            Optimizer::AdamW { beta1, beta2, epsilon, weight_decay } => {
                program.push(AdamW { beta1, beta2, epsilon, weight_decay, max_norm, clear }, &operands)?;
            }
            Optimizer::Sgd { momentum, weight_decay } => {
                program.push(Sgd { momentum, weight_decay, max_norm, clear }, &operands)?;
            }
        }
        Ok(())
    }
}
