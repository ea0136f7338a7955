//! The common parts of MONAI's SegResNet and SegResNetDS: residual blocks with normalisation and activation first, in
//! stages whose channels double.

use plimsoll_graph::TensorId;
use plimsoll_graph::ops::Over;

use super::NetworkSettings;
use super::bounds::{Lists, MOST_FEATURES, MOST_STAGES, check_count};
use super::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};
use crate::ConfigError;

/// The stages of such a network, from the finest to the coarsest: channels double from one to the next.
pub(super) struct Stages<'a> {
    pub(super) dimensions: usize,
    /// Channels of the finest.
    pub(super) init_filters: usize,
    /// Residual blocks of each stage of the encoder.
    pub(super) encoder: &'a [usize],
    /// Residual blocks of each stage of the decoder, which has none for the coarsest.
    pub(super) decoder: &'a [usize],
}

impl Stages<'_> {
    pub(super) fn count(&self) -> usize {
        self.encoder.len()
    }

    pub(super) fn channels(&self, stage: usize) -> usize {
        self.init_filters << stage
    }

    /// Channels of each.
    pub(super) fn features(&self) -> Vec<usize> {
        (0..self.count()).map(|stage| self.channels(stage)).collect()
    }

    /// The place of a stage of the decoder, counted from the coarsest.
    pub(super) fn decoder_place(&self, stage: usize) -> usize {
        self.count() - 2 - stage
    }

    /// Checks the stages, with this number of channels of the image and of classes.
    pub(super) fn check(&self, in_channels: usize, classes: usize) -> Result<(), ConfigError> {
        Lists {
            features: &[],
            kernels: &[],
            strides: &[],
            encoder_convs: &[],
            decoder_convs: &[],
            encoder_blocks: self.encoder,
            decoder_blocks: self.decoder,
        }
        .check()?;
        check_count("dimensions", self.dimensions, 2, 3)?;
        check_count("in_channels", in_channels, 1, MOST_FEATURES)?;
        check_count("classes", classes, 2, 255)?;
        let stages = self.count();
        check_count("encoder_blocks", stages, 2, MOST_STAGES)?;
        if self.decoder.len() + 1 != stages {
            let (list, found) = ("decoder_blocks", self.decoder.len());
            return Err(ConfigError::Length { list, found, stages, expected: stages - 1 });
        }
        // The coarsest stage has the most channels.
        check_count("init_filters", self.init_filters, 1, MOST_FEATURES >> (stages - 1).min(12))
    }

    /// An upper bound of the number of all weights: two convolutions of each block, and `others` like them
    /// in each stage.
    pub(super) fn weights(&self, others: f64) -> f64 {
        let taps = 3f64.powi(self.dimensions as i32);
        // The coarsest stage has no decoder.
        let decoder = self.decoder.iter().chain([&0]);
        let of_stage = |(stage, (down, up)): (usize, (&usize, &usize))| {
            let channels = self.channels(stage) as f64;
            taps * channels * channels * (2.0 * (down + up) as f64 + others)
        };
        self.encoder.iter().zip(decoder).enumerate().map(of_stage).sum()
    }
}

/// Residual blocks of the stages of encoder and decoder: those that are asked for, or else as MONAI has them.
pub(super) fn blocks(settings: &NetworkSettings) -> (Vec<usize>, Vec<usize>) {
    let encoder = settings.encoder_blocks.clone().unwrap_or_else(|| BLOCKS.to_vec());
    let ones = || vec![1; encoder.len().saturating_sub(1)];
    let decoder = settings.decoder_blocks.clone().unwrap_or_else(ones);
    (encoder, decoder)
}

/// Added to variances, as `torch.nn.GroupNorm` and `InstanceNorm3d` do by default.
const EPSILON: f32 = 1e-5;

/// Residual blocks of the stages of MONAI's encoders.
pub(super) const BLOCKS: [usize; 4] = [1, 2, 2, 4];

/// A window along the axes of a network with this number of dimensions; 1 along others.
pub(super) fn along(dimensions: usize, extent: usize) -> [usize; 3] {
    if dimensions == 2 { [1, extent, extent] } else { [extent; 3] }
}

/// x + conv2(relu(norm2(conv1(relu(norm1(x))))))
pub(super) fn block(
    builder: &mut NetBuilder<'_>,
    norms: [String; 2],
    convs: [String; 2],
    x: TensorId,
    shape: ConvShape,
    over: Over,
) -> Result<TensorId, ConfigError> {
    let mut y = x;
    for (norm, conv) in norms.iter().zip(&convs) {
        let z = builder.norm_act(norm, y, relu(over))?;
        y = builder.bare_conv(conv, &[z], shape, false)?;
    }
    Ok(builder.add(x, y)?)
}

/// Normalisation with scale and shift, and ReLU.
pub(super) fn relu(over: Over) -> NormActOptions {
    NormActOptions {
        statistics: Statistics::Own(over),
        epsilon: EPSILON,
        slope: 0.0,
        affine: true,
        conv_bias: false,
    }
}

/// Three, two and one quarter of the channels, in multiples of a number.
pub(super) fn fewer(filters: usize, multiple: usize) -> Vec<usize> {
    let mut all = vec![filters];
    for quarters in [3, 2, 1] {
        let narrowed = (filters * quarters / 4).next_multiple_of(multiple.max(1)).min(filters);
        if all.last() != Some(&narrowed) {
            all.push(narrowed);
        }
    }
    all.remove(0);
    all
}
