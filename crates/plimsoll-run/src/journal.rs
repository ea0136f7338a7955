//! The numbers of each epoch: one JSON line for each.
//!
//! They follow from the specification alone: a run that was killed and resumed has the same file, byte for byte, as an undisturbed run.
//! The cost of an epoch is among the events.

use std::path::PathBuf;

use plimsoll_disk::Appender;
use serde::{Deserialize, Serialize};

use crate::{FoldFolder, LONGEST_LINE, LossScale, RunError, each_line};

/// A component of the loss, without its weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossPart {
    /// Its name; the loss may have several of one name, in the order of its list.
    pub name: String,
    /// Its mean.
    pub value: f64,
}

/// The numbers of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// From 0.
    pub epoch: u64,
    /// Steps done since the beginning of the run.
    pub steps: u64,
    /// The learning rate of the epoch's last step.
    pub learning_rate: f64,
    /// The mean over the epoch's steps, those left out whose numbers went wrong; null where that is all of them.
    pub train_loss: Option<f64>,
    /// The mean over the validated patches; null where it is no number.
    pub validation_loss: Option<f64>,
    /// The mean of each component of the loss of the finest head, over the steps that had it.
    pub train_loss_parts: Vec<LossPart>,
    /// The same over the validated patches.
    pub validation_loss_parts: Vec<LossPart>,
    /// Dice over all validated voxels taken together, by class from 1; null where a class is nowhere.
    pub pseudo_dice: Vec<Option<f64>>,
    /// The mean of the pseudo-Dice over classes that are somewhere.
    pub mean_pseudo_dice: Option<f64>,
    /// Its exponential moving average, 0.9 of the last one and 0.1 of the new.
    pub ema_pseudo_dice: Option<f64>,
    /// The scores of the validated images; null for volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classification: Option<ClassScores>,
    /// Steps of the run whose numbers went wrong and that were skipped, so far.
    pub skipped_steps: u64,
    /// The scale of the loss after the epoch, and the steps of the run that were skipped because of it; absent where features are not
    /// stored in halves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
}

/// The scores of a classification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// The share of correctly classified images; for several labels, the share of right decisions on labels.
    pub accuracy: f64,
    /// The mean of that share over classes; of several labels the mean of (sensitivity + specificity) / 2, of one of the two where the
    /// other is undefined.
    pub balanced_accuracy: f64,
    /// Quadratic weighted kappa; null where all images have one class, or images have several labels.
    pub kappa: Option<f64>,
    /// The scores of each label, if images have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<LabelScores>,
}

/// The scores of one label of several. A ratio with a zero denominator is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelScores {
    /// The name of the label.
    pub label: String,
    /// TP / (TP + FN).
    pub sensitivity: Option<f64>,
    /// TN / (TN + FP).
    pub specificity: Option<f64>,
    /// 2 TP / (2 TP + FP + FN).
    pub f1: Option<f64>,
}

/// The file of a fold, cut back to where a checkpoint left it.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Appender,
    missing: bool,
}

impl Journal {
    /// Opens or creates the file, and cuts off lines of epochs beyond `steps`, which will be repeated. A line that a killed process did
    /// not finish, or a disk has lost, is cut off with all lines after it.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn open(folder: &FoldFolder, steps: u64, steps_of_an_epoch: u64) -> Result<Journal, RunError> {
        let path = folder.metrics();
        let io = |source| RunError::io(&path, source);
        let (mut kept, mut last) = (0, 0);
        for_each_line(folder, |record, end| {
            let follows = record.steps > last && record.steps <= steps;
            if follows {
                (kept, last) = (end, record.steps);
            }
            follows
        })?;
        let mut file = Appender::open(&path).map_err(io)?;
        file.truncate(kept).map_err(io)?;
        let missing = last != steps - steps % steps_of_an_epoch.max(1);
        Ok(Journal { path, file, missing })
    }

    /// Returns `true` if lines of finished epochs are missing.
    pub fn misses_epochs(&self) -> bool {
        self.missing
    }

    /// Appends a line, and waits until the disk has it.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn append(&mut self, record: &EpochRecord) -> Result<(), RunError> {
        let json =
            |problem: serde_json::Error| RunError::Json { path: self.path.clone(), why: problem.to_string() };
        let line = serde_json::to_vec(record).map_err(json)?;
        self.file.append(&line).map_err(|source| RunError::io(&self.path, source))
    }
}

/// Passes all records of a fold to `each`, in order, up to the first invalid line.
///
/// # Errors
/// Returns an error if the file exists but cannot be read.
pub fn each_epoch(folder: &FoldFolder, mut each: impl FnMut(EpochRecord)) -> Result<(), RunError> {
    for_each_line(folder, |record, _| {
        each(record);
        true
    })
}

/// Passes each whole line with where it ends, until one is none, or the function says to stop.
fn for_each_line(
    folder: &FoldFolder,
    mut each: impl FnMut(EpochRecord, u64) -> bool,
) -> Result<(), RunError> {
    let path = folder.metrics();
    each_line(&path, LONGEST_LINE, |line, end| {
        let record = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
        record.is_some_and(|record| each(record, end))
    })
    .map_err(|source| RunError::io(&path, source))
}
