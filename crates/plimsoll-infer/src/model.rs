//! A trained model on the disk.

use std::path::{Path, PathBuf};

use plimsoll_train::{CONFIG_FILE, CheckpointKind, RunConfig};

use crate::InferError;

/// One fold of a run, or several that are averaged.
#[derive(Clone, Debug)]
pub struct Model {
    /// How it was trained.
    pub config: RunConfig,
    /// The weights of each fold.
    pub weights: Vec<PathBuf>,
}

impl Model {
    /// Opens `folder`: a run, with all folds in it that have the checkpoint; or one fold of a run.
    ///
    /// # Errors
    /// If there is no configuration, or no fold has the checkpoint.
    pub fn open(folder: &Path, checkpoint: CheckpointKind) -> Result<Model, InferError> {
        let file = checkpoint.file();
        let own = folder.join(file);
        let (run, weights) = if own.is_file() {
            let run = if folder.join(CONFIG_FILE).is_file() { folder } else { parent(folder) };
            (run.to_path_buf(), vec![own])
        } else {
            let folds = std::fs::read_dir(folder).map_err(|source| InferError::io(folder, source))?;
            let mut weights: Vec<PathBuf> = folds
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| {
                    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("fold_"))
                })
                .map(|path| path.join(file))
                .filter(|path| path.is_file())
                .collect();
            weights.sort();
            (folder.to_path_buf(), weights)
        };
        if weights.is_empty() {
            return Err(InferError::NoModel { folder: folder.into(), file });
        }
        Ok(Model { config: RunConfig::read(&run)?, weights })
    }
}

fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".."))
}
