//! The steps of post-processing: from a file of our own, of nnU-Net, or of the model.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use plimsoll_models::nnunet::{KeepLargest, read_postprocessing};
use plimsoll_postprocess::{LabelSet, Neighbours, Postprocessing, Step, is_json};
use plimsoll_run::RunFolder;
use serde_json::Value;

use crate::error::{Error, Outcome};

/// A choice of the steps after a prediction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StepChoice {
    /// None.
    #[default]
    None,
    /// Those that the model has, if it has any.
    OfModel,
    /// Those of a file.
    Of(PathBuf),
}

impl StepChoice {
    /// The steps for a model, and their file; `None` without steps.
    pub fn steps(&self, model: &Path, budget: &Budget) -> Outcome<Option<(PathBuf, Vec<Step>)>> {
        match self {
            StepChoice::None => Ok(None),
            StepChoice::Of(path) => Ok(Some((path.clone(), read_steps(path, budget)?))),
            StepChoice::OfModel => Ok(model_steps(model)?.filter(|(_, steps)| !steps.is_empty())),
        }
    }
}

/// The steps that a model has, and the file that they are in.
pub fn model_steps(model: &Path) -> Outcome<Option<(PathBuf, Vec<Step>)>> {
    // A model in one file has none beside it.
    if !model.is_dir() {
        return Ok(None);
    }
    let path = RunFolder::new(model).postprocessing();
    match plimsoll_disk::exists(&path).map_err(|error| Error::at_path(&path, &error))? {
        false => Ok(None),
        true => {
            let steps = Postprocessing::read(&path)?.steps;
            Ok(Some((path, steps)))
        }
    }
}

/// The longest file that is looked into: nnU-Net's, of as many labels as there can be.
const LONGEST: u64 = 1 << 20;

/// Reads steps: `.json` is nnU-Net's if it has its keys, and everything else is our own.
pub fn read_steps(path: &Path, budget: &Budget) -> Outcome<Vec<Step>> {
    if is_json(path) && is_nnunets(path)? {
        return Ok(read_postprocessing(path, budget)?.into_iter().filter_map(step).collect());
    }
    Ok(Postprocessing::read(path)?.steps)
}

fn is_nnunets(path: &Path) -> Outcome<bool> {
    let text = plimsoll_disk::read(path, LONGEST).map_err(|error| Error::at_path(path, &error))?;
    // Invalid JSON is reported by our own reader, with its line.
    let value = serde_json::from_slice::<Value>(&text).ok();
    Ok(value.is_some_and(|value| value.get("postprocessing_fns").is_some()))
}

/// A step of nnU-Net; `None` if it names no label but the background, which it leaves unchanged.
fn step(KeepLargest { labels }: KeepLargest) -> Option<Step> {
    let labels: BTreeSet<u16> = labels.into_iter().filter(|label| *label != 0).collect();
    let labels = LabelSet::try_from(labels).ok()?;
    Some(Step::KeepLargest { labels, together: true, neighbours: Neighbours::Corners })
}
