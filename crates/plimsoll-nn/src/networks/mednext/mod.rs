//! `monai.networks.nets.MedNeXt` (Roy et al. 2023, arXiv:2303.09975): a U-Net of inverted bottlenecks as in ConvNeXt.
//!
//! A block is a depthwise convolution, normalisation of each channel by itself, a 1×1×1 convolution to several times the channels, GELU and a
//! 1×1×1 convolution back, added to its input. Between stages the depthwise convolution has stride 2, or is a transposed one of stride 2,
//! and a 1×1×1 convolution of the same stride is added. Skip connections are sums.

mod blocks;
mod names;

use plimsoll_graph::{Program, Shape, TensorId, TensorInfo};
use serde::{Deserialize, Serialize};

use self::blocks::{Block, Kind};
use super::bounds::{LARGEST_KERNEL, MOST_EXPANSION, check_count};
use super::builder::NetBuilder;
use super::design::NetworkSize;
use super::segresnet_stages::{Stages, along, fewer};
use super::{Architecture, Design, Extents, Network, NetworkSettings};
use crate::init::uniform;
use crate::weights::NamingScheme;
use crate::{ConfigError, ForwardMode};

/// MONAI's MedNeXt with residual connections and group normalisation of one channel to a group. Lists go from the finest stage to the
/// coarsest, which is the bottleneck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MedNeXt {
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// 2 or 3.
    pub dimensions: usize,
    /// Channels of the finest stage, doubled from stage to stage.
    pub init_filters: usize,
    /// Extent of the depthwise kernels, odd.
    pub kernel_size: usize,
    /// Blocks of each stage of the encoder.
    pub encoder_blocks: Vec<usize>,
    /// Blocks of each stage of the decoder, which has none for the coarsest.
    pub decoder_blocks: Vec<usize>,
    /// Channels inside of the blocks of each stage of the encoder, as a multiple of their input's; blocks that lead to the next stage
    /// included.
    pub encoder_expansion: Vec<usize>,
    /// The same of each stage of the decoder; blocks that lead to a stage included.
    pub decoder_expansion: Vec<usize>,
    /// `true` if blocks have global response normalisation; blocks with stride 2 have none, as in MONAI.
    pub grn: bool,
    /// The number of coarser maps that get a head of their own while training, the finest first.
    pub deep_supervision: usize,
}

/// Channels of the finest stage in the paper.
const FILTERS: usize = 32;
/// Blocks of each kind of stage, and the multiples inside of them, as the paper has them: `create_mednext` of MONAI.
struct Blocks {
    encoder: [usize; 5],
    decoder: [usize; 4],
    encoder_expansion: [usize; 5],
    decoder_expansion: [usize; 4],
}

fn blocks_of(size: NetworkSize) -> Blocks {
    let small =
        Blocks { encoder: [2; 5], decoder: [2; 4], encoder_expansion: [2; 5], decoder_expansion: [2; 4] };
    let wide = Blocks { encoder_expansion: [2, 3, 4, 4, 4], decoder_expansion: [2, 3, 4, 4], ..small };
    match size {
        NetworkSize::S => small,
        NetworkSize::B => wide,
        NetworkSize::M => Blocks { encoder: [3, 4, 4, 4, 4], decoder: [3, 4, 4, 4], ..wide },
        NetworkSize::L => Blocks {
            encoder: [3, 4, 8, 8, 8],
            decoder: [3, 4, 8, 8],
            encoder_expansion: [3, 4, 8, 8, 8],
            decoder_expansion: [3, 4, 8, 8],
        },
    }
}

impl MedNeXt {
    pub(super) const SETTINGS: &[&str] = &[
        "size",
        "init_filters",
        "kernel_size",
        "encoder_blocks",
        "decoder_blocks",
        "encoder_expansion",
        "decoder_expansion",
        "grn",
        "deep_supervision",
    ];

    /// `create_mednext(size, in_channels=in_channels, out_channels=classes, kernel_size=kernel_size)`
    pub fn new(in_channels: usize, classes: usize, size: NetworkSize, kernel_size: usize) -> MedNeXt {
        let Blocks { encoder, decoder, encoder_expansion, decoder_expansion } = blocks_of(size);
        MedNeXt {
            in_channels,
            classes,
            dimensions: 3,
            init_filters: FILTERS,
            kernel_size,
            encoder_blocks: encoder.to_vec(),
            decoder_blocks: decoder.to_vec(),
            encoder_expansion: encoder_expansion.to_vec(),
            decoder_expansion: decoder_expansion.to_vec(),
            grn: false,
            deep_supervision: 0,
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> MedNeXt {
        let size = settings.size.unwrap_or(NetworkSize::S);
        let usual = MedNeXt::new(design.in_channels, design.classes, size, settings.kernel_size.unwrap_or(3));
        let list = |own: &Option<Vec<usize>>, usual: Vec<usize>| own.clone().unwrap_or(usual);
        MedNeXt {
            dimensions: design.dimensions(),
            init_filters: settings.init_filters.unwrap_or(usual.init_filters),
            encoder_blocks: list(&settings.encoder_blocks, usual.encoder_blocks),
            decoder_blocks: list(&settings.decoder_blocks, usual.decoder_blocks),
            encoder_expansion: list(&settings.encoder_expansion, usual.encoder_expansion),
            decoder_expansion: list(&settings.decoder_expansion, usual.decoder_expansion),
            grn: settings.grn.unwrap_or(usual.grn),
            deep_supervision: settings.deep_supervision.unwrap_or(usual.deep_supervision),
            ..usual
        }
    }

    /// Returns the small network with the first of the requested features, which each later stage doubles.
    pub(super) fn reference(features: Option<&[usize]>) -> MedNeXt {
        let init_filters = features.and_then(|features| features.first().copied()).unwrap_or(FILTERS);
        MedNeXt { init_filters, ..MedNeXt::new(1, 2, NetworkSize::S, 3) }
    }

    fn stages(&self) -> Stages<'_> {
        Stages {
            dimensions: self.dimensions,
            init_filters: self.init_filters,
            encoder: &self.encoder_blocks,
            decoder: &self.decoder_blocks,
        }
    }

    /// The coarsest stage.
    fn coarsest(&self) -> usize {
        self.stages().count() - 1
    }

    /// Taps of a depthwise kernel.
    fn taps(&self) -> usize {
        self.kernel_size.pow(self.dimensions as u32)
    }

    fn check_expansion(
        &self,
        setting: &'static str,
        list: &[usize],
        expected: usize,
    ) -> Result<(), ConfigError> {
        if list.len() != expected {
            let (found, stages) = (list.len(), self.stages().count());
            return Err(ConfigError::Length { list: setting, found, stages, expected });
        }
        list.iter().try_for_each(|multiple| check_count(setting, *multiple, 1, MOST_EXPANSION))
    }
}

impl Architecture for MedNeXt {
    fn name(&self) -> &'static str {
        "mednext"
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.stages().check(self.in_channels, self.classes)?;
        check_count("kernel_size", self.kernel_size, 1, LARGEST_KERNEL)?;
        if self.kernel_size.is_multiple_of(2) {
            let (found, expected) = (self.kernel_size.to_string(), "it must be odd".into());
            return Err(ConfigError::Value { setting: "kernel_size", found, expected });
        }
        let coarsest = self.coarsest();
        self.check_expansion("encoder_expansion", &self.encoder_expansion, coarsest + 1)?;
        self.check_expansion("decoder_expansion", &self.decoder_expansion, coarsest)?;
        check_count("deep_supervision", self.deep_supervision, 0, coarsest)
    }

    fn in_channels(&self) -> usize {
        self.in_channels
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn weights(&self) -> f64 {
        let taps = (self.kernel_size as f64).powi(self.dimensions as i32);
        let of_block = |block: Block| {
            let [inputs, hidden, outputs] = [block.inputs, block.hidden(), block.outputs].map(|n| n as f64);
            inputs * taps + inputs * hidden + hidden * outputs + inputs * outputs
        };
        self.blocks().map(of_block).sum()
    }

    fn extents(&self) -> Extents {
        Extents { multiple: along(self.dimensions, 1 << self.coarsest().min(16)), least_coarsest: 2 }
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
        let mut map = builder.linear(names::STEM, image, self.init_filters, true)?;
        let coarsest = self.coarsest();
        let mut skips = Vec::with_capacity(coarsest);
        for stage in 0..coarsest {
            for number in 0..self.encoder_blocks[stage] {
                map = self.append(&mut builder, &self.encoder(stage, number), map)?;
            }
            skips.push(map);
            map = self.append(&mut builder, &self.down(stage), map)?;
        }
        for number in 0..self.encoder_blocks[coarsest] {
            map = self.append(&mut builder, &self.encoder(coarsest, number), map)?;
        }
        // The maps of the stages before they are upsampled, the finest last.
        let mut maps = vec![map];
        for stage in (0..coarsest).rev() {
            let up = self.append(&mut builder, &self.up(stage), map)?;
            map = builder.add(up, skips[stage])?;
            for number in 0..self.decoder_blocks[stage] {
                map = self.append(&mut builder, &self.decoder(stage, number), map)?;
            }
            maps.push(map);
        }
        maps.reverse();
        let heads = if mode.training { self.deep_supervision } else { 0 };
        let stages = maps.iter().enumerate().take(1 + heads);
        stages
            .map(|(stage, map)| Ok(builder.head(&names::head(coarsest, stage), *map, self.classes)?))
            .collect()
    }

    fn naming_schemes(&self) -> Vec<NamingScheme> {
        vec![NamingScheme::native("monai")]
    }

    fn idle_biases(&self) -> Vec<(String, usize)> {
        self.blocks().map(|block| (format!("{}.conv1.bias", block.name), block.inputs)).collect()
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn stored_shape(&self, tensor: &str, shape: &Shape) -> Shape {
        names::stored_shape(self.dimensions, tensor, shape)
    }

    fn is_exchanged(&self, tensor: &str) -> bool {
        names::is_exchanged(tensor)
    }

    fn heads(&self) -> Vec<String> {
        let coarsest = self.coarsest();
        (0..=coarsest).map(|stage| names::head(coarsest, stage)).collect()
    }

    fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
        uniform(parameter, self.fan(parameter), seed, values);
    }

    fn narrower(&self) -> Vec<Network> {
        let narrowed = fewer(self.init_filters, 8).into_iter();
        narrowed.map(|init_filters| MedNeXt { init_filters, ..self.clone() }.into()).collect()
    }

    fn features(&self) -> Vec<usize> {
        self.stages().features()
    }

    fn features_flag(&self) -> String {
        format!("‹init_filters={}›", self.init_filters)
    }

    fn describe(&self) -> String {
        let (stages, kernel) = (self.stages().count(), self.kernel_size);
        let response = if self.grn { ", response normalisation" } else { "" };
        format!("MedNeXt, {stages} stages of {:?} features, kernels of {kernel}{response}", self.features())
    }
}

impl MedNeXt {
    /// Inputs of each output of the layer that a parameter is of, as PyTorch counts them; none of normalisations, whose scales are 1 and
    /// shifts 0. Transposed convolutions, which MONAI's heads are, count their outputs instead.
    fn fan(&self, parameter: &TensorInfo) -> Option<usize> {
        let name = &parameter.name;
        if names::is_head(name) {
            return Some(self.classes);
        }
        if name.starts_with(names::STEM) {
            return Some(self.in_channels);
        }
        let block = self.blocks().find(|block| name.starts_with(&format!("{}.", block.name)))?;
        match name[block.name.len() + 1..].split('.').next()? {
            "conv1" => Some(self.taps()),
            "conv2" => Some(block.inputs),
            "conv3" => Some(block.hidden()),
            "res_conv" if block.kind == Kind::Up => Some(block.outputs),
            "res_conv" => Some(block.inputs),
            _ => None,
        }
    }
}
