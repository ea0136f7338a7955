//! The files of a run.
//!
//! ```text
//! RUN/dataset_fingerprint.json, foreground_index.bin   the inspection of the data set
//! RUN/splits_final.json                                folds, if the data set has none of its own
//! RUN/cv.json                                          scores over all folds
//! RUN/postprocessing.toml                              chosen steps of post-processing
//! RUN/fold_0/specification.json                        the specification of the fold's training
//! RUN/fold_0/lock                                      the process that trains it now
//! RUN/fold_0/metrics.jsonl                             numbers of each epoch
//! RUN/fold_0/events.jsonl                              events with their times
//! RUN/fold_0/run.json                                  its memory and speed
//! RUN/fold_0/arena.svg                                 a drawing of the arena during a step
//! RUN/fold_0/checkpoint_latest.safetensors             and _previous, _best, _final
//! RUN/fold_0/validation/                               predictions of the validation cases, and their scores
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{CheckpointKind, RunError};

/// The first letters of the name of a fold's folder.
const PREFIX: &str = "fold_";

/// The name of a fold: a number of the splits, or nnU-Net's `all`, which trains and validates on all cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FoldName {
    /// A fold of the splits, from 0.
    Number(usize),
    /// All cases.
    All,
}

impl fmt::Display for FoldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FoldName::Number(number) => write!(f, "{number}"),
            FoldName::All => f.write_str("all"),
        }
    }
}

impl FromStr for FoldName {
    type Err = RunError;

    fn from_str(text: &str) -> Result<FoldName, RunError> {
        match text {
            "all" => Ok(FoldName::All),
            _ => text.parse().map(FoldName::Number).map_err(|_| RunError::NoFold { found: text.into() }),
        }
    }
}

impl TryFrom<String> for FoldName {
    type Error = RunError;

    fn try_from(text: String) -> Result<FoldName, RunError> {
        text.parse()
    }
}

impl From<FoldName> for String {
    fn from(name: FoldName) -> String {
        name.to_string()
    }
}

/// The folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder of the classifier of one pair of classes, within the folder of a one-vs-one run. `labels` are the numbers of both
    /// classes.
    pub fn for_pair(run: &Path, labels: (u32, u32)) -> RunFolder {
        RunFolder::new(run.join(format!("pair_{}_{}", labels.0, labels.1)))
    }

    /// The run at a path, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> RunFolder {
        RunFolder { path: path.into() }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a fold, which need not be there yet.
    pub fn fold(&self, name: FoldName) -> FoldFolder {
        FoldFolder { path: self.path.join(format!("{PREFIX}{name}")), name }
    }

    /// All folds that have begun, in order; empty if the folder does not exist.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn folds(&self) -> Result<Vec<FoldFolder>, RunError> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let entries =
            plimsoll_disk::read_dir(&self.path).map_err(|source| RunError::io(&self.path, source))?;
        let mut folds: Vec<FoldFolder> = entries
            .iter()
            .filter_map(|entry| {
                let name = entry.file_name()?.to_str()?.strip_prefix(PREFIX)?;
                Some(self.fold(name.parse().ok()?))
            })
            .filter(FoldFolder::is_begun)
            .collect();
        folds.sort_by_key(FoldFolder::name);
        Ok(folds)
    }

    /// Folds, where the data set has none of its own.
    pub fn splits(&self) -> PathBuf {
        self.path.join("splits_final.json")
    }

    /// Steps that are done on its predictions, where they were chosen.
    pub fn postprocessing(&self) -> PathBuf {
        self.path.join("postprocessing.toml")
    }

    /// Scores over all folds.
    pub fn scores(&self) -> PathBuf {
        self.path.join("cv.json")
    }
}

/// The folder of a fold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldFolder {
    path: PathBuf,
    name: FoldName,
}

impl FoldFolder {
    /// The folder of a fold at a path; `None` if its name is not the name of a fold.
    pub fn at(path: &Path) -> Option<FoldFolder> {
        let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        Some(FoldFolder { path: path.into(), name })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the fold.
    pub fn name(&self) -> FoldName {
        self.name
    }

    /// Returns `true` if a run has begun in it.
    pub fn is_begun(&self) -> bool {
        self.specification().is_file()
    }

    /// The file of the specification.
    pub fn specification(&self) -> PathBuf {
        self.path.join("specification.json")
    }

    /// The lock, which names the process that trains the fold.
    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Numbers of each epoch.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// The file of events.
    pub fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// The file of the numbers of each step, if they are written.
    pub fn steps(&self) -> PathBuf {
        self.path.join("steps.jsonl")
    }

    /// The file of the run's memory and speed.
    pub fn record(&self) -> PathBuf {
        self.path.join("run.json")
    }

    /// The log of printed lines.
    pub fn log(&self) -> PathBuf {
        self.path.join("log.txt")
    }

    /// Curves over the epochs.
    pub fn picture(&self) -> PathBuf {
        self.path.join("progress.png")
    }

    /// The arena while a step runs, as the last process planned it.
    pub fn arena(&self) -> PathBuf {
        self.path.join("arena.svg")
    }

    /// A checkpoint.
    pub fn checkpoint(&self, kind: CheckpointKind) -> PathBuf {
        self.path.join(kind.file())
    }

    /// Predictions of the validation cases.
    pub fn validation(&self) -> PathBuf {
        self.path.join("validation")
    }

    /// The table of the probabilities of the validation images, of a classifier.
    pub fn image_predictions(&self) -> PathBuf {
        self.validation().join("predictions.csv")
    }

    /// The drawing of the validation images that a classifier is most wrong about, where any is.
    pub fn mistakes(&self) -> PathBuf {
        self.validation().join("mistakes.svg")
    }
}
