//! The description of a model in its file.

use std::collections::BTreeSet;

use plimsoll_memory::Digest;
use plimsoll_run::{CheckpointKind, FoldName, RunConfig, Settings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the description; other versions are refused.
const VERSION: u32 = 1;

/// The description of a model in its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// The version of the description.
    pub version: u32,
    /// The version of the program that wrote the file.
    pub program: String,
    /// The user's settings.
    pub settings: Settings,
    /// All settings, resolved: network, how it was trained; and of the data set its channels, labels and the intensities of its
    /// foreground.
    pub config: RunConfig,
    /// The folds, in order: one at least.
    pub folds: Vec<FoldRecord>,
}

/// The origin of the weights of a fold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldRecord {
    /// The fold.
    pub fold: FoldName,
    /// The kind of checkpoint.
    pub checkpoint: CheckpointKind,
    /// Steps that it was trained for.
    pub steps: u64,
    /// The identity of its [`Specification`](plimsoll_run::Specification): all that its bits follow from, but the machine.
    pub specification: Digest,
    /// Cases that it was trained on, and validated with.
    pub cases: (usize, usize),
    /// The digest of the names and contents of all these cases.
    pub data: Digest,
    /// The digest of the file of initial weights; `None` for random ones.
    pub initial: Option<Digest>,
    /// The backend of its training.
    pub backend: String,
}

impl ModelRecord {
    /// The description of folds of one run.
    pub(super) fn new(settings: Settings, config: RunConfig, folds: Vec<FoldRecord>) -> ModelRecord {
        let program = env!("CARGO_PKG_VERSION").into();
        ModelRecord { version: VERSION, program, settings, config, folds }
    }

    /// From the JSON of a file that anybody may have written; else why not.
    pub(super) fn parse(text: &str) -> Result<ModelRecord, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let problem =
            |problem: serde_json::Error| format!("its description of the model cannot be read: {problem}");
        let value: Value = serde_json::from_str(text).map_err(problem)?;
        let Versioned { version } = Versioned::deserialize(&value).map_err(problem)?;
        if version != VERSION {
            return Err(format!("it has version {version}, but this program reads version {VERSION}"));
        }
        let mut record: ModelRecord = serde_json::from_value(value).map_err(problem)?;
        record.config.restore();
        record
            .settings
            .check()
            .and_then(|()| record.config.check())
            .map_err(|fault| format!("its model is invalid: {fault}"))?;
        let distinct: BTreeSet<FoldName> = record.folds.iter().map(|fold| fold.fold).collect();
        match (record.folds.len(), distinct.len()) {
            (0, _) => Err("it has no fold".into()),
            (all, distinct) if all != distinct => Err("it has a fold twice".into()),
            _ => Ok(record),
        }
    }
}
