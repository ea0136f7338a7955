//! The folder of TotalSegmentator's weights.

use std::path::{Path, PathBuf};

use super::{ModelSize, PartModel, TaskModels};
use crate::ModelError;

/// The names of its models' plans, by size.
const PLANS: &str = "nnUNetPlans";
const SMALL_PLANS: &str = "nnUNetResEncUNetLPlans_8";

/// Returns the folder of weights in TotalSegmentator's home, which is `.totalsegmentator` in the user's unless its variable names another.
pub fn weights_in_home(home: &Path) -> PathBuf {
    home.join("nnunet").join("results")
}

impl TaskModels {
    /// The folder of a model of this task in a folder of weights.
    ///
    /// # Errors
    /// Returns an error if it is not there.
    pub fn folder(&self, part: &PartModel, size: ModelSize, weights: &Path) -> Result<PathBuf, ModelError> {
        let begins = format!("Dataset{:03}_", part.dataset);
        let plans = match size {
            ModelSize::Big => PLANS,
            ModelSize::Small => SMALL_PLANS,
        };
        let model = format!("{}__{plans}__{}", self.trainer, self.configuration);
        let none = || ModelError::NoTaskWeights {
            dataset: part.dataset,
            folder: weights.into(),
            model: model.clone(),
        };
        let entries = plimsoll_disk::read_dir(weights).map_err(|_| none())?;
        let mut found: Vec<PathBuf> = entries
            .into_iter()
            .filter(|path| {
                path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&begins))
            })
            .map(|path| path.join(&model))
            .filter(|path| path.is_dir())
            .collect();
        // A listing has no order of its own.
        found.sort();
        found.into_iter().next().ok_or_else(none)
    }
}
