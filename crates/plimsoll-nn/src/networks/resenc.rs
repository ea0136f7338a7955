//! `ResidualEncoderUNet` of nnU-Net's `dynamic_network_architectures`: an encoder of residual blocks, a plain decoder.
//!
//! A stem (convolution, instance normalisation, leaky ReLU), then in each stage blocks of two convolutions with a shortcut:
//! z = lrelu(norm(conv(lrelu(norm(conv(x))))) + shortcut). The shortcut is x; behind a stride its means over the stride, and where
//! the features change a normalised 1×1×1 convolution of that (the ResNet-D of He et al. 2019). The decoder equals the plain
//! U-Net with a convolution per stage.
//!
//! Convolutions before a normalisation have biases, which change nothing: they are left out here, and written as zeros.

use plimsoll_graph::TensorId;
use serde::{Deserialize, Serialize};

use super::basic_block::{BasicBlock, conv_names};
use super::builder::{ConvNames, ConvShape, NetBuilder};
use super::unet::UNetStyle;
use super::{Design, EncoderNames, Network, NetworkSettings, UNet, UNetNorm};
use crate::ConfigError;

/// nnU-Net's U-Net with a residual encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct ResidualEncoderUNet {
    /// Its shape, with biases on transposed convolutions. `encoder_convs` are residual blocks of two convolutions.
    pub shape: UNet,
}

/// The form of the network in configurations.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    in_channels: usize,
    classes: usize,
    features: Vec<usize>,
    kernels: Vec<[usize; 3]>,
    strides: Vec<[usize; 3]>,
    encoder_blocks: Vec<usize>,
    decoder_convs: Vec<usize>,
    affine: bool,
    epsilon: f32,
    slope: f32,
    #[serde(default)]
    norm: UNetNorm,
    deep_supervision: usize,
}

impl From<Stored> for ResidualEncoderUNet {
    fn from(stored: Stored) -> ResidualEncoderUNet {
        let shape = UNet {
            in_channels: stored.in_channels,
            classes: stored.classes,
            features: stored.features,
            kernels: stored.kernels,
            strides: stored.strides,
            encoder_convs: stored.encoder_blocks,
            decoder_convs: stored.decoder_convs,
            affine: stored.affine,
            epsilon: stored.epsilon,
            slope: stored.slope,
            norm: stored.norm,
            transposed_bias: true,
            deep_supervision: stored.deep_supervision,
            dropout: 0.0,
        };
        ResidualEncoderUNet { shape }
    }
}

impl From<ResidualEncoderUNet> for Stored {
    fn from(ResidualEncoderUNet { shape }: ResidualEncoderUNet) -> Stored {
        Stored {
            in_channels: shape.in_channels,
            classes: shape.classes,
            features: shape.features,
            kernels: shape.kernels,
            strides: shape.strides,
            encoder_blocks: shape.encoder_convs,
            decoder_convs: shape.decoder_convs,
            affine: shape.affine,
            epsilon: shape.epsilon,
            slope: shape.slope,
            norm: shape.norm,
            deep_supervision: shape.deep_supervision,
        }
    }
}

/// Residual blocks of nnU-Net's presets, of the finest stages and of all others.
const BLOCKS: [usize; 3] = [1, 3, 4];
const MORE_BLOCKS: usize = 6;

fn usual_blocks(stages: usize) -> Vec<usize> {
    (0..stages).map(|stage| BLOCKS.get(stage).copied().unwrap_or(MORE_BLOCKS)).collect()
}

impl ResidualEncoderUNet {
    pub(super) const SETTINGS: &[&str] =
        &["features", "kernels", "strides", "encoder_blocks", "decoder_convs", "affine", "deep_supervision"];

    /// nnU-Net's network for a plan: 1, 3, 4, 6, 6, … residual blocks, a convolution per stage of the decoder, biases on transposed
    /// convolutions, and a head on every map of the decoder.
    pub fn new(
        in_channels: usize,
        classes: usize,
        features: &[usize],
        kernels: &[[usize; 3]],
        strides: &[[usize; 3]],
    ) -> ResidualEncoderUNet {
        ResidualEncoderUNet::residual(UNet::new(in_channels, classes, features, kernels, strides))
    }

    fn residual(shape: UNet) -> ResidualEncoderUNet {
        let stages = shape.features.len();
        ResidualEncoderUNet {
            shape: UNet {
                encoder_convs: usual_blocks(stages),
                decoder_convs: vec![1; stages.saturating_sub(1)],
                transposed_bias: true,
                deep_supervision: stages.saturating_sub(2),
                ..shape
            },
        }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> ResidualEncoderUNet {
        let shape = UNet::design(design, settings);
        let usual = ResidualEncoderUNet::residual(shape.clone()).shape;
        ResidualEncoderUNet {
            shape: UNet {
                encoder_convs: settings.encoder_blocks.clone().unwrap_or(usual.encoder_convs),
                decoder_convs: settings.decoder_convs.clone().unwrap_or(usual.decoder_convs),
                transposed_bias: true,
                ..shape
            },
        }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> ResidualEncoderUNet {
        ResidualEncoderUNet::residual(UNet::reference(6, features))
    }
}

fn block_name(stage: usize, block: usize) -> String {
    format!("encoder.stages.{stage}.blocks.{block}")
}

const STEM: &str = "encoder.stem.convs.0";

impl UNetStyle for ResidualEncoderUNet {
    const NAME: &str = "resenc";
    const TITLE: &str = "ResidualEncoderUNet";
    const SCHEME: &str = "nnunet";
    const ENCODER: (&str, usize) = ("encoder_blocks", 2);
    const ENCODER_NAMES: Option<EncoderNames> = Some(EncoderNames {
        stages: "encoder.stages",
        stem: "encoder.stem",
        input: "encoder.stem.convs.0.conv",
        positions: None,
    });

    fn shape(&self) -> &UNet {
        &self.shape
    }

    fn with_shape(&self, shape: UNet) -> Network {
        ResidualEncoderUNet { shape }.into()
    }

    fn encode(&self, builder: &mut NetBuilder<'_>, image: TensorId) -> Result<Vec<TensorId>, ConfigError> {
        let UNet { features, kernels, strides, encoder_convs, .. } = &self.shape;
        let stem = ConvShape::same(features[0], kernels[0], [1; 3]);
        let mut map = builder.conv_norm_act(&conv_names(STEM), &[image], stem, self.shape.norm_act())?;
        let (mut skips, mut from) = (Vec::with_capacity(features.len()), features[0]);
        for stage in 0..features.len() {
            for block in 0..encoder_convs[stage] {
                let stride = if block == 0 { strides[stage] } else { [1; 3] };
                let shape = ConvShape::same(features[stage], kernels[stage], stride);
                let name = block_name(stage, block);
                let block = BasicBlock { name: &name, inputs: from, shape, options: self.shape.norm_act() };
                map = block.append(builder, map)?;
                from = features[stage];
            }
            skips.push(map);
        }
        Ok(skips)
    }

    fn encoder_conv(&self, stage: usize, conv: usize) -> ConvNames {
        conv_names(&format!("{}.conv{}", block_name(stage, conv / 2), conv % 2 + 1))
    }

    fn decoder_conv(&self, stage: usize, conv: usize) -> ConvNames {
        conv_names(&format!("decoder.stages.{}.convs.{conv}", self.shape.decoder_place(stage)))
    }

    fn transposed(&self, stage: usize) -> String {
        format!("decoder.transpconvs.{}", self.shape.decoder_place(stage))
    }

    fn head(&self, stage: usize) -> String {
        format!("decoder.seg_layers.{}", self.shape.decoder_place(stage))
    }

    fn is_duplicate(tensor: &str) -> bool {
        super::plain::is_duplicate(tensor)
    }

    fn other_names(&self, tensor: &str) -> Vec<String> {
        super::plain::other_names(tensor)
    }

    /// The last normalisation of a block begins as zero, so that the block begins as its shortcut.
    fn begins_as_zero(&self, parameter: &str) -> bool {
        parameter.starts_with("encoder.stages.")
            && [".conv2.norm.weight", ".conv2.norm.bias"].iter().any(|last| parameter.ends_with(last))
    }

    fn idle_conv_biases(&self) -> Vec<(String, usize)> {
        let shape = &self.shape;
        let stem = [(conv_names(STEM), shape.features[0])];
        let encoder = (0..shape.stages()).flat_map(|stage| {
            let convs = 0..2 * shape.encoder_convs[stage];
            convs.map(move |conv| (self.encoder_conv(stage, conv), shape.features[stage]))
        });
        let decoder = (0..shape.stages() - 1).flat_map(|stage| {
            let convs = 0..shape.decoder_convs[stage];
            convs.map(move |conv| (self.decoder_conv(stage, conv), shape.features[stage]))
        });
        let all = stem.into_iter().chain(encoder).chain(decoder);
        all.map(|(names, features)| (format!("{}.bias", names.conv), features)).collect()
    }
}
