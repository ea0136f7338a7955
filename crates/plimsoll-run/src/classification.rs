//! The task of giving each image a class, or labels.

use std::collections::HashMap;

use plimsoll_data::pictures::{
    Augmentation, ImageDataset, Largest, Pipeline, PipelineSettings, SettingError,
};
use plimsoll_data::{Fold, ImageFold, LoaderError, Sampling};
use plimsoll_image::SampleRange;
use plimsoll_nn::{ConfigError, SoftTargets};
use serde::{Deserialize, Serialize};

use crate::{ImageSettings, ImageTarget, RunError};

/// The description of the images that a model was trained on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSummary {
    /// The name of the data set.
    pub name: String,
    /// Its classes, by the numbers of their labels.
    pub classes: Vec<String>,
}

/// A data set of images that a run learns from.
#[derive(Clone, Copy, Debug)]
pub struct ImageSource<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its cases and classes.
    pub dataset: &'a ImageDataset,
    /// The range of its 16-bit samples; `None` if all images have 8 bits.
    pub range_16_bit: Option<SampleRange>,
}

/// A class for each image, or any of several labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassificationTask {
    /// The description of its data set.
    pub dataset: ImageSummary,
    /// The labels that the network classifies, in the order of its classes: all labels, or the two of a pair.
    pub labels: Vec<u32>,
    /// The target of the training.
    pub target: ImageTarget,
    /// The decoding and preparation of images.
    pub pipeline: PipelineSettings,
    /// The random augmentation of images.
    pub augmentation: Augmentation,
    /// The sampling of images.
    pub sampling: Sampling,
}

impl ClassificationTask {
    /// Completes settings with what follows from a data set.
    ///
    /// # Errors
    /// Returns an error if a target is set that does not go with the data set, or classes that it does not have.
    pub fn new(
        settings: &ImageSettings,
        ImageSource { name, dataset, range_16_bit }: ImageSource<'_>,
    ) -> Result<ClassificationTask, RunError> {
        let refuse = |setting, found: String, expected: String| {
            Err(ConfigError::Value { setting, found, expected }.into())
        };
        let usual = if dataset.multi_label { ImageTarget::AnyOf } else { ImageTarget::OneOf };
        let target = settings.target.unwrap_or(usual);
        if (target == ImageTarget::AnyOf) != dataset.multi_label {
            let expected = match dataset.multi_label {
                true => "images of this data set have several labels: any_of",
                false => "each image of this data set has one label: one_of or ordinal",
            };
            return refuse("images.target", format!("{target:?}"), expected.into());
        }
        let known = &dataset.classes;
        let label =
            |class: &String| known.iter().zip(0..).find(|(known, _)| *known == class).map(|(_, label)| label);
        let labels: Vec<u32> = match &settings.classes {
            None => (0..).take(known.len()).collect(),
            Some(classes) => match classes.iter().find(|class| label(class).is_none()) {
                Some(unknown) => {
                    return refuse(
                        "images.classes",
                        unknown.clone(),
                        format!("the data set has {}", known.join(", ")),
                    );
                }
                None => classes.iter().filter_map(label).collect(),
            },
        };
        let task = ClassificationTask {
            dataset: ImageSummary { name: name.into(), classes: known.clone() },
            labels,
            target,
            pipeline: settings.pipeline(range_16_bit),
            augmentation: settings.augmentation(),
            sampling: settings.sampling.unwrap_or_default(),
        };
        task.check()?;
        Ok(task)
    }

    /// The names of the network's classes.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|label| self.dataset.classes.get(*label as usize).map_or("?", String::as_str))
    }

    /// The class of an image with these labels, if the network has it; 0 if images have several labels.
    pub fn class_of(&self, labels: &[u32]) -> Option<u8> {
        if self.target == ImageTarget::AnyOf {
            // Images without any of the labels say what they look like.
            return Some(0);
        }
        let [label] = labels else { return None };
        self.labels.iter().position(|known| known == label).and_then(|class| u8::try_from(class).ok())
    }

    /// The images of a fold with their classes, by their places in the data set.
    ///
    /// # Errors
    /// Returns an error if the data set has no such case, or a case has none of the task's classes.
    pub fn image_fold(
        &self,
        dataset: &ImageDataset,
        cases: &Fold,
        batch: usize,
    ) -> Result<ImageFold, LoaderError> {
        let known: HashMap<&str, usize> =
            dataset.cases.iter().enumerate().map(|(at, case)| (&case.name[..], at)).collect();
        let of = |names: &[String]| -> Result<Vec<(u8, u32)>, LoaderError> {
            let place = |name: &String| {
                let unknown = || LoaderError::UnknownCase { case: name.clone() };
                let at = *known.get(&name[..]).ok_or_else(unknown)?;
                let class = self.class_of(&dataset.cases[at].labels).ok_or_else(unknown)?;
                Ok((class, u32::try_from(at).map_err(|_| unknown())?))
            };
            names.iter().map(place).collect()
        };
        let (train, val) = (of(&cases.train)?, of(&cases.val)?);
        Ok(ImageFold { train, val, sampling: self.sampling, batch, answer: self.answer() })
    }

    /// The outputs of the network where its targets are soft, because images are mixed, have several labels, or are of ordered classes;
    /// else 0.
    pub fn soft_outputs(&self) -> usize {
        match self.soft_targets() {
            SoftTargets::Never => 0,
            SoftTargets::Training | SoftTargets::Always => self.answer().outputs(),
        }
    }

    /// The pipeline for images up to a size.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range.
    pub fn pipeline(&self, largest: Largest) -> Result<Pipeline, SettingError> {
        Pipeline::new(self.pipeline.clone(), largest)
    }

    /// Depth, height, width of what goes into the network.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range.
    pub(crate) fn patch(&self) -> Result<[usize; 3], ConfigError> {
        let extent = self.pipeline(Largest::default()).map_err(|problem| refused(&problem))?.extent();
        Ok([1, extent.height, extent.width])
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.patch()?;
        self.augmentation.check().map_err(|problem| refused(&problem))?;
        let expect = |is_so: bool, setting: &'static str, found: String, expected: &str| match is_so {
            true => Ok(()),
            false => Err(ConfigError::Value { setting, found, expected: expected.into() }),
        };
        expect(
            self.target != ImageTarget::AnyOf || self.sampling == Sampling::Shuffled,
            "images.sampling",
            format!("{:?}", self.sampling),
            "shuffled, where an image may be of several classes",
        )?;
        expect(
            self.target != ImageTarget::Ordinal || self.labels.len() > 2,
            "images.target",
            "ordinal".into(),
            "of three classes or more: any two are in order",
        )?;
        let mut distinct = self.labels.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let known = self.dataset.classes.len();
        let is_each =
            distinct.len() == self.labels.len() && distinct.iter().all(|label| (*label as usize) < known);
        expect(
            is_each && (2..=256).contains(&distinct.len()),
            "images.classes",
            format!("{:?}", self.labels),
            "2 to 256 classes of the data set, each once",
        )
    }

    /// Returns `true` if models of both tasks can be averaged.
    pub(crate) fn predicts_as(&self, other: &ClassificationTask) -> bool {
        self.dataset.classes == other.dataset.classes
            && self.labels == other.labels
            && self.target == other.target
            && self.pipeline == other.pipeline
    }
}

fn refused(problem: &SettingError) -> ConfigError {
    match problem {
        SettingError::Value { setting, value, rule } => {
            ConfigError::Value { setting, found: value.clone(), expected: format!("it must be {rule}") }
        }
        other => {
            ConfigError::Value { setting: "images", found: "as it is".into(), expected: other.to_string() }
        }
    }
}
