//! A learning rate that falls when a score no longer becomes better.

use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// The rule that lowers the learning rate at a plateau, as `torch.optim.lr_scheduler.ReduceLROnPlateau` with
/// `threshold_mode="rel"` and `cooldown=0`; the defaults are PyTorch's. The least rate is
/// [`Schedule::min_learning_rate`](crate::Schedule::min_learning_rate).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plateau {
    /// The factor of the learning rate at each plateau.
    pub factor: f64,
    /// The number of epochs in a row that may bring no improvement before the rate falls.
    pub patience: u64,
    /// By which share of the best a score must be better to count.
    pub threshold: f64,
}

impl Default for Plateau {
    fn default() -> Plateau {
        Plateau { factor: 0.1, patience: 10, threshold: 1e-4 }
    }
}

impl Plateau {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let Plateau { factor, threshold, .. } = *self;
        ConfigError::expect(
            factor > 0.0 && factor < 1.0,
            "decay.factor",
            factor,
            "it must be above 0 and below 1",
        )?;
        ConfigError::expect(
            threshold.is_finite() && threshold >= 0.0,
            "decay.threshold",
            threshold,
            "it must be finite and not below zero",
        )
    }
}

/// The direction in which scores improve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Higher ones, such as a Dice.
    Highest,
    /// Lower ones, such as a loss.
    Lowest,
}

/// The state of the plateau rule between epochs; part of a run's progress.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlateauState {
    /// The best score so far.
    pub best: Option<f64>,
    /// Epochs since then, or since the learning rate fell.
    pub bad_epochs: u64,
    /// The current factor of the learning rate.
    pub factor: f64,
}

impl Default for PlateauState {
    fn default() -> PlateauState {
        PlateauState { best: None, bad_epochs: 0, factor: 1.0 }
    }
}

/// Falls of the learning rate that are smaller than this are not made, as PyTorch's `eps`.
const SMALLEST_FALL: f64 = 1e-8;

impl PlateauState {
    /// Shows it the score of an epoch under a rule, with the highest and the least learning rate; the factor of the highest from
    /// then on. A score that is NaN is not better than any.
    pub fn observe(&mut self, rule: &Plateau, highest: f64, least: f64, goal: Goal, score: f64) -> f64 {
        let is_better = match (self.best, goal) {
            (None, _) => !score.is_nan(),
            (Some(best), Goal::Highest) => score > best * (1.0 + rule.threshold),
            (Some(best), Goal::Lowest) => score < best * (1.0 - rule.threshold),
        };
        if is_better {
            (self.best, self.bad_epochs) = (Some(score), 0);
        } else {
            self.bad_epochs += 1;
        }
        if self.bad_epochs > rule.patience {
            self.bad_epochs = 0;
            let old = highest * self.factor;
            let new = (old * rule.factor).max(least);
            if old - new > SMALLEST_FALL {
                self.factor = new / highest;
            }
        }
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rule: Plateau, rates: (f64, f64), goal: Goal, scores: &[f64]) -> Vec<f64> {
        let mut state = PlateauState::default();
        scores.iter().map(|score| rates.0 * state.observe(&rule, rates.0, rates.1, goal, *score)).collect()
    }

    fn agree(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (epoch, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() < 1e-15, "epoch {epoch}: {found}, not {expected}");
        }
    }

    /// Followed by hand through `ReduceLROnPlateau.step` of PyTorch's source:
    ///
    /// ```python
    /// optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    /// scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
    ///     optimizer, mode="max", factor=0.5, patience=2, threshold=0.1, min_lr=0.02)
    /// for score in [0.5, 0.54, 0.56, 0.56, 0.6, 0.61, 0.7, 0.7, 0.7, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]:
    ///     scheduler.step(score); print(scheduler.get_last_lr()[0])
    /// ```
    ///
    /// 0.54 is not above 0.5 · 1.1; 0.56 is, and then 0.56, 0.6 and 0.61 are three epochs not above 0.616, more than the patience.
    /// 0.7 is better; three more epochs; three more, whose 0.0125 is below the least; and three that change nothing.
    #[test]
    fn it_falls_where_pytorchs_falls_and_not_below_the_least() {
        let rule = Plateau { factor: 0.5, patience: 2, threshold: 0.1 };
        let scores = [0.5, 0.54, 0.56, 0.56, 0.6, 0.61, 0.7, 0.7, 0.7, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1];
        let expected =
            [0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.02, 0.02, 0.02, 0.02];
        agree(&rates(rule, (0.1, 0.02), Goal::Highest, &scores), &expected);
    }

    /// The numbers are PyTorch's, as above, with `mode="min", factor=0.1, patience=0, threshold=1e-4` from `lr=1e-3` to
    /// `min_lr=0`: each epoch that does not improve the best score by 10⁻⁴ of it lowers the rate. NaN is never an
    /// improvement. Falls of 10⁻⁸ or less are left out, so that the rate stays at 10⁻⁸.
    #[test]
    fn losses_that_do_not_fall_are_plateaus_and_the_smallest_falls_are_left_out() {
        let rule = Plateau { factor: 0.1, patience: 0, threshold: 1e-4 };
        let scores = [1.0, 0.99995, 0.9998, f64::NAN, 2.0, 2.0, 2.0, 2.0, 0.5];
        let expected = [1e-3, 1e-4, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-8, 1e-8];
        agree(&rates(rule, (1e-3, 0.0), Goal::Lowest, &scores), &expected);
    }

    #[test]
    fn a_state_that_was_written_goes_on_as_if_it_had_not_been() {
        let rule = Plateau { patience: 1, ..Plateau::default() };
        let (mut state, mut stored) = (PlateauState::default(), PlateauState::default());
        for score in [0.3, 0.2, 0.2, 0.4, 0.1, 0.1] {
            let factor = state.observe(&rule, 1e-2, 0.0, Goal::Highest, score);
            let json = serde_json::to_string(&stored).unwrap();
            stored = serde_json::from_str(&json).unwrap();
            assert_eq!(stored.observe(&rule, 1e-2, 0.0, Goal::Highest, score), factor);
        }
        assert!((state.factor - 0.01).abs() < 1e-15);
    }
}
