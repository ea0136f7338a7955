//! The rules that end a run before its last epoch.

use plimsoll_nn::ConfigError;
use serde::{Deserialize, Serialize};

use crate::{EpochRecord, ImageTarget, Task};

/// The response to a loss or a gradient norm that is not finite. No response changes the weights in such a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "name", deny_unknown_fields)]
pub enum BadNumbers {
    /// The run stops with an error that names the cases of the batch.
    #[default]
    Stop,
    /// The step is left out.
    Skip {
        /// The most that are left out in a row before the run stops.
        #[serde(default = "few")]
        limit: u64,
    },
    /// The run goes back to its last checkpoint, and on with other patches.
    Rollback {
        /// The most times before the run stops.
        #[serde(default = "few")]
        limit: u64,
    },
}

fn few() -> u64 {
    10
}

/// A number of an epoch that says how good a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// The moving average of the pseudo-Dice.
    EmaPseudoDice,
    /// The mean pseudo-Dice.
    PseudoDice,
    /// The share of images that are given their class.
    Accuracy,
    /// The mean of that share over classes.
    BalancedAccuracy,
    /// Quadratic weighted kappa.
    Kappa,
    /// The validation loss, of which less is better.
    ValidationLoss,
}

impl Score {
    /// All of them.
    const ALL: [Score; 6] = [
        Score::EmaPseudoDice,
        Score::PseudoDice,
        Score::Accuracy,
        Score::BalancedAccuracy,
        Score::Kappa,
        Score::ValidationLoss,
    ];

    /// The name in configurations.
    fn name(self) -> &'static str {
        match self {
            Score::EmaPseudoDice => "ema_pseudo_dice",
            Score::PseudoDice => "pseudo_dice",
            Score::Accuracy => "accuracy",
            Score::BalancedAccuracy => "balanced_accuracy",
            Score::Kappa => "kappa",
            Score::ValidationLoss => "validation_loss",
        }
    }

    /// Returns `true` if runs of a task have this score.
    pub fn is_of(self, task: &Task) -> bool {
        match self {
            Score::EmaPseudoDice | Score::PseudoDice => matches!(task, Task::Segmentation(_)),
            Score::Accuracy | Score::BalancedAccuracy => matches!(task, Task::Classification(_)),
            Score::Kappa => {
                matches!(task, Task::Classification(task) if task.target != ImageTarget::AnyOf)
            }
            Score::ValidationLoss => true,
        }
    }

    /// The score of an epoch; higher is better. `None` if no validated sample has any class.
    pub fn value(self, epoch: &EpochRecord) -> Option<f64> {
        match self {
            Score::EmaPseudoDice => epoch.ema_pseudo_dice,
            Score::PseudoDice => epoch.mean_pseudo_dice,
            Score::Accuracy => epoch.classification.as_ref().map(|scores| scores.accuracy),
            Score::BalancedAccuracy => epoch.classification.as_ref().map(|scores| scores.balanced_accuracy),
            Score::Kappa => epoch.classification.as_ref().and_then(|scores| scores.kappa),
            Score::ValidationLoss => epoch.validation_loss.map(|loss| -loss),
        }
    }
}

/// The rule that ends a run before its last epoch: a score has not risen for a number of epochs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStopping {
    /// Epochs without a better score after which it ends.
    pub patience: u64,
    /// The score.
    pub score: Score,
    /// By how much a score must be better to count.
    pub min_delta: f64,
}

/// The rule that ends a run before its last epoch, as set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStoppingSettings {
    /// Epochs without a better score after which it ends.
    pub patience: u64,
    /// The score [default: the score by which checkpoints of the task are compared].
    #[serde(default)]
    pub score: Option<Score>,
    /// By how much a score must be better to count.
    #[serde(default)]
    pub min_delta: f64,
}

impl EarlyStoppingSettings {
    /// Completes it with the score of a task.
    pub(crate) fn for_task(&self, task: &Task) -> EarlyStopping {
        let EarlyStoppingSettings { patience, score, min_delta } = *self;
        EarlyStopping { patience, score: score.unwrap_or_else(|| task.usual_score()), min_delta }
    }

    /// Checks that the numbers make sense.
    ///
    /// # Errors
    /// Returns an error if the patience is 0, or the difference is negative or no number.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check_numbers(self.patience, self.min_delta)
    }
}

/// Checks that a patience is above zero, and that a difference is a number from 0 up.
fn check_numbers(patience: u64, min_delta: f64) -> Result<(), ConfigError> {
    let wrong = |setting, found: String, expected: &str| {
        Err(ConfigError::Value { setting, found, expected: expected.into() })
    };
    if patience == 0 {
        return wrong("early_stopping.patience", "0".into(), "1 or more epochs");
    }
    if !(min_delta.is_finite() && min_delta >= 0.0) {
        return wrong("early_stopping.min_delta", min_delta.to_string(), "a number of 0 or more");
    }
    Ok(())
}

impl EarlyStopping {
    /// Checks that the numbers make sense, and that runs of a task have the score.
    ///
    /// # Errors
    /// Returns an error if the patience is 0, the difference is negative or no number, or the score is of other tasks.
    pub fn check(&self, task: &Task) -> Result<(), ConfigError> {
        check_numbers(self.patience, self.min_delta)?;
        if self.score.is_of(task) {
            return Ok(());
        }
        let known: Vec<&str> =
            Score::ALL.iter().filter(|score| score.is_of(task)).map(|score| score.name()).collect();
        Err(ConfigError::Value {
            setting: "early_stopping.score",
            found: self.score.name().into(),
            expected: format!("runs of this data set have {}", known.join(", ")),
        })
    }

    /// The best score so far and the epochs since, after an epoch; and whether the run ends with it.
    pub fn after(&self, known: Option<(f64, u64)>, epoch: &EpochRecord) -> (Option<(f64, u64)>, bool) {
        let next = match (known, self.score.value(epoch)) {
            (None, score) => score.map(|score| (score, 0)),
            (Some((best, _)), Some(score)) if score > best + self.min_delta => Some((score, 0)),
            (Some((best, since)), _) => Some((best, since + 1)),
        };
        (next, next.is_some_and(|(_, since)| since >= self.patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(score: Option<f64>) -> EpochRecord {
        EpochRecord {
            epoch: 0,
            steps: 1,
            learning_rate: 0.1,
            train_loss: Some(1.0),
            validation_loss: Some(1.0),
            train_loss_parts: Vec::new(),
            validation_loss_parts: Vec::new(),
            pseudo_dice: vec![score],
            mean_pseudo_dice: score,
            ema_pseudo_dice: score,
            classification: None,
            skipped_steps: 0,
            loss_scale: None,
        }
    }

    /// The epoch after which a run with these scores ends.
    fn ends(rule: EarlyStopping, scores: &[Option<f64>]) -> Option<usize> {
        let mut state = None;
        scores.iter().position(|score| {
            let (next, ends) = rule.after(state, &epoch(*score));
            state = next;
            ends
        })
    }

    #[test]
    fn a_run_ends_once_its_score_has_not_risen_for_as_long_as_its_patience() {
        let rule = EarlyStopping { patience: 2, score: Score::PseudoDice, min_delta: 0.0 };
        let some = |scores: &[f64]| scores.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(ends(rule, &some(&[0.1, 0.2, 0.3, 0.4])), None);
        assert_eq!(ends(rule, &some(&[0.1, 0.2, 0.15, 0.2])), Some(3));
        assert_eq!(ends(rule, &some(&[0.1, 0.2, 0.15, 0.3, 0.1, 0.1])), Some(5));
        let strict = EarlyStopping { min_delta: 0.15, ..rule };
        assert_eq!(ends(strict, &some(&[0.1, 0.2, 0.22])), Some(2));
    }

    #[test]
    fn epochs_without_a_score_count_only_after_one_with_a_score() {
        let rule = EarlyStopping { patience: 2, score: Score::PseudoDice, min_delta: 0.0 };
        assert_eq!(ends(rule, &[None, None, None]), None);
        assert_eq!(ends(rule, &[None, Some(0.5), None, None]), Some(3));
    }
}
