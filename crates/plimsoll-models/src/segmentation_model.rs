//! A model that labels volumes, of any origin.

use plimsoll_data::{Channel, IntensityProperties, Preparation};
use plimsoll_graph::DType;
use plimsoll_nn::Network;
use plimsoll_nn::weights::WeightSource;
use std::collections::BTreeMap;

use crate::{Model, ModelError};

/// A model that labels volumes: a run's, or one of another program.
#[derive(Clone, Debug)]
pub struct SegmentationModel {
    /// The network.
    pub net: Network,
    /// Depth, height, width of a window.
    pub patch: [usize; 3],
    /// The number format of stored features.
    pub precision: DType,
    /// The weights of each fold; logits of folds are averaged.
    pub weights: Vec<WeightSource>,
    /// The channels of its images.
    pub channels: Vec<Channel>,
    /// The ending of the names of its images, with the dot.
    pub file_ending: String,
    /// Intensities of the foreground of the data set it was trained on, by channel.
    pub foreground: BTreeMap<usize, IntensityProperties>,
    /// The preparation of images.
    pub preparation: Preparation,
    /// The labels of an earlier network after the image's channels, one channel for each label above 0; 0 without an earlier network.
    pub earlier_labels: usize,
    /// The meaning of the network's outputs.
    pub answers: Answers,
    /// The name of each output: of a class, or of a region with the values of its voxels.
    pub outputs: Vec<String>,
    /// The axes of a window along which it may be mirrored.
    pub mirror_axes: [bool; 3],
    /// The positions of windows and the weights of their voxels.
    pub windows: WindowLayout,
    /// The quantity that is interpolated if the grid of windows is not the image's.
    pub interpolated: Interpolated,
}

/// The positions of windows over an image, and the weights of their voxels where they overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowLayout {
    /// nnU-Net's windows: evenly spread with at most the requested step, weighted by a Gaussian around the centre with σ an eighth of the
    /// extent.
    Even,
    /// The windows of MONAI's `SlidingWindowInferer`: at a fixed step from the first voxel on; the last window ends with the image.
    Fixed {
        /// The share of a window that the next one covers too, along each axis, from 0 to less than 1.
        overlap: [f64; 3],
        /// The σ of a Gaussian around the middle, as a share of the extent; a voxel counts a thousandth at least. None where all voxels
        /// count alike.
        sigma_scale: Option<f64>,
    },
    /// One window over all of the image, which is padded behind its last voxels with 0 to an extent that the network takes. Logits depend on all of
    /// the window, so that no smaller ones are possible.
    Whole {
        /// The least extent of the window.
        least: [usize; 3],
    },
    /// Windows of which the voxels count that are further than a margin from each face, or that no other window has. Logits then equal the
    /// logits of one window over all of the image, if they depend on voxels no further than the margin. Under a low memory limit windows are smaller.
    Interior {
        /// Voxels at each face.
        margin: usize,
        /// The extent that smaller images are padded to with 0, whatever the extent of windows is, so that labels do not depend on the limit.
        extent: [usize; 3],
    },
}

/// The quantity that is interpolated between voxels of the windows' grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolated {
    /// Logits, as nnU-Net does it.
    Logits,
    /// Probabilities, the softmax of classes or the sigmoid of each region, as MONAI does it where `Activationsd` comes before `Invertd`.
    Probabilities,
    /// Means of the probabilities of each pass, mirrored or not, and of each fold, as HD-BET does it; not of logits.
    MeanProbabilities,
}

/// The meaning of a network's outputs for a voxel.
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
    /// Returns an error if the run gives whole images a class.
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
            windows: WindowLayout::Even,
            interpolated: Interpolated::Logits,
        })
    }
}

impl SegmentationModel {
    /// The window of an image that becomes a grid of a shape: the model's, unless its layout follows from the image.
    pub fn window_for(&self, grid: [usize; 3]) -> [usize; 3] {
        match self.windows {
            WindowLayout::Whole { least } => {
                let covered = [0, 1, 2].map(|axis| grid[axis].max(least[axis]));
                self.net.extents().next_larger(covered)
            }
            WindowLayout::Even | WindowLayout::Fixed { .. } | WindowLayout::Interior { .. } => self.patch,
        }
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
