//! The models of a service.

use std::path::PathBuf;

use plimsoll::Error;
use plimsoll_memory::Budget;
use plimsoll_models::{Answers, ModelSource, OpenOptions, OpenedModel, SegmentationModel};
use plimsoll_volume::LabelTable;
use serde::Serialize;

use crate::error::ServeError;
use crate::tasks::NamedTask;

/// The longest name.
const MOST_NAME: usize = 64;

/// A model with its name in addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedModel {
    /// The name.
    pub name: String,
    /// The folder or file of the model.
    pub path: PathBuf,
}

/// Refuses a name that is not plain in addresses.
pub(crate) fn check_name(name: &str) -> Result<(), ServeError> {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let has_letter = name.bytes().any(|byte| byte.is_ascii_alphanumeric());
    match has_letter && name.len() <= MOST_NAME && name.bytes().all(is_safe) {
        true => Ok(()),
        false => Err(ServeError::Name { name: name.into() }),
    }
}

/// A label of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Label {
    pub(crate) value: u16,
    pub(crate) name: String,
}

/// A model, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ModelCard {
    pub(crate) name: String,
    /// The channels of an image, in order.
    pub(crate) channels: Vec<String>,
    /// The labels that label maps may have, besides 0 for background.
    pub(crate) labels: Vec<Label>,
    /// Depth, height and width of a window in voxels; `None` of a task, whose networks may have several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<[usize; 3]>,
    /// Folds of weights whose logits are averaged; `None` of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) folds: Option<usize>,
    /// The licence of the weights of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) license: Option<String>,
}

/// The origin of the labels of a model.
#[derive(Debug)]
pub(crate) enum Labeller {
    /// A model that is predicted with.
    Model { path: PathBuf, is_nnunet: bool },
    /// All networks of a task of TotalSegmentator.
    Task(NamedTask),
}

/// A model of a service. Its weights are read for each prediction.
#[derive(Debug)]
pub(crate) struct ServedModel {
    pub(crate) card: ModelCard,
    pub(crate) labeller: Labeller,
}

impl ServedModel {
    /// Opens the model once, to refuse one that cannot predict before any request, and describes it.
    pub(crate) fn open(model: NamedModel, budget: &Budget) -> Result<ServedModel, ServeError> {
        let NamedModel { name, path } = model;
        check_name(&name)?;
        let is_nnunet = matches!(ModelSource::detect(&path).map_err(Error::from)?, ModelSource::NnUnet(_));
        let opened = OpenedModel::open(&path, &OpenOptions::default(), budget).map_err(Error::from)?;
        let model = opened.into_segmentation().map_err(Error::from)?;
        let card = ModelCard {
            labels: labels(&model),
            channels: model.channels.into_iter().map(|channel| channel.name).collect(),
            window: Some(model.patch),
            folds: Some(model.weights.len()),
            license: None,
            name,
        };
        Ok(ServedModel { card, labeller: Labeller::Model { path, is_nnunet } })
    }

    /// Describes a task, and refuses one whose weights are missing before any request.
    pub(crate) fn of_task(task: NamedTask) -> Result<ServedModel, ServeError> {
        Ok(ServedModel { card: task.card()?, labeller: Labeller::Task(task) })
    }

    /// The names of its labels.
    pub(crate) fn table(&self) -> LabelTable {
        LabelTable {
            labels: self.card.labels.iter().map(|label| (label.value, label.name.clone())).collect(),
        }
    }
}

fn labels(model: &SegmentationModel) -> Vec<Label> {
    let values: Vec<u16> = match &model.answers {
        Answers::Classes(classes) => (0..*classes).map(|class| class as u16).collect(),
        Answers::Regions(values) => values.clone(),
    };
    let named = values.into_iter().zip(&model.outputs);
    named.filter(|(value, _)| *value > 0).map(|(value, name)| Label { value, name: name.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_plain_in_addresses_are_accepted() {
        for name in ["liver", "hd-bet_v1.2", "7"] {
            check_name(name).unwrap();
        }
        for name in ["", "..", "a/b", "ü", "a b", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
