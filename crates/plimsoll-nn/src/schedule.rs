//! Learning rates over the steps of a run.

use serde::{Deserialize, Serialize};

/// How the learning rate falls after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "name", deny_unknown_fields)]
pub enum Decay {
    /// Not at all.
    Constant,
    /// (1 − t)^power, with t the share of the steps that is done; nnU-Net takes power 0.9.
    Poly {
        /// The power.
        power: f64,
    },
    /// (1 + cos π t) / 2.
    Cosine,
}

/// The learning rate of every step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The highest.
    pub learning_rate: f64,
    /// Steps over which it rises to that, in a straight line.
    pub warmup_steps: u64,
    /// How it falls afterwards.
    pub decay: Decay,
    /// After which it has fallen.
    pub total_steps: u64,
}

impl Schedule {
    /// The learning rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.learning_rate * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let span = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        let done = ((step - self.warmup_steps) as f64 / span as f64).min(1.0);
        self.learning_rate
            * match self.decay {
                Decay::Constant => 1.0,
                Decay::Poly { power } => (1.0 - done).powf(power),
                Decay::Cosine => (1.0 + (std::f64::consts::PI * done).cos()) / 2.0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(decay: Decay, warmup_steps: u64) -> Schedule {
        Schedule { learning_rate: 0.01, warmup_steps, decay, total_steps: 100 }
    }

    #[test]
    fn poly_is_nnunets() {
        let poly = schedule(Decay::Poly { power: 0.9 }, 0);
        assert_eq!(poly.at(0), 0.01);
        assert!((poly.at(50) - 0.01 * 0.5f64.powf(0.9)).abs() < 1e-15);
        assert_eq!(poly.at(100), 0.0);
        assert_eq!(poly.at(1000), 0.0);
    }

    #[test]
    fn the_warmup_rises_to_the_top_and_the_cosine_falls_from_it() {
        let cosine = schedule(Decay::Cosine, 10);
        assert!((cosine.at(0) - 0.001).abs() < 1e-15);
        assert!((cosine.at(9) - 0.01).abs() < 1e-15);
        assert_eq!(cosine.at(10), 0.01);
        assert!((cosine.at(55) - 0.005).abs() < 1e-15);
        assert!(cosine.at(100).abs() < 1e-15);
        assert_eq!(schedule(Decay::Constant, 0).at(77), 0.01);
    }
}
