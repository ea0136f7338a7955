//! What a run or a fold of one has to predict with.

use std::path::{Path, PathBuf};

use crate::{CheckpointKind, FoldFolder, RunConfig, RunError, RunFolder, Specification};

/// One fold of a run, or several that are averaged.
#[derive(Clone, Debug)]
pub struct Model {
    /// How it was trained.
    pub config: RunConfig,
    /// The weights of each fold.
    pub weights: Vec<PathBuf>,
}

impl Model {
    /// How the model in `folder` was trained, a run or one fold of one, whether it has weights already or not.
    ///
    /// # Errors
    /// If there is no run, or its specification cannot be read.
    pub fn plans(folder: &Path) -> Result<RunConfig, RunError> {
        let fold = match FoldFolder::at(folder).filter(FoldFolder::is_begun) {
            Some(fold) => Some(fold),
            None => RunFolder::new(folder).folds()?.into_iter().next(),
        };
        let fold = fold.ok_or_else(|| RunError::NoRun { folder: folder.into() })?;
        Ok(Specification::read(&fold)?.config)
    }

    /// Opens `folder`: a run, with all folds in it that have the checkpoint; or one fold of a run.
    ///
    /// # Errors
    /// If no fold has the checkpoint, a specification cannot be read, or folds are of different networks.
    pub fn open(folder: &Path, checkpoint: CheckpointKind) -> Result<Model, RunError> {
        let own = FoldFolder::at(folder).filter(FoldFolder::is_begun);
        let folds = match own {
            Some(fold) => vec![fold],
            None if folder.is_dir() => RunFolder::new(folder).folds()?,
            None => Vec::new(),
        };
        let folds: Vec<FoldFolder> =
            folds.into_iter().filter(|fold| fold.checkpoint(checkpoint).is_file()).collect();
        let Some((first, others)) = folds.split_first() else {
            return Err(RunError::NoModel { folder: folder.into(), file: checkpoint.file() });
        };
        let config = Specification::read(first)?.config;
        for other in others {
            let found = Specification::read(other)?.config;
            let is_same = found.training.net == config.training.net
                && found.training.patch == config.training.patch
                && found.task.predicts_as(&config.task);
            if !is_same {
                return Err(RunError::FoldsDiffer { one: first.path().into(), other: other.path().into() });
            }
        }
        let weights = folds.iter().map(|fold| fold.checkpoint(checkpoint)).collect();
        Ok(Model { config, weights })
    }
}
