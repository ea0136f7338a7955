//! Opening a model's file, and what it is in words.

use std::path::{Path, PathBuf};

use plimsoll_data::TargetSpacing;
use plimsoll_nn::weights::{SafetensorsFile, WeightError, WeightSource};
use plimsoll_run::{CheckpointKind, FoldName, RunError, Task, printable};

use super::{ModelRecord, RECORD, prefix};
use crate::{Model, ModelError};

/// A model's file whose header is sound.
#[derive(Clone, Debug)]
pub struct ModelFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The description of the model.
    pub record: ModelRecord,
    /// The digest of all that it says, weights included.
    pub digest: String,
    /// The number of tensors.
    pub tensors: usize,
}

impl ModelFile {
    /// Returns `true` if a file begins like a model file. Other faults are reported by [`open`](Self::open).
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn is_one(path: &Path) -> Result<bool, ModelError> {
        match SafetensorsFile::open(path) {
            Ok(file) => Ok(file.metadata().contains_key(RECORD)),
            Err(WeightError::Io { path, source }) => Err(RunError::Io { path, source }.into()),
            Err(_) => Ok(false),
        }
    }

    /// Opens a model file. The header is checked against its checksum and its length, the description against the bounds of settings, and
    /// each fold for tensors, all in f32. The tensors themselves are checked when they are read.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is no model file, or is damaged.
    pub fn open(path: &Path) -> Result<ModelFile, ModelError> {
        let (file, record) = ModelFile::read(path)?;
        let refuse = |why: String| ModelError::ModelFile { path: path.into(), why };
        let digest = file.digest().ok_or_else(|| refuse("it has no checksums".into()))?.to_string();
        let tensors = file.tensors().count();
        let prefixes: Vec<String> = record.folds.iter().map(|fold| prefix(fold.fold)).collect();
        let is_of_fold = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if let Some((name, _)) = file.tensors().find(|(name, _)| !is_of_fold(name)) {
            return Err(refuse(format!("`{name}` belongs to no listed fold")));
        }
        if let Some((name, _)) = file.tensors().find(|(name, _)| file.dtype(name) != Some("F32")) {
            return Err(refuse(format!("`{name}` is not in f32")));
        }
        if let Some(missing) =
            prefixes.iter().find(|prefix| !file.tensors().any(|(name, _)| name.starts_with(*prefix)))
        {
            return Err(refuse(format!("it has no tensor of {}", missing.trim_end_matches('.'))));
        }
        Ok(ModelFile { path: path.into(), record, digest, tensors })
    }

    /// Reads the header of a model file, with the description of the model.
    pub(super) fn read(path: &Path) -> Result<(SafetensorsFile, ModelRecord), ModelError> {
        let refuse = |why: String| ModelError::ModelFile { path: path.into(), why };
        let file = SafetensorsFile::open(path).map_err(|error| match error {
            WeightError::Format { why, .. } => refuse(why),
            other => other.into(),
        })?;
        let text = file.metadata().get(RECORD);
        let text = text.ok_or_else(|| refuse("it has weights, but no description of their model".into()))?;
        let record = ModelRecord::parse(text).map_err(refuse)?;
        Ok((file, record))
    }

    /// The source of the weights of each fold.
    pub fn weights(&self) -> Vec<WeightSource> {
        let of =
            |fold: &super::FoldRecord| WeightSource { path: self.path.clone(), prefix: prefix(fold.fold) };
        self.record.folds.iter().map(of).collect()
    }

    /// Returns the weights of a fold, if the file has it.
    pub fn weights_of(&self, fold: FoldName) -> Option<WeightSource> {
        let has_fold = self.record.folds.iter().any(|known| known.fold == fold);
        has_fold.then(|| WeightSource { path: self.path.clone(), prefix: prefix(fold) })
    }

    /// The model of the file.
    pub fn model(&self) -> Model {
        Model { config: self.record.config.clone(), weights: self.weights() }
    }

    /// A description in lines.
    pub fn lines(&self) -> Vec<String> {
        let ModelRecord { program, config, folds, .. } = &self.record;
        let [depth, height, width] = config.training.patch;
        let mut lines = vec![format!("network   {}", config.training.net.describe())];
        match &config.task {
            Task::Segmentation(task) => {
                let channels: Vec<&str> =
                    task.dataset.channels.iter().map(|channel| channel.name.as_str()).collect();
                // As many digits as a header has.
                let lengths: Vec<f32> = task.spacing.lengths().iter().map(|length| *length as f32).collect();
                let at = match task.spacing {
                    TargetSpacing::Native(_) => {
                        format!("at the spacing of each image, of training {lengths:?} mm")
                    }
                    _ => format!("at {lengths:?} mm"),
                };
                lines.push(format!("windows   {depth} × {height} × {width}, {at}"));
                lines.push(format!("channels  {}", channels.join(", ")));
                let labels = &task.dataset.labels;
                lines.push(format!("labels    {}", labels.names().join(", ")));
                if !labels.regions().is_empty() {
                    lines.push(format!("regions   {}", labels.scored_names()[1..].join(", ")));
                }
                lines.push(format!("data set  {}", task.dataset.name));
            }
            Task::Classification(task) => {
                lines.push(format!("images    {height} × {width}, channels {}", task.pipeline.channels));
                lines.push(format!("classes   {}", task.classes().collect::<Vec<_>>().join(", ")));
                lines.push(format!("data set  {}", task.dataset.name));
            }
        }
        for fold in folds {
            let kind = match fold.checkpoint {
                CheckpointKind::Latest => "latest",
                CheckpointKind::Previous => "previous",
                CheckpointKind::Best => "best",
                CheckpointKind::Final => "final",
            };
            lines.push(format!(
                "fold {}    {} steps ({kind}), {} cases to train on and {} to validate with; specification {}, data {}",
                fold.fold, fold.steps, fold.cases.0, fold.cases.1, fold.specification, fold.data
            ));
        }
        lines.push(format!(
            "written   by version {program}; {} tensors, digest {}",
            self.tensors, self.digest
        ));
        // These names are from a file of unknown origin.
        lines.iter().map(|line| printable(line).replace(['\n', '\t'], " ")).collect()
    }
}
