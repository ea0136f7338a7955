//! `monai.networks.nets.SegResNet` (Myronenko 2018, doi:10.1007/978-3-030-11726-9_28), without the variational autoencoder.
//!
//! Residual blocks with normalisation and activation first: x + conv(relu(norm(conv(relu(norm(x)))))), by group normalisation. Between
//! stages strided convolutions down; up a 1×1×1 convolution, doubling, and the sum with the encoder's map of that stage.

use plimsoll_graph::ops::Over;
use plimsoll_graph::{Program, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use super::bounds::check_probability;
use super::builder::{ConvShape, NetBuilder};
use super::design::UpsampleMode;
use super::segresnet_stages::{BLOCKS, Stages, along, block, blocks, fewer, relu};
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::{alike, uniform};
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// MONAI's SegResNet. Lists go from the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegResNet {
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
    /// Groups of channels of each normalisation.
    pub norm_groups: usize,
    /// The upsampling of the decoder.
    pub upsample: UpsampleMode,
    /// The probability with which a channel of the first convolution's result is dropped while training.
    pub dropout: f32,
}

impl SegResNet {
    pub(super) const SETTINGS: &[&str] =
        &["init_filters", "encoder_blocks", "decoder_blocks", "norm_groups", "upsample", "dropout"];

    /// `SegResNet(init_filters=init_filters, in_channels=in_channels, out_channels=classes)`
    pub fn new(in_channels: usize, classes: usize, init_filters: usize) -> SegResNet {
        SegResNet {
            in_channels,
            classes,
            dimensions: 3,
            init_filters,
            encoder_blocks: BLOCKS.to_vec(),
            decoder_blocks: vec![1; BLOCKS.len() - 1],
            norm_groups: 8,
            upsample: UpsampleMode::NonTrainable,
            dropout: 0.0,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> SegResNet {
        // What MONAI's published models have; 8 is the default of the class.
        let usual = SegResNet::new(design.in_channels, design.classes, settings.init_filters.unwrap_or(16));
        let (encoder_blocks, decoder_blocks) = blocks(settings);
        SegResNet {
            dimensions: design.dimensions(),
            encoder_blocks,
            decoder_blocks,
            norm_groups: settings.norm_groups.unwrap_or(usual.norm_groups),
            upsample: settings.upsample.unwrap_or(usual.upsample),
            dropout: settings.dropout.unwrap_or(usual.dropout),
            ..usual
        }
    }

    /// Returns the network with the first of the requested features, which each later stage doubles.
    pub(super) fn reference(features: Option<&[usize]>) -> SegResNet {
        SegResNet::new(1, 2, features.and_then(|features| features.first().copied()).unwrap_or(16))
    }

    fn stages(&self) -> Stages<'_> {
        Stages {
            dimensions: self.dimensions,
            init_filters: self.init_filters,
            encoder: &self.encoder_blocks,
            decoder: &self.decoder_blocks,
        }
    }

    fn shape(&self, stage: usize, kernel: usize, stride: usize) -> ConvShape {
        let [kernel, stride] = [kernel, stride].map(|extent| along(self.dimensions, extent));
        ConvShape::same(self.stages().channels(stage), kernel, stride)
    }

    fn over(&self) -> Over {
        Over::Group(self.norm_groups)
    }

    fn block(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        x: TensorId,
        stage: usize,
    ) -> Result<TensorId, ConfigError> {
        let norms = ["norm1", "norm2"].map(|norm| format!("{name}.{norm}"));
        let convs = ["conv1.conv", "conv2.conv"].map(|conv| format!("{name}.{conv}"));
        block(builder, norms, convs, x, self.shape(stage, 3, 1), self.over())
    }

    /// From the map of the next coarser stage to the extent of this one.
    fn up(&self, builder: &mut NetBuilder<'_>, map: TensorId, stage: usize) -> Result<TensorId, ConfigError> {
        let name = format!("up_samples.{}", self.stages().decoder_place(stage));
        let shape = self.shape(stage, 1, 1);
        let y = builder.bare_conv(&format!("{name}.0.conv"), &[map], shape, false)?;
        let axes = along(self.dimensions, 2).map(|factor| factor == 2);
        Ok(match self.upsample {
            UpsampleMode::NonTrainable => builder.interpolate(y, axes)?,
            UpsampleMode::Deconv => {
                builder.up(&format!("{name}.1.deconv"), y, shape.features, along(self.dimensions, 2), true)?
            }
            UpsampleMode::PixelShuffle => {
                let name = format!("{name}.1.pixelshuffle.conv_block");
                builder.subpixel(&name, y, shape.features, axes, true)?
            }
        })
    }
}

/// The convolution that makes logits.
const HEAD: &str = "conv_final.2.conv";

impl Architecture for SegResNet {
    fn name(&self) -> &'static str {
        "segresnet"
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.stages().check(self.in_channels, self.classes)?;
        if self.norm_groups == 0 || !self.init_filters.is_multiple_of(self.norm_groups) {
            let expected = format!("it must divide the {} filters of the first stage", self.init_filters);
            let found = self.norm_groups.to_string();
            return Err(ConfigError::Value { setting: "norm_groups", found, expected });
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
        // Down and up: at most a convolution to eight times the channels.
        self.stages().weights(9.0)
    }

    fn extents(&self) -> Extents {
        let multiple = along(self.dimensions, 1 << (self.stages().count() - 1).min(16));
        // A group of the coarsest stage has several channels, so a voxel has a variance.
        Extents { multiple, least_coarsest: 1 }
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
        let mut map = builder.bare_conv("convInit.conv", &[image], self.shape(0, 3, 1), false)?;
        map = builder.dropout(map, dropout)?;
        let mut skips = Vec::with_capacity(self.stages().count());
        for stage in 0..self.stages().count() {
            if stage > 0 {
                let name = format!("down_layers.{stage}.0.conv");
                map = builder.bare_conv(&name, &[map], self.shape(stage, 3, 2), false)?;
            }
            for number in 1..=self.encoder_blocks[stage] {
                map = self.block(&mut builder, &format!("down_layers.{stage}.{number}"), map, stage)?;
            }
            skips.push(map);
        }
        for stage in (0..self.stages().count() - 1).rev() {
            let up = self.up(&mut builder, map, stage)?;
            map = builder.add(skips[stage], up)?;
            for number in 0..self.decoder_blocks[stage] {
                let name = format!("up_layers.{}.{number}", self.stages().decoder_place(stage));
                map = self.block(&mut builder, &name, map, stage)?;
            }
        }
        let map = builder.norm_act("conv_final.0", map, relu(self.over()))?;
        Ok(vec![builder.head(HEAD, map, self.classes)?])
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("monai")]
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn heads(&self) -> Vec<String> {
        vec![HEAD.into()]
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        let parts = 1 << self.dimensions;
        let of_shuffle = parameter.name.contains(".pixelshuffle.");
        if of_shuffle && parameter.name.ends_with(".weight") {
            return alike(parameter, parts, seed, values);
        }
        uniform(parameter, self.fan(parameter, parts), seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = fewer(self.init_filters, self.norm_groups).into_iter();
        narrowed.map(|init_filters| SegResNet { init_filters, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        self.stages().features()
    }

    fn features_flag(&self) -> String {
        format!("‹init_filters={}›", self.init_filters)
    }

    fn describe(&self) -> String {
        format!("SegResNet, {} stages of {:?} features", self.stages().count(), self.features())
    }
}

impl SegResNet {
    /// Inputs of each output of the convolution that a parameter is of; none of normalisations.
    fn fan(&self, parameter: &TensorInfo, parts: usize) -> Option<usize> {
        let shape = &parameter.shape;
        if parameter.name.contains("norm") || parameter.name.starts_with("conv_final.0.") {
            return None;
        }
        if parameter.name.ends_with(".weight") {
            return Some(shape.count() / shape.dim(0));
        }
        // A bias is told by its own length from how many inputs there are.
        let outputs = shape.dim(0);
        Some(match &parameter.name {
            name if name.contains(".deconv.") => outputs * parts,
            name if name.contains(".pixelshuffle.") => outputs / parts * 3usize.pow(self.dimensions as u32),
            _ => self.init_filters,
        })
    }
}
