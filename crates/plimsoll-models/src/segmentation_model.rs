//! What a model of volumes has to predict with, whoever trained it.

use plimsoll_data::{Channel, IntensityProperties, Preparation};
use plimsoll_graph::DType;
use plimsoll_nn::Network;
use plimsoll_nn::weights::WeightSource;
use std::collections::BTreeMap;

use crate::{Model, ModelError};

/// What a model of volumes has to predict with: a run's, or one that was trained elsewhere.
#[derive(Clone, Debug)]
pub struct SegmentationModel {
    /// The network.
    pub net: Network,
    /// Depth, height, width of a window.
    pub patch: [usize; 3],
    /// How features are stored.
    pub precision: DType,
    /// The weights of each fold; logits of folds are averaged.
    pub weights: Vec<WeightSource>,
    /// The channels of its images.
    pub channels: Vec<Channel>,
    /// What the names of its images end in, with the dot.
    pub file_ending: String,
    /// Intensities of the foreground of the data set it was trained on, by channel.
    pub foreground: BTreeMap<usize, IntensityProperties>,
    /// How images become what the network sees.
    pub preparation: Preparation,
    /// Labels of an earlier network that stand behind the image's channels, one channel for each label above 0; none where there is
    /// no earlier network.
    pub earlier_labels: usize,
    /// What the network's outputs say.
    pub answers: Answers,
    /// What each output is called: a class by its name, a region by its name and the values of its voxels.
    pub outputs: Vec<String>,
    /// Axes of a window along which it may be mirrored, where mirroring is asked for.
    pub mirror_axes: [bool; 3],
    /// Where windows stand, and how much their voxels count.
    pub windows: Windows,
    /// What is interpolated where the windows' grid is not that of the image.
    pub interpolated: Interpolated,
}

/// Where windows over an image stand, and how much each voxel of one counts where they overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows {
    /// As nnU-Net has them: evenly spread, apart as far as is asked for at most; weighted by a Gaussian around the middle with σ an eighth
    /// of the extent.
    Even,
    /// As MONAI's `SlidingWindowInferer` has them: from the first voxel on so far apart, the last one ending with the image.
    Fixed {
        /// The share of a window that the next one covers too, along each axis, from 0 to less than 1.
        overlap: [f64; 3],
        /// The σ of a Gaussian around the middle, as a share of the extent; a voxel counts a thousandth at least. None where all voxels
        /// count alike.
        sigma_scale: Option<f64>,
    },
}

/// What is interpolated between voxels of the windows' grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolated {
    /// Logits, as nnU-Net does it.
    Logits,
    /// Probabilities, the softmax of classes or the sigmoid of each region, as MONAI does it where `Activationsd` comes before `Invertd`.
    Probabilities,
}

/// What the outputs of a network say of a voxel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answers {
    /// One output for each class: the largest is the voxel's, the first of equals, and its index the value that is written.
    Classes(usize),
    /// One output for each region, which may overlap: a region has the voxels where its output is above 0, and its value is written there,
    /// a later region's over an earlier one's.
    Regions(Vec<u16>),
}

impl TryFrom<Model> for SegmentationModel {
    type Error = ModelError;

    /// A run's model, as it was trained: one output for each class or region; those axes may be mirrored along which patches were.
    ///
    /// # Errors
    /// If the run gives whole images a class.
    fn try_from(model: Model) -> Result<SegmentationModel, ModelError> {
        let task = model.config.task.segmentation()?.clone();
        let training = model.config.training;
        let dataset = task.dataset;
        let regions = dataset.labels.regions();
        let (answers, outputs) = match regions.is_empty() {
            true => (Answers::Classes(training.net.classes()), dataset.labels.names().to_vec()),
            false => (
                Answers::Regions(regions.iter().map(|region| region.written.into()).collect()),
                regions.iter().map(|region| format!("{} {:?}", region.name, region.labels)).collect(),
            ),
        };
        Ok(SegmentationModel {
            answers,
            outputs,
            net: training.net,
            patch: training.patch,
            precision: training.precision,
            weights: model.weights,
            channels: dataset.channels,
            file_ending: dataset.file_ending,
            foreground: dataset.foreground_intensity_properties_per_channel,
            preparation: Preparation::Canonical { spacing: task.spacing },
            earlier_labels: 0,
            mirror_axes: task.augmentation.mirrored_axes(),
            windows: Windows::Even,
            interpolated: Interpolated::Logits,
        })
    }
}

impl Answers {
    /// Outputs of the network.
    pub fn outputs(&self) -> usize {
        match self {
            Answers::Classes(classes) => *classes,
            Answers::Regions(values) => values.len(),
        }
    }

    /// The largest value that may be written.
    pub fn largest(&self) -> u16 {
        match self {
            Answers::Classes(classes) => u16::try_from(classes.saturating_sub(1)).unwrap_or(u16::MAX),
            Answers::Regions(values) => values.iter().copied().max().unwrap_or(0),
        }
    }
}
