//! The files in which a run tells what it does.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use plimsoll_data::atomic;
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// The file with one JSON line per epoch, in the folder of a fold.
pub const METRICS_FILE: &str = "metrics.jsonl";

/// A component of the loss, without its weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossPart {
    /// Its name; the loss may have several of one name, in the order of its list.
    pub name: String,
    /// Its mean.
    pub value: f64,
}

/// What is told of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// From 0.
    pub epoch: u64,
    /// Steps done since the beginning of the run.
    pub steps: u64,
    /// Of the epoch's last step.
    pub learning_rate: f64,
    /// The mean over the epoch's steps.
    pub train_loss: f64,
    /// The mean over the validated batches.
    pub validation_loss: f64,
    /// Of the finest head, each component that the epoch's steps had: the mean over those that had it.
    #[serde(default)]
    pub train_loss_parts: Vec<LossPart>,
    /// The same over the validated batches.
    #[serde(default)]
    pub validation_loss_parts: Vec<LossPart>,
    /// Dice over all validated voxels taken together, by class from 1; null where a class is nowhere.
    pub pseudo_dice: Vec<Option<f64>>,
    /// The mean of the pseudo-Dice over classes that are somewhere.
    pub mean_pseudo_dice: Option<f64>,
    /// Its exponential moving average, 0.9 of the last one and 0.1 of the new.
    pub ema_pseudo_dice: Option<f64>,
    /// Of the epoch, with validation.
    pub seconds: f64,
    /// Resident memory at the end of the epoch.
    pub resident_bytes: u64,
}

/// A file of JSON lines that is cut back to where a checkpoint left it.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Journal {
    /// Opens or makes the file, and cuts off what is beyond `length`: lines of epochs that will be run again.
    pub(crate) fn open(path: PathBuf, length: u64) -> Result<Journal, TrainError> {
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        let file = opened.map_err(|source| TrainError::io(&path, source))?;
        let found = file.metadata().map_err(|source| TrainError::io(&path, source))?.len();
        if found < length {
            let why = format!("it has {found} bytes, but the checkpoint was written after {length}");
            return Err(TrainError::Json { path, why });
        }
        file.set_len(length).map_err(|source| TrainError::io(&path, source))?;
        Ok(Journal { path, file, length })
    }

    /// Appends a line, and waits until the disk has it.
    pub(crate) fn append(&mut self, record: &impl Serialize) -> Result<(), TrainError> {
        let json = |problem: serde_json::Error| TrainError::Json {
            path: self.path.clone(),
            why: problem.to_string(),
        };
        let mut line = serde_json::to_vec(record).map_err(json)?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|source| TrainError::io(&self.path, source))?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// How long the file is.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }
}

/// Writes a value as JSON, whole or not at all.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainError> {
    let written = atomic::write(path, |file| {
        serde_json::to_writer_pretty(&mut *file, value)?;
        file.write_all(b"\n")
    });
    written.map_err(|source| TrainError::io(path, source))
}
