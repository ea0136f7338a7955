//! Where TotalSegmentator keeps its weights.

use std::path::{Path, PathBuf};

use super::{ModelSize, PartModel, TaskModels};
use crate::ModelError;

/// What the plans of its models are called, by their size.
const PLANS: &str = "nnUNetPlans";
const SMALL_PLANS: &str = "nnUNetResEncUNetLPlans_8";

/// The folder of weights that TotalSegmentator itself uses: `TOTALSEG_WEIGHTS_PATH`, or `nnunet/results` in `TOTALSEG_HOME_DIR`, or in
/// `.totalsegmentator` of the user's home.
///
/// # Errors
/// If there is no home.
pub fn weights_folder() -> Result<PathBuf, ModelError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let in_home = |home: PathBuf| home.join("nnunet").join("results");
    let folder = set("TOTALSEG_WEIGHTS_PATH")
        .or_else(|| set("TOTALSEG_HOME_DIR").map(in_home))
        .or_else(|| set("HOME").map(|home| in_home(home.join(".totalsegmentator"))));
    folder.ok_or(ModelError::NoHome)
}

impl TaskModels {
    /// The folder of a model of this task in a folder of weights.
    ///
    /// # Errors
    /// If it is not there.
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
