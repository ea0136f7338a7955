//! The model of a run or of one of its folds.

use std::path::Path;

use plimsoll_nn::weights::WeightSource;
use plimsoll_run::{CheckpointKind, FoldFolder, RunConfig, RunError, RunFolder, Specification};

use crate::ModelError;

/// One fold of a run, or several that are averaged.
#[derive(Clone, Debug)]
pub struct Model {
    /// The configuration of its training.
    pub config: RunConfig,
    /// The weights of each fold.
    pub weights: Vec<WeightSource>,
}

impl Model {
    /// The configuration of the model in `folder`, a run or one of its folds, whether it has weights yet or not.
    ///
    /// # Errors
    /// Returns an error if there is no run, or its specification cannot be read.
    pub fn plans(folder: &Path) -> Result<RunConfig, ModelError> {
        let fold = first_fold(folder)?.ok_or_else(|| ModelError::NoRun { folder: folder.into() })?;
        Ok(Specification::read(&fold)?.config)
    }

    /// Opens `folder`: a run, with all folds in it that have the checkpoint; or one fold of a run.
    ///
    /// # Errors
    /// Returns an error if no fold has the checkpoint, a specification cannot be read, or folds are of different networks.
    pub fn open(folder: &Path, checkpoint: CheckpointKind) -> Result<Model, ModelError> {
        let folds = trained_folds(folder, checkpoint)?;
        let weights = folds.iter().map(|(fold, _)| fold.checkpoint(checkpoint).into()).collect();
        let none = || ModelError::NoModel { folder: folder.into(), file: checkpoint.file() };
        let config = folds.into_iter().next().map(|(_, specification)| specification.config);
        Ok(Model { config: config.ok_or_else(none)?, weights })
    }
}

/// Returns the fold that a folder is, or the first fold of the run that it is; none of a folder without a fold.
pub(crate) fn first_fold(folder: &Path) -> Result<Option<FoldFolder>, RunError> {
    match FoldFolder::at(folder).filter(FoldFolder::is_begun) {
        Some(fold) => Ok(Some(fold)),
        None => Ok(RunFolder::new(folder).folds()?.into_iter().next()),
    }
}

/// The folds of a run that have a checkpoint, or the one fold that `folder` is, with what they were trained as. There is one at least.
///
/// # Errors
/// Returns an error if no fold has the checkpoint, a specification cannot be read, or folds are of different networks.
pub(crate) fn trained_folds(
    folder: &Path,
    checkpoint: CheckpointKind,
) -> Result<Vec<(FoldFolder, Specification)>, ModelError> {
    let own = FoldFolder::at(folder).filter(FoldFolder::is_begun);
    let folds = match own {
        Some(fold) => vec![fold],
        None if folder.is_dir() => RunFolder::new(folder).folds()?,
        None => Vec::new(),
    };
    let trained = folds.into_iter().filter(|fold| fold.checkpoint(checkpoint).is_file());
    let trained = trained.map(|fold| Specification::read(&fold).map(|specification| (fold, specification)));
    let trained: Vec<(FoldFolder, Specification)> = trained.collect::<Result<_, _>>()?;
    let Some(((first, known), others)) = trained.split_first() else {
        return Err(ModelError::NoModel { folder: folder.into(), file: checkpoint.file() });
    };
    let is_same = |found: &RunConfig| {
        found.training.net == known.config.training.net
            && found.training.patch == known.config.training.patch
            && found.task.predicts_as(&known.config.task)
            && found.task.normalises_as(&known.config.task)
    };
    match others.iter().find(|(_, other)| !is_same(&other.config)) {
        Some((other, _)) => {
            Err(ModelError::FoldsDiffer { one: first.path().into(), other: other.path().into() })
        }
        None => Ok(trained),
    }
}
