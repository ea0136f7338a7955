//! Where the files of a run lie.
//!
//! ```text
//! RUN/dataset_fingerprint.json, foreground_index.bin   what was found out about the data set
//! RUN/splits_final.json                                folds, where the data set has none of its own
//! RUN/cv.json                                          scores over all folds
//! RUN/postprocessing.toml                              steps that help, where they were chosen
//! RUN/fold_0/specification.json                        what the fold's training is
//! RUN/fold_0/lock                                      who trains it now
//! RUN/fold_0/metrics.jsonl                             numbers of each epoch
//! RUN/fold_0/events.jsonl                              what happened, and when
//! RUN/fold_0/run.json                                  what it held and how fast it was
//! RUN/fold_0/arena.svg                                 the arena while a step runs, drawn
//! RUN/fold_0/checkpoint_latest.safetensors             and _previous, _best, _final
//! RUN/fold_0/validation/                               predictions of the validation cases, and their scores
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{CheckpointKind, RunError};

/// What the folder of a fold begins with.
const PREFIX: &str = "fold_";

/// Which fold: one of the splits, or nnU-Net's `all`, which trains and validates on all cases.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a fold, which need not be there yet.
    pub fn fold(&self, name: FoldName) -> FoldFolder {
        FoldFolder { path: self.path.join(format!("{PREFIX}{name}")), name }
    }

    /// All folds that were begun, in order; none where the folder is not there.
    ///
    /// # Errors
    /// If it cannot be read.
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
    /// The folder of a fold at a place that is named after it; none if its name is no fold's.
    pub fn at(path: &Path) -> Option<FoldFolder> {
        let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        Some(FoldFolder { path: path.into(), name })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which fold.
    pub fn name(&self) -> FoldName {
        self.name
    }

    /// Whether a run was begun in it.
    pub fn is_begun(&self) -> bool {
        self.specification().is_file()
    }

    /// What the fold's training is.
    pub fn specification(&self) -> PathBuf {
        self.path.join("specification.json")
    }

    /// Who trains it now.
    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Numbers of each epoch.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// What happened, and when.
    pub fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// Numbers of each step, where they are asked for.
    pub fn steps(&self) -> PathBuf {
        self.path.join("steps.jsonl")
    }

    /// What the run held and how fast it was.
    pub fn record(&self) -> PathBuf {
        self.path.join("run.json")
    }

    /// What was printed.
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
