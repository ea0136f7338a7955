//! MeshNet (Fedorov et al. 2017, arXiv:1612.00940): convolutions of 3×3×3 voxels whose dilation grows and shrinks again, all at the extent of
//! the image, then one of 1×1×1 to the classes. It has few parameters and sees far.
//!
//! The variants are brainchop's (Masoud et al. 2023, doi:10.21105/joss.05098): convolutions with biases and ReLU or ELU, or without biases, with
//! instance normalisation and GELU. The paper's batch normalisation is part of the weights of such networks.

use plimsoll_graph::ops::{Elu, Gelu, LeakyRelu, Over};
use plimsoll_graph::{Program, TensorId, TensorInfo, Window};
use serde::{Deserialize, Serialize};

use super::bounds::{MOST_CONVOLUTIONS, MOST_FEATURES, MOST_PATCH_EXTENT, check_count, check_probability};
use super::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};
use super::segresnet_stages::along;
use super::unet::narrower;
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::kaiming_normal;
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// MeshNet. Lists go from the image to the logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshNet {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// 2 or 3.
    pub dimensions: usize,
    /// Channels of each convolution.
    pub features: Vec<usize>,
    /// Voxels from one voxel of each convolution's kernel to the next.
    pub dilations: Vec<usize>,
    /// `true` if maps are normalised, each channel of a sample by itself, without a scale and a shift. Convolutions then have no biases.
    pub instance_norm: bool,
    /// The activation of all convolutions but the last.
    pub activation: MeshActivation,
    /// The probability with which a channel of a convolution's result is dropped while training.
    pub dropout: f32,
}

/// An activation of MeshNets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeshActivation {
    /// The larger of x and 0.
    Relu,
    /// x where it is positive, else eˣ − 1.
    Elu,
    /// x · Φ(x).
    Gelu,
}

/// Dilations of brainchop's `model5_gw_ae`.
const DILATIONS: [usize; 9] = [1, 2, 4, 8, 16, 8, 4, 2, 1];
/// Channels of its convolutions while a block of sixteen costs the same.
const FEATURES: usize = 16;
/// Added to variances.
const EPSILON: f32 = 1e-5;
/// The extent of kernels.
const KERNEL: usize = 3;
/// The convolution that makes logits.
const HEAD: &str = "output";

impl MeshNet {
    pub(super) const SETTINGS: &[&str] = &["features", "dilations", "dropout"];

    /// A MeshNet with instance normalisation and ReLU, in three dimensions.
    pub fn new(in_channels: usize, classes: usize, features: &[usize], dilations: &[usize]) -> MeshNet {
        MeshNet {
            in_channels,
            classes,
            dimensions: 3,
            features: features.to_vec(),
            dilations: dilations.to_vec(),
            instance_norm: true,
            activation: MeshActivation::Relu,
            dropout: 0.0,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> MeshNet {
        let dilations = settings.dilations.clone().unwrap_or_else(|| DILATIONS.to_vec());
        let features = settings.features.clone().unwrap_or_else(|| vec![FEATURES; dilations.len()]);
        MeshNet {
            dimensions: design.dimensions(),
            dropout: settings.dropout.unwrap_or(0.0),
            ..MeshNet::new(design.in_channels, design.classes, &features, &dilations)
        }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> MeshNet {
        let features = features.unwrap_or(&[FEATURES; DILATIONS.len()]);
        // As many dilations as features are asked for.
        let dilations: Vec<usize> = DILATIONS.into_iter().cycle().take(features.len()).collect();
        MeshNet::new(1, 2, features, &dilations)
    }

    /// The number of voxels to each side that a voxel's logits depend on; with instance normalisation they depend on all of the window.
    pub fn reach(&self) -> usize {
        self.dilations.iter().sum::<usize>() * (KERNEL / 2)
    }

    fn name(&self, layer: usize) -> String {
        format!("layers.{layer}")
    }
}

impl Architecture for MeshNet {
    fn name(&self) -> &'static str {
        "meshnet"
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_count("dimensions", self.dimensions, 2, 3)?;
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 1, 255)?;
        let layers = self.features.len();
        check_count("features", layers, 1, MOST_CONVOLUTIONS)?;
        for features in &self.features {
            check_count("features", *features, 1, MOST_FEATURES)?;
        }
        if self.dilations.len() != layers {
            let (list, found) = ("dilations", self.dilations.len());
            return Err(ConfigError::Length { list, found, stages: layers, expected: layers });
        }
        for dilation in &self.dilations {
            check_count("dilations", *dilation, 1, MOST_PATCH_EXTENT)?;
        }
        check_probability("dropout", self.dropout)
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        let taps = KERNEL.pow(self.dimensions as u32) as f64;
        let inputs = [self.in_channels].into_iter().chain(self.features.iter().copied());
        let products = inputs.zip(&self.features).map(|(inputs, outputs)| inputs as f64 * *outputs as f64);
        let last = self.features.last().map_or(0.0, |features| *features as f64);
        products.sum::<f64>() * taps + last * self.classes as f64
    }

    fn extents(&self) -> Extents {
        Extents { multiple: [1; 3], least_coarsest: if self.instance_norm { 2 } else { 1 } }
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
        let mut builder = NetBuilder::new(program, mode.precision, dropout).dropping_channels();
        let mut map = image;
        for (layer, (features, dilation)) in self.features.iter().zip(&self.dilations).enumerate() {
            let name = self.name(layer);
            let window = Window::dilated(along(self.dimensions, KERNEL), along(self.dimensions, *dilation));
            let shape = ConvShape { features: *features, window };
            map = builder.conv(&name, &[map], shape, !self.instance_norm)?;
            if self.instance_norm {
                let options = NormActOptions {
                    statistics: Statistics::Own(Over::Instance),
                    epsilon: EPSILON,
                    slope: 0.0,
                    affine: false,
                    conv_bias: false,
                };
                map = builder.norm(&name, map, options)?;
            }
            let activated = format!("{name} activated");
            map = match self.activation {
                MeshActivation::Relu => builder.push(&activated, LeakyRelu { slope: 0.0 }, &[map])?,
                MeshActivation::Elu => builder.push(&activated, Elu, &[map])?,
                MeshActivation::Gelu => builder.push(&activated, Gelu, &[map])?,
            };
        }
        Ok(vec![builder.head(HEAD, map, self.classes)?])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("plimsoll")]
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn heads(&self) -> Vec<String> {
        vec![HEAD.into()]
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        kaiming_normal(parameter, 0.0, seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = narrower(&self.features).into_iter();
        narrowed.map(|features| MeshNet { features, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        self.features.clone()
    }

    fn describe(&self) -> String {
        let layers = self.features.len();
        format!(
            "MeshNet, {layers} layers of {:?} features with dilations {:?}",
            self.features, self.dilations
        )
    }
}
