//! The task of a run: labels of voxels or classes of images.

use std::collections::BTreeMap;

use plimsoll_data::{
    Augmentation, Channel, Dataset, Fingerprint, IntensityProperties, Labels, Normalisation, Oversampling,
    PatchGrid, SamplerConfig, TargetSpacing, is_case_name, is_image_ending,
};
use plimsoll_graph::ops::Regions;
use plimsoll_nn::{ConfigError, SoftTargets};
use serde::{Deserialize, Serialize};

use crate::bounds::{check_augmentation, check_share, check_spacing};
use crate::{ClassificationTask, RunError, Score, Settings};

/// The task of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a run has one task, and moves it a few times")]
pub enum Task {
    /// A class for each voxel of a volume.
    Segmentation(SegmentationTask),
    /// A class for each image.
    Classification(ClassificationTask),
}

/// The description of the data set that a model was trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatasetSummary {
    /// Its name.
    pub name: String,
    /// The channels of its images.
    pub channels: Vec<Channel>,
    /// Its classes.
    pub labels: Labels,
    /// The ending of its image files.
    pub file_ending: String,
    /// Intensities of the foreground by channel.
    pub foreground_intensity_properties_per_channel: BTreeMap<usize, IntensityProperties>,
}

/// A class for each voxel of a volume: what patches are, and how they are chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentationTask {
    /// The description of its data set.
    pub dataset: DatasetSummary,
    /// The spacing that images are brought to.
    pub spacing: TargetSpacing,
    /// The random augmentation of patches.
    pub augmentation: Augmentation,
    /// The share of patches centred on the foreground.
    pub oversample_foreground: f64,
    /// The choice of these patches.
    pub oversampling: Oversampling,
}

impl Task {
    /// The number of outputs of the network: the number of classes, one less for ordered classes, or the number of regions.
    pub fn outputs(&self) -> usize {
        match self {
            Task::Segmentation(task) => task.dataset.labels.outputs(),
            Task::Classification(task) => task.answer().outputs(),
        }
    }

    /// The number of channels of its images.
    pub fn channels(&self) -> usize {
        match self {
            Task::Segmentation(task) => task.dataset.channels.len(),
            Task::Classification(task) => task.pipeline.channels,
        }
    }

    /// From one voxel of a patch to the next along each axis: the unit of distances in a loss.
    pub fn spacing(&self) -> [f64; 3] {
        match self {
            Task::Segmentation(task) => task.spacing.within_patch(),
            Task::Classification(_) => [1.0; 3],
        }
    }

    /// Returns whether models of both can be averaged: they take the same images, and tell the same classes apart.
    pub fn predicts_as(&self, other: &Task) -> bool {
        match (self, other) {
            (Task::Segmentation(one), Task::Segmentation(other)) => {
                one.spacing == other.spacing
                    && one.dataset.labels == other.dataset.labels
                    && one.dataset.channels == other.dataset.channels
            }
            (Task::Classification(one), Task::Classification(other)) => one.predicts_as(other),
            _ => false,
        }
    }

    /// The changed parts of the data set: classes, channels.
    pub fn changed_data(&self, now: &Task) -> Vec<String> {
        let mut changed = Vec::new();
        match (self, now) {
            (Task::Segmentation(known), Task::Segmentation(found)) => {
                let (known, found) = (&known.dataset, &found.dataset);
                if known.labels != found.labels {
                    changed.push("the classes of dataset.json".to_string());
                }
                let names = |of: &DatasetSummary| {
                    of.channels.iter().map(|channel| channel.name.clone()).collect::<Vec<_>>()
                };
                if names(known) != names(found) {
                    changed.push("the channels of dataset.json".to_string());
                }
            }
            (Task::Classification(known), Task::Classification(found)) => {
                if known.dataset.classes != found.dataset.classes {
                    changed.push("the classes of the images".to_string());
                }
            }
            _ => changed.push("what is learned of it".to_string()),
        }
        changed
    }

    /// Takes over what a model needs to know of the data set.
    pub fn adopt_dataset(&mut self, now: Task) {
        match (self, now) {
            (Task::Segmentation(own), Task::Segmentation(now)) => own.dataset = now.dataset,
            (Task::Classification(own), Task::Classification(now)) => own.dataset = now.dataset,
            (own, now) => *own = now,
        }
    }

    /// Returns whether both normalise images alike, so that one model can predict with the weights of both.
    pub fn normalises_as(&self, other: &Task) -> bool {
        match (self, other) {
            (Task::Segmentation(one), Task::Segmentation(other)) => {
                one.dataset.foreground_intensity_properties_per_channel
                    == other.dataset.foreground_intensity_properties_per_channel
            }
            // For images, the pipeline is already compared.
            _ => true,
        }
    }

    /// Takes over how the images of a run are normalised that was begun before: by the intensities that its data set had then, and by its
    /// range of samples of 16 bits unless one is set. One model predicts with all folds of a run.
    pub fn keep_normalisation(&mut self, begun: &Task, range_is_set: bool) {
        match (self, begun) {
            (Task::Segmentation(own), Task::Segmentation(begun)) => {
                let (own, begun) = (&mut own.dataset, &begun.dataset);
                own.foreground_intensity_properties_per_channel
                    .clone_from(&begun.foreground_intensity_properties_per_channel);
                for (own, begun) in own.channels.iter_mut().zip(&begun.channels) {
                    if own.name == begun.name {
                        own.normalisation = begun.normalisation;
                    }
                }
            }
            (Task::Classification(own), Task::Classification(begun)) if !range_is_set => {
                own.pipeline.decode.range_16_bit = begun.pipeline.decode.range_16_bit;
            }
            // A range that the user sets is kept; another task is another run.
            _ => {}
        }
    }

    /// Takes over the classes of another.
    pub(crate) fn adopt_classes(&mut self, now: &Task) {
        match (self, now) {
            (Task::Segmentation(own), Task::Segmentation(now)) => {
                own.dataset.labels.clone_from(&now.dataset.labels);
            }
            (Task::Classification(own), Task::Classification(now)) => {
                own.dataset.classes.clone_from(&now.dataset.classes);
            }
            // Another task is another run.
            _ => {}
        }
    }

    /// Returns `true` if a text can be the name of a case. Results of images are not named after them.
    pub(crate) fn is_case_name(&self, text: &str) -> bool {
        match self {
            Task::Segmentation(_) => is_case_name(text),
            Task::Classification(_) => !text.is_empty() && !text.contains('\0'),
        }
    }

    /// Checks that the contents of a file are consistent.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self {
            Task::Segmentation(task) => task.check(),
            Task::Classification(task) => task.check(),
        }
    }

    /// The segmentation task.
    ///
    /// # Errors
    /// Returns an error if the task is another.
    pub fn segmentation(&self) -> Result<&SegmentationTask, RunError> {
        match self {
            Task::Segmentation(task) => Ok(task),
            Task::Classification(_) => {
                Err(RunError::OtherTask { is: "gives each image a class", must: "labels voxels" })
            }
        }
    }

    /// The classification task.
    ///
    /// # Errors
    /// Returns an error if the task is another.
    pub fn classification(&self) -> Result<&ClassificationTask, RunError> {
        match self {
            Task::Classification(task) => Ok(task),
            Task::Segmentation(_) => {
                Err(RunError::OtherTask { is: "labels voxels", must: "gives each image a class" })
            }
        }
    }

    /// The programs that have soft targets.
    pub(crate) fn soft_targets(&self) -> SoftTargets {
        match self {
            Task::Segmentation(_) => SoftTargets::Never,
            Task::Classification(task) => task.soft_targets(),
        }
    }

    /// The regions of the outputs, if there are any.
    pub(crate) fn regions(&self) -> Option<Regions> {
        match self {
            Task::Segmentation(task) => {
                let labels = &task.dataset.labels;
                let sets = labels.scored_regions();
                (!sets.is_empty()).then(|| Regions { labels: labels.classes(), sets })
            }
            Task::Classification(_) => None,
        }
    }

    /// The score by which checkpoints are compared and plateaus are found.
    pub fn usual_score(&self) -> Score {
        match self {
            Task::Segmentation(_) => Score::EmaPseudoDice,
            Task::Classification(_) => Score::BalancedAccuracy,
        }
    }
}

impl SegmentationTask {
    /// Completes settings with what follows from a data set.
    pub(crate) fn new(
        settings: &Settings,
        dataset: &Dataset,
        fingerprint: &Fingerprint,
        spacing: TargetSpacing,
        patch: [usize; 3],
    ) -> SegmentationTask {
        let usual = SamplerConfig::new(PatchGrid { patch, spacing }, 2);
        SegmentationTask {
            dataset: DatasetSummary {
                name: dataset.name.clone(),
                channels: dataset.channels.clone(),
                labels: dataset.labels.clone(),
                file_ending: dataset.file_ending.clone(),
                foreground_intensity_properties_per_channel: fingerprint
                    .foreground_intensity_properties_per_channel
                    .clone(),
            },
            spacing,
            augmentation: augmentation(settings, spacing),
            oversample_foreground: settings.oversample_foreground.unwrap_or(usual.oversample_foreground),
            oversampling: settings.oversampling.unwrap_or(usual.oversampling),
        }
    }

    /// 2 if patches are slices, else 3.
    pub fn dimensions(&self) -> usize {
        if self.spacing.is_of_slices() { 2 } else { 3 }
    }

    /// The sampling of `batch_size` patches of a shape.
    pub fn sampler(&self, patch: [usize; 3], batch_size: usize) -> SamplerConfig {
        SamplerConfig {
            grid: PatchGrid { patch, spacing: self.spacing },
            augmentation: self.augmentation,
            batch_size,
            oversample_foreground: self.oversample_foreground,
            oversampling: self.oversampling,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let ending = &self.dataset.file_ending;
        if !is_image_ending(ending) {
            return Err(ConfigError::Value {
                setting: "file_ending",
                found: format!("{ending:?}"),
                expected: "it must be that of images".into(),
            });
        }
        check_spacing(self.spacing)?;
        check_share("oversample_foreground", self.oversample_foreground)?;
        check_augmentation(self.augmentation)
    }

    /// Takes over how another model normalises images, whose weights are to be trained on.
    pub(crate) fn adopt_normalisation(&mut self, model: &SegmentationTask) -> Result<(), RunError> {
        let theirs = &model.dataset;
        self.adopt_channels(&ChannelNormalisation::Each {
            channels: theirs.channels.iter().map(|channel| channel.normalisation).collect(),
            foreground: theirs.foreground_intensity_properties_per_channel.clone(),
        })
    }

    /// Normalises channels as another program does.
    ///
    /// # Errors
    /// Returns an error if it has another number of channels.
    pub(crate) fn adopt_channels(&mut self, theirs: &ChannelNormalisation) -> Result<(), RunError> {
        let own = &mut self.dataset;
        match theirs {
            ChannelNormalisation::Alike(normalisation) => {
                own.channels.iter_mut().for_each(|channel| channel.normalisation = *normalisation);
            }
            ChannelNormalisation::Each { channels, foreground } => {
                if own.channels.len() != channels.len() {
                    let (found, expected) = (own.channels.len(), channels.len());
                    return Err(RunError::OtherChannels { found, expected });
                }
                for (own, theirs) in own.channels.iter_mut().zip(channels) {
                    own.normalisation = *theirs;
                }
                own.foreground_intensity_properties_per_channel.clone_from(foreground);
            }
        }
        Ok(())
    }
}

/// The normalisation of channels that a run takes over from another model.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelNormalisation {
    /// All channels alike, by their own statistics.
    Alike(Normalisation),
    /// Each channel as the channel of the model at its place.
    Each {
        /// By channel.
        channels: Vec<Normalisation>,
        /// Intensities of the foreground of the model's data set, by channel.
        foreground: BTreeMap<usize, IntensityProperties>,
    },
}

/// The augmentation of patches: as set, or nnU-Net's. Slices are not mirrored across slices.
fn augmentation(settings: &Settings, spacing: TargetSpacing) -> Augmentation {
    let mut augmentation = settings.augmentation.unwrap_or_default();
    if spacing.is_of_slices() {
        augmentation.mirror_axes[0] = false;
    }
    augmentation
}
