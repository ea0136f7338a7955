//! Learning rates over the steps of a run.

use serde::{Deserialize, Serialize};

use crate::{ConfigError, Goal, Plateau, PlateauState};

/// The decay of the learning rate after the warm-up, from the highest to the least.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "name", deny_unknown_fields)]
pub enum Decay {
    /// Not at all.
    Constant,
    /// least + (highest − least) (1 − t)^power, with t the share of the steps that is done; nnU-Net takes power 0.9.
    Poly {
        /// The power.
        power: f64,
    },
    /// least + (highest − least) (1 + cos π t) / 2, as `torch.optim.lr_scheduler.CosineAnnealingLR` with `eta_min`.
    Cosine,
    /// By a factor, whenever a score has not become better for a while.
    Plateau(Plateau),
}

/// The learning rate of every step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The highest.
    pub learning_rate: f64,
    /// The least, after the warm-up.
    pub min_learning_rate: f64,
    /// Steps over which it rises to the highest, in a straight line.
    pub warmup_steps: u64,
    /// The decay after the warm-up.
    pub decay: Decay,
    /// After which it has fallen.
    pub total_steps: u64,
    /// Steps that have the same rate: 1, or the steps of an epoch.
    #[serde(default = "each", skip_serializing_if = "is_each")]
    pub interval: u64,
}

fn each() -> u64 {
    1
}

fn is_each(interval: &u64) -> bool {
    *interval == each()
}

/// The time between changes of the learning rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RateInterval {
    /// Each step has its own rate.
    #[default]
    Step,
    /// All steps of an epoch have the same rate, as in nnU-Net.
    Epoch,
}

impl Schedule {
    /// The learning rate of a step, counted from 0, as far as it follows from the step alone: with [`Decay::Plateau`] it is still to
    /// be multiplied by [`PlateauState::factor`].
    ///
    /// Steps are counted in intervals. The warm-up is `Lin_incr_LRScheduler` of nnU-Net 2.8.1, and with [`Decay::Poly`] the rest
    /// is its `PolyLRScheduler_offset`.
    pub fn at(&self, step: u64) -> f64 {
        let intervals = |steps: u64| steps / self.interval.max(1);
        let (step, warmup) = (intervals(step), intervals(self.warmup_steps));
        if step < warmup {
            return self.learning_rate / warmup as f64 * (step + 1) as f64;
        }
        let span = intervals(self.total_steps).saturating_sub(warmup).max(1);
        let done = ((step - warmup) as f64 / span as f64).min(1.0);
        let least = self.min_learning_rate;
        let between = |share: f64| least + (self.learning_rate - least) * share;
        match self.decay {
            Decay::Constant | Decay::Plateau(_) => self.learning_rate,
            Decay::Poly { power } => between((1.0 - done).powf(power)),
            Decay::Cosine => between((1.0 + (std::f64::consts::PI * done).cos()) / 2.0),
        }
    }

    /// Shows the score of an epoch to a schedule that falls at plateaus, and returns the factor of the learning rate from then
    /// on; always 1 for others.
    pub fn observe(&self, state: &mut PlateauState, goal: Goal, score: f64) -> f64 {
        match &self.decay {
            Decay::Plateau(plateau) => {
                state.observe(plateau, self.learning_rate, self.min_learning_rate, goal, score)
            }
            Decay::Constant | Decay::Poly { .. } | Decay::Cosine => 1.0,
        }
    }

    /// Checks that its numbers are possible and all have an effect.
    ///
    /// # Errors
    /// At the first that is not or has none, by its setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Schedule { learning_rate, min_learning_rate, warmup_steps, decay, total_steps, interval } = *self;
        // Steps read it as f32.
        let read = learning_rate as f32;
        ConfigError::expect(
            read.is_finite() && read > 0.0,
            "learning_rate",
            learning_rate,
            "it must be finite and above zero, as an f32 too",
        )?;
        ConfigError::expect(
            (0.0..learning_rate).contains(&min_learning_rate),
            "min_learning_rate",
            min_learning_rate,
            format_args!("it must be from 0 to below the learning rate, which is {learning_rate}"),
        )?;
        ConfigError::expect(
            min_learning_rate == 0.0 || decay != Decay::Constant,
            "min_learning_rate",
            min_learning_rate,
            "the decay is \"constant\", so the learning rate never falls",
        )?;
        ConfigError::expect(
            warmup_steps < total_steps,
            "warmup_steps",
            warmup_steps,
            format_args!("it must be less than the {total_steps} steps of the run"),
        )?;
        ConfigError::expect(
            interval > 0 && warmup_steps.is_multiple_of(interval),
            "warmup_steps",
            warmup_steps,
            format_args!(
                "the learning rate changes every {interval} steps, so it must be a multiple of that"
            ),
        )?;
        match decay {
            Decay::Constant | Decay::Cosine => Ok(()),
            Decay::Poly { power } => ConfigError::expect(
                power.is_finite() && power >= 0.0,
                "decay.power",
                power,
                "it must be finite and not below zero",
            ),
            Decay::Plateau(plateau) => plateau.check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(decay: Decay, warmup_steps: u64) -> Schedule {
        Schedule {
            learning_rate: 0.01,
            min_learning_rate: 0.0,
            warmup_steps,
            decay,
            total_steps: 100,
            interval: 1,
        }
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

    /// By hand from the formula of PyTorch's documentation, η_min + (η_max − η_min)(1 + cos(π T/T_max))/2, at T/T_max = 0, 1/3,
    /// 1/2, 2/3 and 1, where the cosine is 1, 1/2, 0, −1/2 and −1:
    ///
    /// ```python
    /// optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.01)
    /// scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=90, eta_min=0.002)
    /// ```
    #[test]
    fn the_cosine_falls_to_the_least_rate_as_pytorchs() {
        let cosine = Schedule { min_learning_rate: 0.002, ..schedule(Decay::Cosine, 10) };
        for (step, rate) in [(10, 0.01), (40, 0.008), (55, 0.006), (70, 0.004), (100, 0.002), (500, 0.002)] {
            assert!((cosine.at(step) - rate).abs() < 1e-15, "{step}: {}", cosine.at(step));
        }
    }

    #[test]
    fn poly_falls_to_the_least_rate_and_the_warmup_does_not_see_it() {
        let poly = Schedule { min_learning_rate: 0.002, ..schedule(Decay::Poly { power: 2.0 }, 20) };
        assert!((poly.at(0) - 0.01 / 20.0).abs() < 1e-15);
        for (step, rate) in [(20, 0.01), (60, 0.004), (100, 0.002)] {
            assert!((poly.at(step) - rate).abs() < 1e-15, "{step}: {}", poly.at(step));
        }
    }

    #[test]
    fn impossible_numbers_are_refused_by_their_setting() {
        let usual = schedule(Decay::Poly { power: 0.9 }, 0);
        assert_eq!(usual.check(), Ok(()));
        let said = |schedule: Schedule| schedule.check().unwrap_err().to_string();
        for learning_rate in [0.0, -1.0, 1e39, 1e-50, f64::NAN, f64::INFINITY] {
            let said = said(Schedule { learning_rate, ..usual });
            assert!(said.starts_with(&format!("`learning_rate` is {learning_rate}, but")), "{said}");
        }
        for min_learning_rate in [-1e-9, 0.01, f64::NAN] {
            let said = said(Schedule { min_learning_rate, ..usual });
            assert!(said.starts_with("`min_learning_rate` is") && said.contains("0.01"), "{said}");
        }
        let constant = Schedule { min_learning_rate: 1e-3, decay: Decay::Constant, ..usual };
        assert!(said(constant).contains("never falls"));
        let warmup = said(Schedule { warmup_steps: 100, ..usual });
        assert_eq!(warmup, "`warmup_steps` is 100, but it must be less than the 100 steps of the run");
        for power in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(said(schedule(Decay::Poly { power }, 0)).starts_with("`decay.power` is"));
        }
        let plateau = |plateau| said(schedule(Decay::Plateau(plateau), 0));
        for factor in [0.0, 1.0, f64::NAN] {
            assert!(plateau(Plateau { factor, ..Plateau::default() }).starts_with("`decay.factor` is"));
        }
        for threshold in [-1.0, f64::INFINITY] {
            assert!(plateau(Plateau { threshold, ..Plateau::default() }).starts_with("`decay.threshold` is"));
        }
    }

    #[test]
    fn schedules_are_read_as_they_are_written() {
        for decay in
            [Decay::Constant, Decay::Poly { power: 0.9 }, Decay::Cosine, Decay::Plateau(Plateau::default())]
        {
            let json = serde_json::to_string(&schedule(decay, 3)).unwrap();
            assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule(decay, 3), "{json}");
        }
        let plateau: Decay = serde_json::from_str(r#"{"name": "plateau", "patience": 3}"#).unwrap();
        assert_eq!(plateau, Decay::Plateau(Plateau { patience: 3, ..Plateau::default() }));
        assert!(serde_json::from_str::<Decay>(r#"{"name": "plateau", "patients": 3}"#).is_err());
    }
}
