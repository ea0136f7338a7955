//! LinkNet in three dimensions (Chaurasia and Culurciello 2017, arXiv:1707.03718), as deepbet has it (Fisch et al. 2024,
//! doi:10.1016/j.compbiomed.2024.108845).
//!
//! A stem of a 7×7×7 convolution and a maximum brings the image to a quarter of its extent. Four stages of two residual blocks follow. Each
//! stage of the decoder narrows to a quarter of the channels, convolves transposed, widens again, and adds the encoder's map. All statistics are of an
//! image's own channels, without scale or shift, so that the logits of a voxel depend on all of the window. Names of parameters are
//! deepbet's.

use plimsoll_graph::ops::{ConvTranspose, MaxPool, Over};
use plimsoll_graph::{DType, Program, TensorId, TensorInfo, Window};
use serde::{Deserialize, Serialize};

use super::bounds::{MOST_FEATURES, check_count};
use super::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};
use super::segresnet_stages::fewer;
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::kaiming_normal;
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// LinkNet with residual blocks, which sees three dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkNet {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// Channels of the stem and the first stage, a multiple of 4; doubled from stage to stage.
    pub init_filters: usize,
}

/// Stages of the encoder. All but the first halve the extent.
const STAGES: usize = 4;
/// Channels of the stem of the published networks.
const FILTERS: usize = 16;
/// The share of channels with which a stage of the decoder convolves.
const NARROWING: usize = 4;
/// Added to variances, PyTorch's default.
const EPSILON: f32 = 1e-5;
/// The transposed convolution that makes logits.
const HEAD: &str = "tp_conv2";

/// Normalisation of each channel of a sample, without scale and shift, and a ReLU.
const OPTIONS: NormActOptions = NormActOptions {
    statistics: Statistics::Own(Over::Instance),
    epsilon: EPSILON,
    slope: 0.0,
    affine: false,
    conv_bias: false,
};

impl LinkNet {
    pub(super) const SETTINGS: &[&str] = &["init_filters"];

    /// LinkNet with the channels of its stem.
    pub fn new(in_channels: usize, classes: usize, init_filters: usize) -> LinkNet {
        LinkNet { in_channels, classes, init_filters }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> LinkNet {
        LinkNet::new(design.in_channels, design.classes, settings.init_filters.unwrap_or(FILTERS))
    }

    pub(super) fn reference(features: Option<&[usize]>) -> LinkNet {
        LinkNet::new(1, 2, features.and_then(|features| features.first().copied()).unwrap_or(FILTERS))
    }

    /// Channels of a stage, from 0.
    fn channels(&self, stage: usize) -> usize {
        self.init_filters << stage
    }
}

/// The forward pass, step by step.
struct Forward<'a, 'p> {
    builder: NetBuilder<'p>,
    net: &'a LinkNet,
}

impl Forward<'_, '_> {
    /// A convolution, its normalisation and a ReLU. The normalisation cancels a bias.
    fn conv_norm_act(
        &mut self,
        name: &str,
        map: TensorId,
        shape: ConvShape,
    ) -> Result<TensorId, ConfigError> {
        let y = self.builder.bare_conv(&format!("{name}.0"), &[map], shape, false)?;
        Ok(self.builder.norm_act(&format!("{name}.1"), y, OPTIONS)?)
    }

    fn stem(&mut self, image: TensorId) -> Result<TensorId, ConfigError> {
        let shape = ConvShape::same(self.net.init_filters, [7; 3], [2; 3]);
        let map = self.conv_norm_act("init", image, shape)?;
        let pool = MaxPool { window: Window::same([3; 3], [2; 3]), ceil: false };
        Ok(self.builder.push("init", pool, &[map])?)
    }

    /// A residual block, which halves the extent where it widens.
    fn block(&mut self, name: &str, map: TensorId, features: usize) -> Result<TensorId, ConfigError> {
        let widens = self.builder.program().shape(map).channels() != features;
        let stride = if widens { [2; 3] } else { [1; 3] };
        let first = ConvShape::same(features, [3; 3], stride);
        let y = self.conv_norm_act(&format!("{name}.double_conv"), map, first)?;
        let second = ConvShape::same(features, [3; 3], [1; 3]);
        let y = self.builder.bare_conv(&format!("{name}.double_conv.3"), &[y], second, false)?;
        let y = self.builder.norm(&format!("{name}.double_conv.4"), y, OPTIONS)?;
        let shortcut = if widens {
            let shape = ConvShape::same(features, [1; 3], stride);
            let short = self.builder.bare_conv(&format!("{name}.downsample.0"), &[map], shape, false)?;
            self.builder.norm(&format!("{name}.downsample.1"), short, OPTIONS)?
        } else {
            map
        };
        Ok(self.builder.add_act(name, shortcut, y, 0.0)?)
    }

    fn down(&mut self, map: TensorId, stage: usize) -> Result<TensorId, ConfigError> {
        let features = self.net.channels(stage);
        let map = self.block(&format!("down{stage}.block1"), map, features)?;
        self.block(&format!("down{stage}.block2"), map, features)
    }

    /// A transposed convolution, its normalisation and a ReLU.
    fn transposed(
        &mut self,
        name: &str,
        map: TensorId,
        features: usize,
        stride: [usize; 3],
    ) -> Result<TensorId, ConfigError> {
        let window = Window::same([3; 3], stride);
        let y = self.builder.transposed(&format!("{name}.0"), map, features, window, false)?;
        Ok(self.builder.norm_act(&format!("{name}.1"), y, OPTIONS)?)
    }

    /// From a stage to the extent and the channels of the map before it.
    fn up(&mut self, map: TensorId, stage: usize) -> Result<TensorId, ConfigError> {
        let name = format!("up{}", STAGES - 1 - stage);
        let narrow = self.net.channels(stage) / NARROWING;
        let y = self.conv_norm_act(&format!("{name}.conv1"), map, ConvShape::point(narrow))?;
        let stride = if stage == 0 { [1; 3] } else { [2; 3] };
        let y = self.transposed(&format!("{name}.tp_conv"), y, narrow, stride)?;
        let wide = self.net.channels(stage.saturating_sub(1));
        self.conv_norm_act(&format!("{name}.conv2"), y, ConvShape::point(wide))
    }

    /// The logits at the extent of the image.
    fn logits(&mut self, map: TensorId) -> Result<TensorId, ConfigError> {
        let weights = self.builder.weights(HEAD, self.net.init_filters / 2, self.net.classes, [2; 3]);
        let bias = self.builder.channels(format!("{HEAD}.bias"), self.net.classes);
        let up = ConvTranspose {
            window: Window::blocks([2; 3]),
            groups: 1,
            first_channel: 0,
            channels: self.net.classes,
            output: self.builder.program().shape(map).spatial().map(|extent| 2 * extent),
            bias: true,
            dtype: DType::F32,
        };
        Ok(self.builder.push("logits of the head", up, &[map, weights, bias])?)
    }
}

impl Architecture for LinkNet {
    fn name(&self) -> &'static str {
        "linknet"
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 2, 255)?;
        check_count("init_filters", self.init_filters, NARROWING, MOST_FEATURES >> (STAGES - 1))?;
        match self.init_filters % NARROWING {
            0 => Ok(()),
            _ => Err(ConfigError::Value {
                setting: "init_filters",
                found: self.init_filters.to_string(),
                expected: format!("a multiple of {NARROWING}"),
            }),
        }
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        // Of a stage: four convolutions of its blocks, each in units of c².
        let of = |stage: usize| (self.channels(stage) as f64).powi(2) * 27.0 * 4.0;
        (0..STAGES).map(of).sum()
    }

    fn extents(&self) -> Extents {
        Extents { multiple: [1 << (STAGES + 1); 3], least_coarsest: 2 }
    }

    fn forward(
        &self,
        program: &mut Program,
        image: TensorId,
        mode: ForwardMode,
    ) -> Result<Vec<TensorId>, ConfigError> {
        self.check()?;
        self.check_patch(program.shape(image).spatial())?;
        let mut forward = Forward { builder: NetBuilder::new(program, mode.precision, 0.0), net: self };
        let mut map = forward.stem(image)?;
        let mut skips = Vec::with_capacity(STAGES);
        for stage in 0..STAGES {
            skips.push(map);
            map = forward.down(map, stage)?;
        }
        for (stage, skip) in skips.into_iter().enumerate().rev() {
            let up = forward.up(map, stage)?;
            map = forward.builder.add(up, skip)?;
        }
        let half = self.init_filters / 2;
        map = forward.transposed("tp_conv1", map, half, [2; 3])?;
        map = forward.conv_norm_act("conv", map, ConvShape::same(half, [3; 3], [1; 3]))?;
        Ok(vec![forward.logits(map)?])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("deepbet")]
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        ["tp_conv1.0.bias", "conv.0.bias"].map(|name| (name.into(), self.init_filters / 2)).into()
    }

    fn heads(&self) -> Vec<String> {
        vec![HEAD.into()]
    }

    fn untrainable(&self) -> Option<&'static str> {
        Some("it is here for the trained networks of deepbet")
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        kaiming_normal(parameter, 0.0, seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = fewer(self.init_filters, NARROWING).into_iter().filter(|filters| *filters > 0);
        narrowed.map(|init_filters| LinkNet { init_filters, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        (0..STAGES).map(|stage| self.channels(stage)).collect()
    }

    fn features_flag(&self) -> String {
        format!("‹init_filters={}›", self.init_filters)
    }

    fn describe(&self) -> String {
        format!("LinkNet in three dimensions, {STAGES} stages of {:?} features", self.features())
    }
}
