//! Finding a model by its folder, or by the names that nnU-Net gives it.

use std::path::{Path, PathBuf};

use super::NnUnetError;
use super::dataset::ModelDataset;
use super::plans::Plans;
use crate::ModelError;

/// Returns `true` if a folder is a trained configuration of nnU-Net, or contains one.
///
/// # Errors
/// Returns an error if it, or a folder in it, cannot be read.
pub fn is_nnunet(folder: &Path) -> Result<bool, ModelError> {
    Ok(holds_model(folder) || folder.join("plans.pkl").is_file() || !models_below(folder, 1)?.is_empty())
}

pub(super) fn holds_model(folder: &Path) -> bool {
    [Plans::FILE, ModelDataset::FILE].iter().all(|file| folder.join(file).is_file())
}

/// The one folder of a trained configuration that a folder is or has in it, as the folder of a data set does.
///
/// # Errors
/// Returns an error if it cannot be read, is one of nnU-Net 1, or has none or several.
pub fn find_model(folder: &Path) -> Result<PathBuf, ModelError> {
    if holds_model(folder) {
        return Ok(folder.into());
    }
    if folder.join("plans.pkl").is_file() {
        return Err(NnUnetError::FirstVersion { folder: folder.into() }.into());
    }
    let found = models_below(folder, 1)?;
    match &found[..] {
        [one] => Ok(one.clone()),
        _ => Err(NnUnetError::NotOne { folder: folder.into(), found }.into()),
    }
}

/// Folders of trained configurations: the folder itself, or folders in it up to `depth` levels deep.
///
/// # Errors
/// Returns an error if a folder cannot be read.
pub fn models_below(folder: &Path, depth: usize) -> Result<Vec<PathBuf>, ModelError> {
    let (mut found, mut left) = (Vec::new(), vec![(folder.to_path_buf(), depth)]);
    while let Some((folder, depth)) = left.pop() {
        if holds_model(&folder) {
            found.push(folder);
        } else if depth > 0 && folder.is_dir() {
            for entry in plimsoll_disk::entries(&folder).map_err(|source| ModelError::io(&folder, source))? {
                let entry = entry.map_err(|source| ModelError::io(&folder, source))?;
                if entry.is_dir() {
                    left.push((entry, depth - 1));
                }
            }
        }
    }
    found.sort();
    Ok(found)
}
