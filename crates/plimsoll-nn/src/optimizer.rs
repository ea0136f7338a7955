//! Optimizers as settings, and as nodes.

use plimsoll_graph::ops::{AdamW, Ema, NormUse, RATES, Sgd};
use plimsoll_graph::{GraphError, Program, TensorId};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, names};

/// The optimizer, with its constants. Learning rates come from the [`Schedule`](crate::Schedule).
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
    /// `torch.optim.Adam`: its weight decay is part of the gradient.
    Adam {
        /// Decay of the first moment.
        #[serde(default = "beta1")]
        beta1: f32,
        /// Decay of the second moment.
        #[serde(default = "beta2")]
        beta2: f32,
        /// Added to the root of the second moment.
        #[serde(default = "epsilon")]
        epsilon: f32,
        /// Added to the gradient, times the parameter.
        #[serde(default)]
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

    /// PyTorch's defaults for Adam.
    pub fn adam() -> Optimizer {
        Optimizer::Adam { beta1: beta1(), beta2: beta2(), epsilon: epsilon(), weight_decay: 0.0 }
    }

    /// nnU-Net's optimizer: momentum 0.99, weight decay 3 · 10⁻⁵.
    pub fn nnunet() -> Optimizer {
        Optimizer::Sgd { momentum: momentum(), weight_decay: sgd_decay() }
    }

    /// Names of the moments that go with a parameter.
    pub fn moments(&self, parameter: &str) -> Vec<String> {
        let names: &[&str] = match self {
            Optimizer::AdamW { .. } | Optimizer::Adam { .. } => &["exp_avg", "exp_avg_sq"],
            Optimizer::Sgd { .. } => &["momentum_buffer"],
        };
        names.iter().map(|name| format!("{parameter}/{name}")).collect()
    }

    /// Returns the values that a step (counted from 1) reads as its rates. `loss_scale` is the factor of the loss
    /// before gradients are taken: 1 if the loss is not scaled.
    pub fn rates(&self, learning_rate: f64, step: u64, loss_scale: f32) -> [f32; RATES] {
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(step as f64);
        let (first, second) = match self {
            Optimizer::AdamW { beta1, beta2, .. } | Optimizer::Adam { beta1, beta2, .. } => {
                (correction(*beta1), correction(*beta2))
            }
            Optimizer::Sgd { .. } => (1.0, 1.0),
        };
        [learning_rate as f32, first as f32, second as f32, 1.0 / loss_scale]
    }

    /// Checks that its constants are possible.
    ///
    /// # Errors
    /// At the first that is not, by its setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        let share = |setting, value: f32| {
            let holds = (0.0..1.0).contains(&value);
            ConfigError::expect(holds, setting, value, "it must be from 0 to below 1")
        };
        let (Optimizer::AdamW { weight_decay, .. }
        | Optimizer::Adam { weight_decay, .. }
        | Optimizer::Sgd { weight_decay, .. }) = *self;
        ConfigError::expect(
            weight_decay.is_finite() && weight_decay >= 0.0,
            "optimizer.weight_decay",
            weight_decay,
            "it must be finite and not below zero",
        )?;
        match *self {
            Optimizer::AdamW { beta1, beta2, epsilon, .. }
            | Optimizer::Adam { beta1, beta2, epsilon, .. } => {
                share("optimizer.beta1", beta1)?;
                share("optimizer.beta2", beta2)?;
                ConfigError::expect(
                    epsilon.is_finite() && epsilon > 0.0,
                    "optimizer.epsilon",
                    epsilon,
                    "it must be finite and above zero",
                )
            }
            Optimizer::Sgd { momentum, .. } => share("optimizer.momentum", momentum),
        }
    }
}

/// The common inputs of all parameters' updates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Updates {
    pub(crate) optimizer: Optimizer,
    pub(crate) rates: TensorId,
    /// The use of the norm of all gradients, with the norm if it is used.
    pub(crate) norm: (NormUse, Option<TensorId>),
    /// `true` if gradients, which are states, are zero afterwards.
    pub(crate) clear: bool,
    /// The decay of parameters' averages, where there are any.
    pub(crate) ema: Option<f32>,
}

impl Updates {
    /// Appends the update of one parameter, with a factor of its learning rate, and the update of its average.
    ///
    /// # Errors
    /// Returns an error if shapes do not fit.
    pub(crate) fn push(
        &self,
        program: &mut Program,
        parameter: TensorId,
        gradient: TensorId,
        rate_factor: f32,
    ) -> Result<(), GraphError> {
        let info = program.tensor(parameter).clone();
        let (norm, norm_operand) = self.norm;
        let mut operands = vec![parameter, gradient];
        for name in self.optimizer.moments(&info.name) {
            operands.push(program.state(name, info.shape.clone(), info.kind));
        }
        operands.push(self.rates);
        operands.extend(norm_operand);
        let clear = self.clear;
        match self.optimizer {
            Optimizer::AdamW { beta1, beta2, epsilon, weight_decay }
            | Optimizer::Adam { beta1, beta2, epsilon, weight_decay } => {
                let coupled = matches!(self.optimizer, Optimizer::Adam { .. });
                let adam = AdamW { beta1, beta2, epsilon, weight_decay, coupled, rate_factor, norm, clear };
                program.push(adam, &operands)?;
            }
            Optimizer::Sgd { momentum, weight_decay } => {
                program.push(Sgd { momentum, weight_decay, rate_factor, norm, clear }, &operands)?;
            }
        }
        if let Some(decay) = self.ema {
            let average = program.state(names::average(&info.name), info.shape, info.kind);
            let operands: Vec<TensorId> = [average, parameter].into_iter().chain(norm_operand).collect();
            program.push(Ema { decay, guarded: norm.reads() }, &operands)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_constants_are_refused_by_their_setting() {
        assert_eq!(Optimizer::adamw().check(), Ok(()));
        assert_eq!(Optimizer::nnunet().check(), Ok(()));
        let said = |json: &str| {
            let optimizer: Optimizer = serde_json::from_str(json).unwrap();
            optimizer.check().unwrap_err().to_string()
        };
        let found = said(r#"{"name": "sgd", "momentum": 1.0}"#);
        assert_eq!(found, "`optimizer.momentum` is 1, but it must be from 0 to below 1");
        assert!(said(r#"{"name": "sgd", "momentum": -0.1}"#).starts_with("`optimizer.momentum` is -0.1"));
        assert!(said(r#"{"name": "sgd", "weight_decay": -1}"#).starts_with("`optimizer.weight_decay` is -1"));
        // 1e39 is more than f32 holds.
        let found = said(r#"{"name": "adamw", "weight_decay": 1e39}"#);
        assert!(found.starts_with("`optimizer.weight_decay` is inf"), "{found}");
        assert!(said(r#"{"name": "adamw", "beta1": 1}"#).starts_with("`optimizer.beta1` is 1"));
        assert!(said(r#"{"name": "adamw", "beta2": 2}"#).starts_with("`optimizer.beta2` is 2"));
        assert!(said(r#"{"name": "adamw", "epsilon": 0}"#).starts_with("`optimizer.epsilon` is 0"));
    }
}
