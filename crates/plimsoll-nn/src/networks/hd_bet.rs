//! The network of HD-BET, version 1 (Isensee et al. 2019, doi:10.1002/hbm.24750; a variant of Isensee et al. 2018, arXiv:1802.10508).
//!
//! A U-Net of five stages whose encoder has a residual block in each, with normalisation and activation first. Its decoder interpolates with
//! fixed corners, convolves, and merges what it concatenates with the encoder's map. All statistics are of an image's own channels, so that
//! the logits of a voxel depend on all of the window. Names of parameters are HD-BET's.

use plimsoll_graph::ops::{Conv, Over, UpsampleAligned};
use plimsoll_graph::{DType, Program, TensorId, TensorInfo, Window};
use serde::{Deserialize, Serialize};

use super::bounds::{MOST_FEATURES, check_count};
use super::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};
use super::segresnet_stages::fewer;
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::kaiming_normal;
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// HD-BET's U-Net, which sees three dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HdBet {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// Channels of the finest stage (HD-BET's `base_filters`), doubled from stage to stage.
    pub init_filters: usize,
}

/// Stages, of which each has half the extent of the one before.
const STAGES: usize = 5;
/// Channels of the finest stage of the published networks.
const FILTERS: usize = 21;
/// The slope of activations. HD-BET's configuration says 0.1 for those outside of its modules, which have their own 0.01.
const SLOPE_OF_MODULES: f32 = 0.01;
/// The slope of the activations outside of modules.
const SLOPE: f32 = 0.1;
/// Added to variances, PyTorch's default.
const EPSILON: f32 = 1e-5;
/// The convolution that makes logits, without a bias.
const HEAD: &str = "seg_layer";

/// Normalisation of each channel of a sample, with scale and shift, and an activation.
fn options(slope: f32) -> NormActOptions {
    NormActOptions {
        statistics: Statistics::Own(Over::Instance),
        epsilon: EPSILON,
        slope,
        affine: true,
        conv_bias: false,
    }
}

impl HdBet {
    pub(super) const SETTINGS: &[&str] = &["init_filters"];

    /// HD-BET's network with the channels of its finest stage.
    pub fn new(in_channels: usize, classes: usize, init_filters: usize) -> HdBet {
        HdBet { in_channels, classes, init_filters }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> HdBet {
        HdBet::new(design.in_channels, design.classes, settings.init_filters.unwrap_or(FILTERS))
    }

    pub(super) fn reference(features: Option<&[usize]>) -> HdBet {
        HdBet::new(1, 2, features.and_then(|features| features.first().copied()).unwrap_or(FILTERS))
    }

    /// Channels of a stage, from 0.
    fn channels(&self, stage: usize) -> usize {
        self.init_filters << stage
    }
}

/// The forward pass, step by step.
struct Forward<'a, 'p> {
    builder: NetBuilder<'p>,
    net: &'a HdBet,
}

impl Forward<'_, '_> {
    fn conv(
        &mut self,
        name: &str,
        sources: &[TensorId],
        features: usize,
        bias: bool,
    ) -> Result<TensorId, ConfigError> {
        let shape = ConvShape::same(features, [3; 3], [1; 3]);
        Ok(self.builder.bare_conv(name, sources, shape, bias)?)
    }

    fn norm_act(&mut self, name: &str, map: TensorId, slope: f32) -> Result<TensorId, ConfigError> {
        Ok(self.builder.norm_act(name, map, options(slope))?)
    }

    /// A residual block: the map and what two convolutions, each behind a normalisation, make of it.
    fn context(&mut self, map: TensorId, stage: usize) -> Result<TensorId, ConfigError> {
        let (name, features) = (format!("context{}", stage + 1), self.net.channels(stage));
        let activated = self.norm_act(&format!("{name}.bn_1"), map, SLOPE_OF_MODULES)?;
        // The normalisation behind it cancels its bias.
        let first = self.conv(&format!("{name}.conv1"), &[activated], features, false)?;
        let activated = self.norm_act(&format!("{name}.bn_2"), first, SLOPE_OF_MODULES)?;
        let second = self.conv(&format!("{name}.conv2"), &[activated], features, true)?;
        Ok(self.builder.add(map, second)?)
    }

    /// The map that the decoder reads of a stage, and the first map of the next one.
    fn down(&mut self, map: TensorId, stage: usize) -> Result<[TensorId; 2], ConfigError> {
        let name = format!("down{}", stage + 1);
        let skip = self.norm_act(&format!("{name}.bn"), map, SLOPE_OF_MODULES)?;
        let shape = ConvShape::same(self.net.channels(stage + 1), [3; 3], [2; 3]);
        let below = self.builder.bare_conv(&format!("{name}.downsample"), &[skip], shape, true)?;
        Ok([skip, below])
    }

    /// From the map of the next coarser stage to the extent and the channels of this one.
    fn up(&mut self, map: TensorId, stage: usize) -> Result<TensorId, ConfigError> {
        let name = format!("up{}", STAGES - 1 - stage);
        let finer = self.builder.push(
            &format!("{name} interpolated"),
            UpsampleAligned { axes: [true; 3] },
            &[map],
        )?;
        let y = self.conv(&format!("{name}.upsample_conv"), &[finer], self.net.channels(stage), false)?;
        self.norm_act(&format!("{name}.bn"), y, SLOPE_OF_MODULES)
    }

    /// Two convolutions of what is concatenated in a stage, the second of which halves the channels.
    fn merge(&mut self, sources: [TensorId; 2], stage: usize) -> Result<TensorId, ConfigError> {
        let (name, features) = (format!("loc{}", STAGES - 1 - stage), self.net.channels(stage));
        let y = self.conv(&format!("{name}.conv1"), &sources, 2 * features, false)?;
        let y = self.norm_act(&format!("{name}.bn_1"), y, SLOPE_OF_MODULES)?;
        let y = self.builder.bare_conv(&format!("{name}.conv2"), &[y], ConvShape::point(features), false)?;
        self.norm_act(&format!("{name}.bn_2"), y, SLOPE_OF_MODULES)
    }

    /// The two convolutions of the finest stage before the logits.
    fn end(&mut self, sources: [TensorId; 2]) -> Result<TensorId, ConfigError> {
        let features = 2 * self.net.init_filters;
        let y = self.conv("end_conv_1", &sources, features, false)?;
        let y = self.norm_act("end_conv_1_bn", y, SLOPE)?;
        let y = self.conv("end_conv_2", &[y], features, false)?;
        self.norm_act("end_conv_2_bn", y, SLOPE)
    }

    fn logits(&mut self, map: TensorId) -> Result<TensorId, ConfigError> {
        let inputs = 2 * self.net.init_filters;
        let weights = self.builder.weights(HEAD, self.net.classes, inputs, [1; 3]);
        let conv = Conv::new(Window::point(), false, DType::F32);
        Ok(self.builder.push("logits of the head", conv, &[map, weights])?)
    }
}

impl Architecture for HdBet {
    fn name(&self) -> &'static str {
        "hdbet"
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 2, 255)?;
        check_count("init_filters", self.init_filters, 1, MOST_FEATURES >> (STAGES - 1))
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        // Of a stage: two convolutions of a block, one down or at the end, one up, one over twice the channels, each in units of c².
        let of = |stage: usize| (self.channels(stage) as f64).powi(2) * 27.0 * (2.0 + 2.0 + 2.0 + 4.0);
        (0..STAGES).map(of).sum()
    }

    fn extents(&self) -> Extents {
        Extents { multiple: [1 << (STAGES - 1); 3], least_coarsest: 2 }
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
        let mut map = forward.conv("init_conv", &[image], self.channels(0), true)?;
        let mut skips = Vec::with_capacity(STAGES - 1);
        for stage in 0..STAGES - 1 {
            map = forward.context(map, stage)?;
            let [skip, below] = forward.down(map, stage)?;
            skips.push(skip);
            map = below;
        }
        map = forward.context(map, STAGES - 1)?;
        map = forward.norm_act("bn_after_context5", map, SLOPE)?;
        for (stage, skip) in skips.into_iter().enumerate().rev() {
            let sources = [skip, forward.up(map, stage)?];
            map = if stage == 0 { forward.end(sources)? } else { forward.merge(sources, stage)? };
        }
        Ok(vec![forward.logits(map)?])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("hd-bet")]
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        let mut idle = Vec::new();
        for stage in 0..STAGES {
            let (number, features) = (STAGES - 1 - stage, self.channels(stage));
            idle.push((format!("context{}.conv1.bias", stage + 1), features));
            if stage < STAGES - 1 {
                idle.push((format!("up{number}.upsample_conv.bias"), features));
            }
            if (1..STAGES - 1).contains(&stage) {
                idle.push((format!("loc{number}.conv1.bias"), 2 * features));
                idle.push((format!("loc{number}.conv2.bias"), features));
            }
        }
        idle.extend(["end_conv_1.bias", "end_conv_2.bias"].map(|name| (name.into(), 2 * self.init_filters)));
        idle
    }

    fn heads(&self) -> Vec<String> {
        vec![HEAD.into()]
    }

    fn untrainable(&self) -> Option<&'static str> {
        Some("its interpolation has no gradient")
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        kaiming_normal(parameter, SLOPE_OF_MODULES, seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = fewer(self.init_filters, 1).into_iter().filter(|filters| *filters > 0);
        narrowed.map(|init_filters| HdBet { init_filters, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        (0..STAGES).map(|stage| self.channels(stage)).collect()
    }

    fn features_flag(&self) -> String {
        format!("‹init_filters={}›", self.init_filters)
    }

    fn describe(&self) -> String {
        format!("HD-BET's U-Net, {STAGES} stages of {:?} features", self.features())
    }
}
