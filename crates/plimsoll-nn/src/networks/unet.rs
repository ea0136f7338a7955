//! The common parts of U-Nets: the shape, the encoder and the decoder.
//!
//! Stage by stage down: convolutions (the first strided) each followed by instance normalisation and leaky ReLU. Then up: a
//! transposed convolution with kernel = stride, then convolutions over its result and the encoder's map of that stage. A
//! 1×1×1 head makes logits of the last map, and with deep supervision of the coarser ones too (Isensee et al. 2021,
//! doi:10.1038/s41592-020-01008-z).

use std::fmt::Debug;

use plimsoll_graph::ops::Over;
use plimsoll_graph::{Program, TensorId, TensorInfo, Window};
use serde::{Deserialize, Serialize};

use super::batch_norm::is_running;
use super::bounds::{Lists, MOST_FEATURES, check_count, check_probability};
use super::builder::{ConvNames, ConvShape, NetBuilder, NormActOptions, Statistics};
use super::{Architecture, Design, EncoderNames, Extents, Network, NetworkSettings, UNetNorm};
use crate::init::kaiming_normal;
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// The shape of a U-Net. All lists go from the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UNet {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// Channels of each stage.
    pub features: Vec<usize>,
    /// Kernel of each stage.
    pub kernels: Vec<[usize; 3]>,
    /// Stride into each stage; that into the first is 1.
    pub strides: Vec<[usize; 3]>,
    /// Convolutions of each stage of the encoder.
    pub encoder_convs: Vec<usize>,
    /// Convolutions of each stage of the decoder, which has none for the coarsest.
    pub decoder_convs: Vec<usize>,
    /// `true` if normalisations have a scale and a shift.
    pub affine: bool,
    /// Added to the variance in normalisations.
    pub epsilon: f32,
    /// The slope of the leaky ReLU.
    pub slope: f32,
    /// The statistics that maps are normalised with.
    #[serde(default)]
    pub norm: UNetNorm,
    /// `true` if transposed convolutions have a bias.
    pub transposed_bias: bool,
    /// The number of coarser maps that get a head of their own while training.
    pub deep_supervision: usize,
    /// The probability with which an element of a convolution's result is dropped while training.
    #[serde(default)]
    pub dropout: f32,
}

/// The differences between U-Nets: the names of their parameters, and the options that belong to them. Stages are
/// counted from the finest.
pub(crate) trait UNetStyle: Debug + Send + Sync {
    /// The registered name.
    const NAME: &str;
    /// The name of its authors.
    const TITLE: &str;
    /// The scheme that names follow.
    const SCHEME: &str;

    /// The shape.
    fn shape(&self) -> &UNet;

    /// The same network with another shape.
    fn with_shape(&self, shape: UNet) -> Network;

    /// The setting that counts what the stages of the encoder consist of, and how many convolutions each of those has.
    const ENCODER: (&str, usize) = ("encoder_convs", 1);

    /// See [`Architecture::encoder_names`].
    const ENCODER_NAMES: Option<EncoderNames> = None;

    /// Checks what only this U-Net asks for.
    fn check_style(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// The window of a convolution of the encoder. An odd kernel divides extents by the stride.
    ///
    /// # Errors
    /// Returns an error if this U-Net has no such layer with this kernel and stride.
    fn encoder_window(kernel: [usize; 3], stride: [usize; 3]) -> Result<Window, ConfigError> {
        Ok(Window::same(kernel, stride))
    }

    /// Names of a convolution of the encoder.
    fn encoder_conv(&self, stage: usize, conv: usize) -> ConvNames;

    /// Names of a convolution of the decoder.
    fn decoder_conv(&self, stage: usize, conv: usize) -> ConvNames;

    /// The name of the transposed convolution to a stage.
    fn transposed(&self, stage: usize) -> String;

    /// The name of the head of a stage.
    fn head(&self, stage: usize) -> String;

    /// The way down: the last map of each stage.
    ///
    /// # Errors
    /// Returns an error if the image does not fit.
    fn encode(&self, builder: &mut NetBuilder<'_>, image: TensorId) -> Result<Vec<TensorId>, ConfigError>
    where
        Self: Sized,
    {
        self.shape().encode(builder, self, image)
    }

    /// Returns `true` if this network initialises a parameter with zero that others initialise at random or with one.
    fn begins_as_zero(&self, parameter: &str) -> bool {
        let _ = parameter;
        false
    }

    /// The stage whose kernel the decoder uses at a stage.
    fn decoder_kernel(&self, stage: usize) -> usize {
        stage
    }

    /// Returns `true` if its authors' state dicts hold the tensor of this name under another one too.
    fn is_duplicate(tensor: &str) -> bool;

    /// See [`Architecture::other_names`].
    fn other_names(&self, tensor: &str) -> Vec<String>;

    /// See [`Architecture::idle_biases`].
    fn idle_conv_biases(&self) -> Vec<(String, usize)> {
        Vec::new()
    }
}

impl UNet {
    /// Two convolutions per stage, normalisations with scale and shift, one head.
    pub(super) fn new(
        in_channels: usize,
        classes: usize,
        features: &[usize],
        kernels: &[[usize; 3]],
        strides: &[[usize; 3]],
    ) -> UNet {
        let stages = features.len();
        UNet {
            in_channels,
            classes,
            features: features.to_vec(),
            kernels: kernels.to_vec(),
            strides: strides.to_vec(),
            encoder_convs: vec![2; stages],
            decoder_convs: vec![2; stages.saturating_sub(1)],
            affine: true,
            epsilon: 1e-5,
            slope: 0.01,
            norm: UNetNorm::Instance,
            transposed_bias: false,
            deep_supervision: 0,
            dropout: 0.0,
        }
    }

    /// The shape for a data set, with a head on every map of the decoder but the two coarsest stages'.
    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> UNet {
        // Fewer features than a patch could be halved times make a shallower network.
        let wanted = settings.features.as_ref().map_or(usize::MAX, Vec::len);
        let possible = || design.strides.iter().take(wanted).copied().collect();
        let strides: Vec<[usize; 3]> = settings.strides.clone().unwrap_or_else(possible);
        let stages = strides.len();
        let mut features = design.features.clone();
        if let Some(last) = features.last().copied() {
            features.resize(stages, last);
        }
        let mut kernels = design.kernels.clone();
        kernels.resize(stages, [3; 3]);
        let features = settings.features.clone().unwrap_or(features);
        let kernels = settings.kernels.clone().unwrap_or(kernels);
        let usual = UNet::new(design.in_channels, design.classes, &features, &kernels, &strides);
        UNet {
            encoder_convs: settings.encoder_convs.clone().unwrap_or(usual.encoder_convs),
            decoder_convs: settings.decoder_convs.clone().unwrap_or(usual.decoder_convs),
            affine: settings.affine.unwrap_or(usual.affine),
            deep_supervision: settings.deep_supervision.unwrap_or(features.len().saturating_sub(2)),
            dropout: settings.dropout.unwrap_or(usual.dropout),
            ..usual
        }
    }

    /// An isotropic network with one channel and two classes: this number of stages of 32 features, doubled to at most
    /// 320, unless other features are given.
    pub(super) fn reference(stages: usize, features: Option<&[usize]>) -> UNet {
        let doubled: Vec<usize> = (0..stages).map(|stage| (32 << stage).min(320)).collect();
        let features = features.unwrap_or(&doubled);
        let mut strides = vec![[2; 3]; features.len()];
        strides.iter_mut().take(1).for_each(|first| *first = [1; 3]);
        UNet::new(1, 2, features, &vec![[3; 3]; features.len()], &strides)
    }

    /// The number of stages.
    pub(super) fn stages(&self) -> usize {
        self.features.len()
    }

    /// The place of a stage of the decoder, counted from the coarsest, as all U-Nets name them.
    pub(super) fn decoder_place(&self, stage: usize) -> usize {
        self.stages() - 2 - stage
    }

    fn check(&self, encoder: &'static str) -> Result<(), ConfigError> {
        let stages = self.stages();
        let value = |setting, found: String, expected: &str| {
            Err(ConfigError::Value { setting, found, expected: expected.into() })
        };
        let (convs, blocks): (&[usize], &[usize]) = match encoder {
            "encoder_blocks" => (&[], &self.encoder_convs),
            _ => (&self.encoder_convs, &[]),
        };
        Lists {
            features: &self.features,
            kernels: &self.kernels,
            strides: &self.strides,
            encoder_convs: convs,
            decoder_convs: &self.decoder_convs,
            encoder_blocks: blocks,
            decoder_blocks: &[],
        }
        .check()?;
        if stages < 2 {
            return value("features", stages.to_string(), "at least two stages are needed");
        }
        for (list, found, expected) in [
            ("kernels", self.kernels.len(), stages),
            ("strides", self.strides.len(), stages),
            (encoder, self.encoder_convs.len(), stages),
            ("decoder_convs", self.decoder_convs.len(), stages - 1),
        ] {
            if found != expected {
                return Err(ConfigError::Length { list, found, stages, expected });
            }
        }
        if self.strides[0] != [1; 3] {
            return value("strides", format!("{:?} first", self.strides[0]), "the first must be 1");
        }
        if let Some(kernel) = self.kernels.iter().find(|kernel| kernel.iter().any(|k| k % 2 == 0)) {
            return value("kernels", format!("{kernel:?}"), "extents must be odd");
        }
        check_count("in_channels", self.in_channels, 1, MOST_FEATURES)?;
        check_count("classes", self.classes, 1, MOST_FEATURES)?;
        if !self.affine && self.norm != UNetNorm::Instance {
            return value("affine", "false".into(), "batch normalisation has a scale and a shift");
        }
        check_probability("dropout", self.dropout)?;
        for (setting, number, least) in
            [("epsilon", self.epsilon, f32::MIN_POSITIVE), ("slope", self.slope, 0.0)]
        {
            if !(least..=1.0).contains(&number) {
                return value(setting, number.to_string(), "it must be a number up to 1, and not negative");
            }
        }
        if self.deep_supervision > stages - 2 {
            let found = self.deep_supervision.to_string();
            let expected = format!("at most {} are possible with {stages} stages", stages - 2);
            return Err(ConfigError::Value { setting: "deep_supervision", found, expected });
        }
        Ok(())
    }

    /// See [`Architecture::weights`]; as many in the decoder as its first convolutions have, which read two maps.
    fn weights(&self, convs_of_each: usize) -> f64 {
        let features = |stage: usize| self.features[stage] as f64;
        let kernel = |stage: usize| self.kernels[stage].iter().map(|extent| *extent as f64).product::<f64>();
        let largest = (0..self.stages()).map(kernel).fold(1.0, f64::max);
        let of_stage = |stage: usize| {
            let from = if stage == 0 { self.in_channels as f64 } else { features(stage - 1) };
            let convs = (self.encoder_convs[stage] * convs_of_each) as f64;
            let encoder = kernel(stage) * features(stage) * (from + features(stage) * convs);
            let Some(convs) = self.decoder_convs.get(stage) else { return encoder };
            let stride: f64 = self.strides[stage + 1].iter().map(|stride| *stride as f64).product();
            let up = features(stage) * features(stage + 1) * stride;
            encoder + up + largest * features(stage) * features(stage) * (1.0 + *convs as f64)
        };
        (0..self.stages()).map(of_stage).sum()
    }

    pub(super) fn norm_act(&self) -> NormActOptions {
        let (statistics, conv_bias) = match self.norm {
            UNetNorm::Instance => (Statistics::Own(Over::Instance), false),
            UNetNorm::Batch { conv_bias } => (Statistics::Batch, conv_bias),
        };
        NormActOptions {
            statistics,
            epsilon: self.epsilon,
            slope: self.slope,
            affine: self.affine,
            conv_bias,
        }
    }

    /// The way down: the last map of each stage.
    fn encode<S: UNetStyle>(
        &self,
        builder: &mut NetBuilder<'_>,
        style: &S,
        image: TensorId,
    ) -> Result<Vec<TensorId>, ConfigError> {
        let mut skips = Vec::with_capacity(self.stages());
        let mut map = image;
        for stage in 0..self.stages() {
            for conv in 0..self.encoder_convs[stage] {
                let stride = if conv == 0 { self.strides[stage] } else { [1; 3] };
                let window = S::encoder_window(self.kernels[stage], stride)?;
                let shape = ConvShape { features: self.features[stage], window };
                map = builder.conv_norm_act(
                    &style.encoder_conv(stage, conv),
                    &[map],
                    shape,
                    self.norm_act(),
                )?;
            }
            skips.push(map);
        }
        Ok(skips)
    }

    /// The way up from the last map of each stage of an encoder: the logits of the heads, the finest first.
    pub(super) fn decode(
        &self,
        builder: &mut NetBuilder<'_>,
        style: &impl UNetStyle,
        skips: &[TensorId],
        mode: ForwardMode,
    ) -> Result<Vec<TensorId>, ConfigError> {
        let mut logits = Vec::new();
        let mut map = skips[self.stages() - 1];
        for stage in (0..self.stages() - 1).rev() {
            let (features, stride) = (self.features[stage], self.strides[stage + 1]);
            let up = builder.up(&style.transposed(stage), map, features, stride, self.transposed_bias)?;
            let mut sources = vec![up, skips[stage]];
            for conv in 0..self.decoder_convs[stage] {
                let kernel = self.kernels[style.decoder_kernel(stage)];
                let shape = ConvShape::same(features, kernel, [1; 3]);
                map = builder.conv_norm_act(
                    &style.decoder_conv(stage, conv),
                    &sources,
                    shape,
                    self.norm_act(),
                )?;
                sources = vec![map];
            }
            if stage == 0 || (mode.training && stage <= self.deep_supervision) {
                logits.push(builder.head(&style.head(stage), map, self.classes)?);
            }
        }
        logits.reverse();
        Ok(logits)
    }
}

impl<T: UNetStyle> Architecture for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.shape().check(T::ENCODER.0)?;
        self.check_style()
    }

    fn in_channels(&self) -> usize {
        self.shape().in_channels
    }

    fn classes(&self) -> usize {
        self.shape().classes
    }

    fn weights(&self) -> f64 {
        self.shape().weights(T::ENCODER.1)
    }

    fn dimensions(&self) -> usize {
        // Windows that are flat along the depth see a slice at a time, as in a network of two dimensions.
        let UNet { kernels, strides, .. } = self.shape();
        if kernels.iter().chain(strides).all(|window| window[0] == 1) { 2 } else { 3 }
    }

    fn extents(&self) -> Extents {
        let strides = &self.shape().strides;
        let multiple = [0, 1, 2].map(|axis| strides.iter().map(|stride| stride[axis]).product());
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
        let shape = self.shape();
        let mut builder =
            NetBuilder::new(program, mode.precision, if mode.training { shape.dropout } else { 0.0 })
                .for_training(mode.training);
        let skips = self.encode(&mut builder, image)?;
        shape.decode(&mut builder, self, &skips, mode)
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native(T::SCHEME).with_duplicates(T::is_duplicate)]
    }

    fn heads(&self) -> Vec<String> {
        (0..self.shape().stages().saturating_sub(1)).map(|stage| self.head(stage)).collect()
    }

    fn encoder_names(&self) -> Option<EncoderNames> {
        T::ENCODER_NAMES
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        match self.shape().norm {
            UNetNorm::Instance => self.idle_conv_biases(),
            UNetNorm::Batch { .. } => Vec::new(),
        }
    }

    fn is_trained(&self, parameter: &str) -> bool {
        !is_running(parameter)
    }

    fn couples_samples(&self) -> Option<&'static str> {
        matches!(self.shape().norm, UNetNorm::Batch { .. }).then_some("batch normalisation")
    }

    fn other_names(&self, tensor: &str) -> Vec<String> {
        UNetStyle::other_names(self, tensor)
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        kaiming_normal(parameter, self.shape().slope, seed, values);
        if self.begins_as_zero(&parameter.name) {
            values.fill(0.0);
        }
        if parameter.name.ends_with(".running_var") {
            values.fill(1.0);
        }
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = narrower(&self.shape().features).into_iter();
        narrowed.map(|features| self.with_shape(UNet { features, ..self.shape().clone() })).collect()
    }

    fn features(&self) -> Vec<usize> {
        self.shape().features.clone()
    }

    fn describe(&self) -> String {
        let features = &self.shape().features;
        format!("{}, {} stages of {features:?} features", T::TITLE, features.len())
    }
}

/// Three, two and one quarter of the features, rounded up to multiples of eight.
pub(super) fn narrower(features: &[usize]) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![features.to_vec()];
    for quarters in [3, 2, 1] {
        let narrowed: Vec<usize> =
            features.iter().map(|count| ((count * quarters / 4).next_multiple_of(8)).min(*count)).collect();
        if all.last() != Some(&narrowed) {
            all.push(narrowed);
        }
    }
    all.remove(0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_narrowed_in_eights_until_nothing_is_left_to_take() {
        assert_eq!(narrower(&[32, 320]), [vec![24, 240], vec![16, 160], vec![8, 80]]);
        assert_eq!(narrower(&[8, 16]), [vec![8, 8]]);
        assert!(narrower(&[4, 8]).is_empty());
    }
}
