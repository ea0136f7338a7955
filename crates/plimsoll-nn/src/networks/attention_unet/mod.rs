//! `monai.networks.nets.AttentionUnet` (Oktay et al. 2018, arXiv:1804.03999): a U-Net whose skip connections are weighted voxel by voxel.
//!
//! A stage has two convolutions, each with batch normalisation and ReLU. On the way up, a transposed convolution of that kind makes a map of
//! the extent of the finer stage. Of both maps a gate makes a factor from 0 to 1 for each voxel of the skip connection. A convolution over
//! the weighted skip connection and the map from below, with instance normalisation and PReLU, gives the stage's result.

mod forward;
mod layers;

use plimsoll_graph::{Program, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use self::layers::Layer;
use super::batch_norm::is_running;
use super::bounds::{LARGEST_KERNEL, Lists, MOST_FEATURES, check_count, check_probability};
use super::builder::NetBuilder;
use super::segresnet_stages::along;
use super::unet::narrower;
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::uniform;
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// MONAI's AttentionUnet. Lists go from the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionUnet {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// 2 or 3.
    pub dimensions: usize,
    /// Channels of each stage (MONAI's `channels`).
    pub features: Vec<usize>,
    /// Stride into each stage; that into the first is 1 and is not in MONAI's `strides`.
    pub strides: Vec<[usize; 3]>,
    /// Extent of the kernels of stages, odd; transposed convolutions and those that merge maps have kernels of 3.
    pub kernel_size: usize,
    /// The probability with which an element of a normalised map is dropped while training.
    pub dropout: f32,
}

/// Channels of each stage unless others are given; MONAI's constructor has no default.
const FEATURES: [usize; 5] = [16, 32, 64, 128, 256];
/// The initial slope of PReLUs in PyTorch.
const SLOPE: f32 = 0.25;

impl AttentionUnet {
    pub(super) const SETTINGS: &[&str] = &["features", "strides", "kernel_size", "dropout"];

    /// `AttentionUnet(3, in_channels, classes, features, strides)` with a stride of 2 into each stage but the first.
    pub fn new(in_channels: usize, classes: usize, features: &[usize]) -> AttentionUnet {
        let mut strides = vec![[2; 3]; features.len()];
        strides.iter_mut().take(1).for_each(|first| *first = [1; 3]);
        AttentionUnet {
            in_channels,
            classes,
            dimensions: 3,
            features: features.to_vec(),
            strides,
            kernel_size: 3,
            dropout: 0.0,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> AttentionUnet {
        let dimensions = design.dimensions();
        let stages = settings.strides.as_ref().map_or(FEATURES.len(), Vec::len).min(FEATURES.len());
        let features = settings.features.clone().unwrap_or_else(|| FEATURES[..stages].to_vec());
        let usual = AttentionUnet::new(design.in_channels, design.classes, &features);
        let flat = |stride: &[usize; 3]| along(dimensions, stride[2]);
        AttentionUnet {
            dimensions,
            strides: settings.strides.clone().unwrap_or_else(|| usual.strides.iter().map(flat).collect()),
            kernel_size: settings.kernel_size.unwrap_or(usual.kernel_size),
            dropout: settings.dropout.unwrap_or(usual.dropout),
            ..usual
        }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> AttentionUnet {
        AttentionUnet::new(1, 2, features.unwrap_or(&FEATURES))
    }

    /// The number of stages.
    fn stages(&self) -> usize {
        self.features.len()
    }

    /// Channels of the maps inside of the gate of a stage.
    fn gate_features(&self, stage: usize) -> usize {
        self.features[stage] / 2
    }
}

impl Architecture for AttentionUnet {
    fn name(&self) -> &'static str {
        "attentionunet"
    }

    fn check(&self) -> Result<(), ConfigError> {
        let value = |setting, found: String, expected: &str| {
            Err(ConfigError::Value { setting, found, expected: expected.into() })
        };
        Lists { features: &self.features, strides: &self.strides, ..Lists::default() }.check()?;
        check_count("dimensions", self.dimensions, 2, 3)?;
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 2, 255)?;
        check_probability("dropout", self.dropout)?;
        let stages = self.stages();
        if stages < 2 {
            return value("features", stages.to_string(), "at least two stages are needed");
        }
        if self.strides.len() != stages {
            let (list, found) = ("strides", self.strides.len());
            return Err(ConfigError::Length { list, found, stages, expected: stages });
        }
        if self.strides[0] != [1; 3] {
            return value("strides", format!("{:?} first", self.strides[0]), "the first must be 1");
        }
        // A kernel shorter than its stride would leave voxels that no tap reaches.
        if let Some(stride) = self.strides.iter().find(|stride| stride.iter().any(|extent| *extent > 3)) {
            return value("strides", format!("{stride:?}"), "transposed convolutions have kernels of 3");
        }
        if self.dimensions == 2
            && let Some(stride) = self.strides.iter().find(|stride| stride[0] != 1)
        {
            return value("strides", format!("{stride:?}"), "slices have no neighbours along the depth");
        }
        check_count("kernel_size", self.kernel_size, 1, LARGEST_KERNEL)?;
        if self.kernel_size.is_multiple_of(2) {
            return value("kernel_size", self.kernel_size.to_string(), "it must be odd");
        }
        // The gate of a stage halves its channels.
        match self.features[..stages - 1].iter().find(|features| **features < 2) {
            Some(_) => value("features", "1".into(), "all stages but the coarsest need two channels or more"),
            None => Ok(()),
        }
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        let of = |layer: Layer| {
            let taps: f64 = layer.kernel.iter().map(|extent| *extent as f64).product();
            taps * layer.inputs as f64 * layer.outputs as f64
        };
        self.layers().into_iter().map(of).sum()
    }

    fn extents(&self) -> Extents {
        let multiple = [0, 1, 2]
            .map(|axis| self.strides.iter().fold(1usize, |all, stride| all.saturating_mul(stride[axis])));
        Extents { multiple, least_coarsest: 2 }
    }

    fn forward(
        &self,
        program: &mut Program,
        image: TensorId,
        mode: ForwardMode,
    ) -> Result<Vec<TensorId>, ConfigError> {
        self.check()?;
        self.check_patch(program.shape(image).spatial())?;
        let dropout = if mode.training { self.dropout } else { 0.0 };
        let mut builder = NetBuilder::new(program, mode.precision, dropout).for_training(mode.training);
        let logits = self.append(&mut builder, image)?;
        Ok(vec![logits])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("monai")]
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        let merges = (0..self.stages() - 1).map(|stage| self.merge(stage));
        merges.map(|layer| (format!("{}.bias", layer.name()), layer.outputs)).collect()
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn heads(&self) -> Vec<String> {
        vec![self.head().name()]
    }

    fn is_trained(&self, parameter: &str) -> bool {
        !is_running(parameter)
    }

    fn couples_samples(&self) -> Option<&'static str> {
        Some("batch normalisation")
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        let name = parameter.name.as_str();
        if name.ends_with(".A.weight") {
            return values.fill(SLOPE);
        }
        if name.ends_with(".running_var") {
            return values.fill(1.0);
        }
        let layer = name.rsplit_once('.').map(|(layer, _)| layer);
        let found = self.layers().into_iter().find(|own| Some(own.name().as_str()) == layer);
        uniform(parameter, found.map(|layer| layer.fan()), seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = narrower(&self.features).into_iter();
        narrowed.map(|features| AttentionUnet { features, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        self.features.clone()
    }

    fn describe(&self) -> String {
        format!("MONAI's AttentionUnet, {} stages of {:?} features", self.stages(), self.features)
    }
}
