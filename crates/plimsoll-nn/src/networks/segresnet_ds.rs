//! `monai.networks.nets.SegResNetDS`: SegResNet with deep supervision and kernels that follow the spacing.
//!
//! With `resolution`, axes whose voxels are shorter are halved first: as long as the voxels of an axis are the longest by less than a
//! factor of two, windows are flat along it. Of the normalisations that MONAI's has, this is instance normalisation with scale and
//! shift, which Auto3DSeg trains it with.

use plimsoll_graph::ops::Over;
use plimsoll_graph::{Program, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use super::bounds::check_count;
use super::builder::{ConvShape, NetBuilder};
use super::design::UpsampleMode;
use super::segresnet_stages::{BLOCKS, Stages, along, block, blocks, fewer};
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::{alike, uniform};
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// MONAI's SegResNetDS. Lists go from the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegResNetDS {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// 2 or 3.
    pub dimensions: usize,
    /// Channels of the finest stage, doubled from stage to stage.
    pub init_filters: usize,
    /// Residual blocks of each stage of the encoder.
    pub encoder_blocks: Vec<usize>,
    /// Residual blocks of each stage of the decoder, which has none for the coarsest.
    pub decoder_blocks: Vec<usize>,
    /// The upsampling of the decoder.
    pub upsample: UpsampleMode,
    /// Spacing along depth, height and width, if windows follow it; in two dimensions the depth's counts for nothing.
    pub resolution: Option<[f64; 3]>,
    /// The number of coarser maps that get a head of their own while training: MONAI's `dsdepth` less one.
    pub deep_supervision: usize,
}

impl SegResNetDS {
    pub(super) const SETTINGS: &[&str] =
        &["init_filters", "encoder_blocks", "decoder_blocks", "upsample", "resolution", "deep_supervision"];

    /// `SegResNetDS(in_channels=in_channels, out_channels=classes, norm="instance")` with this number of filters.
    pub fn new(in_channels: usize, classes: usize, init_filters: usize) -> SegResNetDS {
        SegResNetDS {
            in_channels,
            classes,
            dimensions: 3,
            init_filters,
            encoder_blocks: BLOCKS.to_vec(),
            decoder_blocks: vec![1; BLOCKS.len() - 1],
            upsample: UpsampleMode::Deconv,
            resolution: None,
            deep_supervision: 0,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> SegResNetDS {
        let init_filters = settings.init_filters.unwrap_or(32);
        let usual = SegResNetDS::new(design.in_channels, design.classes, init_filters);
        let (encoder_blocks, decoder_blocks) = blocks(settings);
        SegResNetDS {
            dimensions: design.dimensions(),
            encoder_blocks,
            decoder_blocks,
            upsample: settings.upsample.unwrap_or(usual.upsample),
            resolution: settings.resolution,
            deep_supervision: settings.deep_supervision.unwrap_or(usual.deep_supervision),
            ..usual
        }
    }

    /// Returns the network with the first of the requested features, which each later stage doubles.
    pub(super) fn reference(features: Option<&[usize]>) -> SegResNetDS {
        SegResNetDS::new(1, 2, features.and_then(|features| features.first().copied()).unwrap_or(32))
    }

    fn stages(&self) -> Stages<'_> {
        Stages {
            dimensions: self.dimensions,
            init_filters: self.init_filters,
            encoder: &self.encoder_blocks,
            decoder: &self.decoder_blocks,
        }
    }

    /// By which factor each axis shrinks behind a stage, 1 or 2; windows are 3 where it is 2.
    fn scale(&self, stage: usize) -> [usize; 3] {
        let all = along(self.dimensions, 2);
        let Some(resolution) = self.resolution else { return all };
        let axes = || (0..3).filter(|axis| all[*axis] == 2);
        let longest = axes().map(|axis| resolution[axis]).fold(0.0, f64::max);
        // How often an axis can be halved until its voxels are about as long as the longest.
        let halvings = |axis: usize| (longest / resolution[axis]).log2().floor().clamp(0.0, 64.0) as usize;
        let anisotropic = axes().map(halvings).max().unwrap_or(0);
        let mut scale = all;
        for axis in axes() {
            if stage < anisotropic && stage >= halvings(axis) {
                scale[axis] = 1;
            }
        }
        scale
    }

    fn shape(&self, features: usize, stage: usize, stride: [usize; 3]) -> ConvShape {
        let kernel = self.scale(stage).map(|factor| if factor == 2 { 3 } else { 1 });
        ConvShape::same(features, kernel, stride)
    }

    fn block(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        x: TensorId,
        stage: usize,
    ) -> Result<TensorId, ConfigError> {
        let norms = ["norm1", "norm2"].map(|norm| format!("{name}.{norm}"));
        let convs = ["conv1", "conv2"].map(|conv| format!("{name}.{conv}"));
        let shape = self.shape(self.stages().channels(stage), stage, [1; 3]);
        block(builder, norms, convs, x, shape, Over::Instance)
    }

    /// From the map of the next coarser stage to the extent of this one.
    fn up(&self, builder: &mut NetBuilder<'_>, map: TensorId, stage: usize) -> Result<TensorId, ConfigError> {
        let name = format!("up_layers.{}.upsample", self.stages().decoder_place(stage));
        let (features, scale) = (self.stages().channels(stage), self.scale(stage));
        let axes = scale.map(|factor| factor == 2);
        Ok(match self.upsample {
            UpsampleMode::NonTrainable => {
                let point = ConvShape::point(features);
                let y = builder.bare_conv(&format!("{name}.preconv"), &[map], point, false)?;
                builder.interpolate(y, axes)?
            }
            UpsampleMode::Deconv => {
                let window = self.shape(features, stage, scale).window;
                builder.transposed(&format!("{name}.deconv"), map, features, window, false)?
            }
            UpsampleMode::PixelShuffle => {
                builder.subpixel(&format!("{name}.pixelshuffle.conv_block"), map, features, axes, false)?
            }
        })
    }

    fn head(&self, stage: usize) -> String {
        format!("up_layers.{}.head", self.stages().decoder_place(stage))
    }
}

impl Architecture for SegResNetDS {
    fn name(&self) -> &'static str {
        "segresnetds"
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.stages().check(self.in_channels, self.classes)?;
        check_count("deep_supervision", self.deep_supervision, 0, self.stages().count() - 2)?;
        let value = |setting, found: String, expected: &str| {
            Err(ConfigError::Value { setting, found, expected: expected.into() })
        };
        if let Some(resolution) = self.resolution
            && !resolution.iter().all(|mm| mm.is_finite() && *mm > 0.0)
        {
            return value("resolution", format!("{resolution:?}"), "numbers above zero are needed");
        }
        let flat = (0..self.stages().count()).any(|stage| self.scale(stage) != along(self.dimensions, 2));
        if self.upsample == UpsampleMode::PixelShuffle && flat {
            return value(
                "upsample",
                "pixelshuffle".into(),
                "it doubles all axes, which this resolution does not",
            );
        }
        Ok(())
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        // Down and up: at most a convolution from twice to eight times the channels.
        self.stages().weights(18.0)
    }

    fn extents(&self) -> Extents {
        let scales: Vec<[usize; 3]> = (0..self.stages().count() - 1).map(|stage| self.scale(stage)).collect();
        let multiple = [0, 1, 2].map(|axis| scales.iter().map(|scale| scale[axis]).product());
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
        let mut builder = NetBuilder::new(program, mode.precision, 0.0);
        let stem = self.shape(self.init_filters, 0, [1; 3]);
        let mut map = builder.bare_conv("encoder.conv_init", &[image], stem, false)?;
        let mut skips = Vec::with_capacity(self.stages().count());
        for stage in 0..self.stages().count() {
            let name = format!("encoder.layers.{stage}");
            for number in 0..self.encoder_blocks[stage] {
                map = self.block(&mut builder, &format!("{name}.blocks.{number}"), map, stage)?;
            }
            skips.push(map);
            if stage + 1 < self.stages().count() {
                let shape = self.shape(self.stages().channels(stage + 1), stage, self.scale(stage));
                map = builder.bare_conv(&format!("{name}.downsample"), &[map], shape, false)?;
            }
        }
        let mut logits = Vec::new();
        for stage in (0..self.stages().count() - 1).rev() {
            let up = self.up(&mut builder, map, stage)?;
            map = builder.add(skips[stage], up)?;
            for number in 0..self.decoder_blocks[stage] {
                let name = format!("up_layers.{}.blocks.{number}", self.stages().decoder_place(stage));
                map = self.block(&mut builder, &name, map, stage)?;
            }
            if stage == 0 || (mode.training && stage <= self.deep_supervision) {
                logits.push(builder.head(&self.head(stage), map, self.classes)?);
            }
        }
        logits.reverse();
        Ok(logits)
    }

    /// Halved from each head to the next coarser one, all of them, as MONAI's `DeepSupervisionLoss` has it; summing to one.
    fn head_weights(&self, heads: usize) -> Vec<f32> {
        let weights: Vec<f64> = (0..heads).map(|head| 0.5f64.powi(head as i32)).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| (weight / sum) as f32).collect()
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("monai")]
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn heads(&self) -> Vec<String> {
        (0..self.stages().count() - 1).map(|stage| self.head(stage)).collect()
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        let shape = &parameter.shape;
        if parameter.name.contains(".pixelshuffle.") {
            return alike(parameter, 1 << self.dimensions, seed, values);
        }
        let fan = match &parameter.name {
            name if name.contains(".norm") => None,
            name if name.ends_with(".weight") => Some(shape.count() / shape.dim(0)),
            // The bias of a head, whose map has the channels of its stage.
            name => (0..self.stages().count() - 1)
                .find(|stage| name.starts_with(&format!("{}.", self.head(*stage))))
                .map(|stage| self.stages().channels(stage)),
        };
        uniform(parameter, fan, seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = fewer(self.init_filters, 8).into_iter();
        narrowed.map(|init_filters| SegResNetDS { init_filters, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        self.stages().features()
    }

    fn features_flag(&self) -> String {
        format!("‹init_filters={}›", self.init_filters)
    }

    fn describe(&self) -> String {
        format!("SegResNetDS, {} stages of {:?} features", self.stages().count(), self.features())
    }
}
