//! `monai.networks.nets.UNet` (Kerfoot et al. 2019, doi:10.1007/978-3-030-12029-0_40): residual units, and transposed convolutions over
//! the concatenation of a stage's map with that from below.
//!
//! A transposed convolution over two maps is the sum of one over each, so that nothing is concatenated: its weights are two parameters,
//! `….conv.skip.weight` and `….conv.below.weight`, which files of MONAI store as one tensor, the rows of the first before the rows of the
//! second. Its activations are PReLUs of one slope each. Here a slope is part of the configuration: it is read from a file of weights, and
//! does not learn.

mod forward;
mod layers;

use plimsoll_graph::{DType, Program, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use self::forward::{Forward, PARTS, internal};
use self::layers::Layer;
use super::UNetNorm;
use super::batch_norm::is_running;
use super::bounds::{MOST_CONVOLUTIONS, MOST_FEATURES, MOST_STAGES, check_count, check_probability};
use super::builder::NetBuilder;
use super::segresnet_stages::along;
use super::unet::narrower;
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::uniform;
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// MONAI's UNet. Lists go from the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonaiUNet {
    /// Channels of the image.
    pub in_channels: usize,
    /// Outputs.
    pub classes: usize,
    /// 2 or 3.
    pub dimensions: usize,
    /// Channels of each stage (MONAI's `channels`).
    pub features: Vec<usize>,
    /// Stride into each stage but the coarsest, which has the extent of the one before: the first is that from the image.
    pub strides: Vec<[usize; 3]>,
    /// Kernel of convolutions.
    pub kernel: [usize; 3],
    /// Kernel of transposed convolutions.
    pub up_kernel: [usize; 3],
    /// Convolutions of a residual unit of the encoder; 0 for one convolution without a residual.
    pub residual_units: usize,
    /// The statistics that maps are normalised with.
    pub norm: UNetNorm,
    /// `true` if normalisations have a scale and a shift.
    pub affine: bool,
    /// `true` if convolutions have biases.
    pub bias: bool,
    /// The slope below zero of each activation, in the order of [`MonaiUNet::activations`].
    pub slopes: Vec<f32>,
    /// The probability with which an element of a normalised map is dropped while training.
    pub dropout: f32,
}

/// The initial slope of PReLUs in PyTorch.
const SLOPE: f32 = 0.25;
/// Added to variances, PyTorch's default.
const EPSILON: f32 = 1e-5;

impl MonaiUNet {
    pub(super) const SETTINGS: &[&str] = &["features", "dropout"];

    /// `UNet(dimensions, in_channels, classes, features, strides, num_res_units=2)`.
    pub fn new(in_channels: usize, classes: usize, features: &[usize], strides: &[[usize; 3]]) -> MonaiUNet {
        let mut net = MonaiUNet {
            in_channels,
            classes,
            dimensions: 3,
            features: features.to_vec(),
            strides: strides.to_vec(),
            kernel: [3; 3],
            up_kernel: [3; 3],
            residual_units: 2,
            norm: UNetNorm::Instance,
            affine: false,
            bias: true,
            slopes: Vec::new(),
            dropout: 0.0,
        };
        net.slopes = vec![SLOPE; net.activations().len()];
        net
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> MonaiUNet {
        let dimensions = design.dimensions();
        let usual = [16, 32, 64, 128, 256];
        let features = settings.features.clone().unwrap_or_else(|| usual.to_vec());
        let window = along(dimensions, 3);
        let strides = vec![along(dimensions, 2); features.len().saturating_sub(1)];
        MonaiUNet {
            dimensions,
            kernel: window,
            up_kernel: window,
            dropout: settings.dropout.unwrap_or(0.0),
            ..MonaiUNet::new(design.in_channels, design.classes, &features, &strides)
        }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> MonaiUNet {
        let features = features.unwrap_or(&[16, 32, 64, 128, 256]);
        MonaiUNet::new(1, 2, features, &vec![[2; 3]; features.len().saturating_sub(1)])
    }
}

impl MonaiUNet {
    /// Checks all but the slopes.
    ///
    /// # Errors
    /// Returns an error if lists differ in length, or a number is impossible.
    pub fn check_shape(&self) -> Result<(), ConfigError> {
        let value = |setting, found: String, expected: &str| {
            Err(ConfigError::Value { setting, found, expected: expected.into() })
        };
        check_count("dimensions", self.dimensions, 2, 3)?;
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 1, 255)?;
        let stages = self.stages();
        check_count("features", stages, 2, MOST_STAGES)?;
        for features in &self.features {
            check_count("features", *features, 1, MOST_FEATURES)?;
        }
        if self.strides.len() + 1 != stages {
            let (list, found) = ("strides", self.strides.len());
            return Err(ConfigError::Length { list, found, stages, expected: stages - 1 });
        }
        let windows = self.strides.iter().chain([&self.kernel, &self.up_kernel]);
        for window in windows {
            for (axis, extent) in window.iter().enumerate() {
                check_count("strides and kernels", *extent, 1, 64)?;
                if axis == 0 && self.dimensions == 2 && *extent != 1 {
                    return value("dimensions", "2".into(), "windows are then flat along the depth");
                }
            }
        }
        for kernel in [self.kernel, self.up_kernel] {
            if kernel.iter().any(|extent| extent % 2 == 0) {
                return value("kernels", format!("{kernel:?}"), "extents must be odd");
            }
        }
        // A smaller kernel would leave voxels that no tap reaches, which MONAI's has with its bias alone.
        if self.strides.iter().any(|stride| (0..3).any(|axis| stride[axis] > self.up_kernel[axis])) {
            let found = format!("{:?}", self.strides);
            return value(
                "strides",
                found,
                "none may be longer than the kernel of the transposed convolution",
            );
        }
        check_count("residual_units", self.residual_units, 0, MOST_CONVOLUTIONS)?;
        if !self.affine && self.norm != UNetNorm::Instance {
            return value("affine", "false".into(), "batch normalisation has a scale and a shift");
        }
        check_probability("dropout", self.dropout)
    }

    /// Checks that there is a slope for each activation.
    ///
    /// # Errors
    /// Returns an error if there are more or fewer, or one is not finite.
    pub fn check_slopes(&self) -> Result<(), ConfigError> {
        let activations = self.activations().len();
        if self.slopes.len() == activations && self.slopes.iter().all(|slope| slope.is_finite()) {
            return Ok(());
        }
        Err(ConfigError::Value {
            setting: "slopes",
            found: format!("{} numbers", self.slopes.len()),
            expected: format!("{activations} finite numbers, one for each activation"),
        })
    }
}

impl Architecture for MonaiUNet {
    fn name(&self) -> &'static str {
        "unet"
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.check_shape()?;
        self.check_slopes()
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        let of = |layer: &Layer| {
            layer.kernel.iter().map(|extent| *extent as f64).product::<f64>()
                * layer.inputs as f64
                * layer.outputs as f64
        };
        self.layers().iter().map(of).sum()
    }

    fn extents(&self) -> Extents {
        let multiple = [0, 1, 2]
            .map(|axis| self.strides.iter().fold(1usize, |all, stride| all.saturating_mul(stride[axis])));
        Extents { multiple, least_coarsest: if self.norm == UNetNorm::Instance { 2 } else { 1 } }
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
        let mut forward = Forward { net: self, builder: &mut builder, slopes: self.slopes.iter() };
        let mut maps = Vec::new();
        let mut map = image;
        for down in self.downs() {
            let from = map;
            let mut stride = down.stride;
            for unit in self.units(&down) {
                map = forward.conv(&unit, map, stride, mode.precision)?;
                stride = [1; 3];
            }
            if self.residual_units > 0 {
                let residual = match self.residual(&down) {
                    Some(layer) => forward.conv(&layer, from, down.stride, mode.precision)?,
                    None => from,
                };
                map = forward.builder.add(map, residual)?;
            }
            maps.push(map);
        }
        maps.pop();
        for up in self.ups() {
            let skip = maps.pop().ok_or_else(internal)?;
            // Logits are f32, however features are stored.
            let dtype = if up.is_top { DType::F32 } else { mode.precision };
            map = forward.transposed(&self.transposed(&up), [skip, map], up.stride, dtype)?;
            if let Some(layer) = self.smoothing(&up) {
                let smooth = forward.conv(&layer, map, [1; 3], dtype)?;
                map = forward.builder.add(smooth, map)?;
            }
        }
        Ok(vec![map])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        let is_slope = |tensor: &str| tensor.ends_with(".adn.A.weight");
        let joined = |parameter: &str| {
            let part = PARTS.iter().find_map(|part| parameter.strip_suffix(&format!(".conv.{part}.weight")));
            part.map_or_else(|| parameter.to_string(), |prefix| format!("{prefix}.conv.weight"))
        };
        // Both know of slopes, which are part of the configuration.
        vec![
            NamingScheme::native("plimsoll").with_duplicates(is_slope),
            NamingScheme::renaming("monai", joined).with_duplicates(is_slope),
        ]
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        let idle = |layer: &Layer| self.bias && !self.has_bias(layer);
        let layers = self.layers().into_iter().filter(idle);
        layers.map(|layer| (format!("{}.bias", layer.name), layer.outputs)).collect()
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// All of the last step up follows from the classes.
    fn heads(&self) -> Vec<String> {
        vec!["model.2".into()]
    }

    fn is_trained(&self, parameter: &str) -> bool {
        !is_running(parameter)
    }

    fn untrainable(&self) -> Option<&'static str> {
        Some("training the slopes of its activations is not supported")
    }

    fn couples_samples(&self) -> Option<&'static str> {
        (self.norm != UNetNorm::Instance).then_some("batch normalisation")
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        let shape = &parameter.shape;
        let fan = match parameter.name.as_str() {
            name if name.contains(".adn.") => None,
            name if name.ends_with(".weight") => Some(shape.count() / shape.dim(0).max(1)),
            // PyTorch counts the outputs of a transposed convolution.
            name => self
                .layers()
                .into_iter()
                .find(|layer| name.strip_suffix(".bias") == Some(&layer.name))
                .map(|layer| {
                    let taps: usize = layer.kernel.iter().product();
                    let is_transposed = self.ups().iter().any(|up| self.transposed(up).name == layer.name);
                    taps * if is_transposed { layer.outputs } else { layer.inputs }
                }),
        };
        uniform(parameter, fan, seed, values);
        if parameter.name.ends_with(".running_var") {
            values.fill(1.0);
        }
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = narrower(&self.features).into_iter();
        narrowed.map(|features| MonaiUNet { features, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        self.features.clone()
    }

    fn describe(&self) -> String {
        format!("MONAI's UNet, {} stages of {:?} features", self.stages(), self.features)
    }
}
