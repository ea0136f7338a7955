//! `PlainConvUNet` of nnU-Net's `dynamic_network_architectures`: any number of convolutions per stage.
//!
//! Its convolutions have biases which, before a normalisation, change nothing: they are left out here, and written as zeros.

use serde::{Deserialize, Serialize};

use super::builder::ConvNames;
use super::unet::UNetStyle;
use super::{Design, EncoderNames, Network, NetworkSettings, UNet};

/// nnU-Net's plain U-Net.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlainConvUNet {
    /// Its shape, with biases on transposed convolutions.
    pub shape: UNet,
}

impl PlainConvUNet {
    pub(super) const SETTINGS: &[&str] = &[
        "features",
        "kernels",
        "strides",
        "encoder_convs",
        "decoder_convs",
        "affine",
        "deep_supervision",
        "dropout",
    ];

    /// nnU-Net's network for a plan: two convolutions per stage, biases on transposed convolutions, and a head on every map
    /// of the decoder.
    pub fn new(
        in_channels: usize,
        classes: usize,
        features: &[usize],
        kernels: &[[usize; 3]],
        strides: &[[usize; 3]],
    ) -> PlainConvUNet {
        PlainConvUNet::supervised(UNet::new(in_channels, classes, features, kernels, strides))
    }

    fn supervised(shape: UNet) -> PlainConvUNet {
        let deep_supervision = shape.features.len().saturating_sub(2);
        PlainConvUNet { shape: UNet { transposed_bias: true, deep_supervision, ..shape } }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> PlainConvUNet {
        PlainConvUNet { shape: UNet { transposed_bias: true, ..UNet::design(design, settings) } }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> PlainConvUNet {
        PlainConvUNet::supervised(UNet::reference(6, features))
    }
}

fn conv_names(block: &str) -> ConvNames {
    ConvNames { conv: format!("{block}.conv"), norm: format!("{block}.norm") }
}

/// Returns `true` if nnU-Net's state dicts hold the tensor of this name under another one: the decoder knows its encoder, and a block lists its
/// layers a second time.
pub(super) fn is_duplicate(tensor: &str) -> bool {
    tensor.starts_with("decoder.encoder.") || tensor.contains(".all_modules.")
}

/// Those other names.
pub(super) fn other_names(tensor: &str) -> Vec<String> {
    let listed = [(".conv.", ".all_modules.0."), (".norm.", ".all_modules.1.")].into_iter();
    let listed = listed.filter_map(|(layer, place)| {
        let (block, parameter) = tensor.rsplit_once(layer)?;
        Some(format!("{block}{place}{parameter}"))
    });
    let own: Vec<String> = [tensor.to_string()].into_iter().chain(listed).collect();
    let in_decoder =
        own.iter().filter(|name| name.starts_with("encoder.")).map(|name| format!("decoder.{name}"));
    own[1..].iter().cloned().chain(in_decoder).collect()
}

impl UNetStyle for PlainConvUNet {
    const NAME: &str = "plain";
    const TITLE: &str = "PlainConvUNet";
    const SCHEME: &str = "nnunet";
    const ENCODER_NAMES: Option<EncoderNames> = Some(EncoderNames {
        stages: "encoder.stages",
        stem: "encoder.stages.0",
        input: "encoder.stages.0.0.convs.0.conv",
        positions: None,
    });

    fn shape(&self) -> &UNet {
        &self.shape
    }

    fn with_shape(&self, shape: UNet) -> Network {
        PlainConvUNet { shape }.into()
    }

    fn encoder_conv(&self, stage: usize, conv: usize) -> ConvNames {
        conv_names(&format!("encoder.stages.{stage}.0.convs.{conv}"))
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
        is_duplicate(tensor)
    }

    fn other_names(&self, tensor: &str) -> Vec<String> {
        other_names(tensor)
    }

    fn idle_conv_biases(&self) -> Vec<(String, usize)> {
        let shape = &self.shape;
        let encoder = (0..shape.stages())
            .flat_map(|stage| (0..shape.encoder_convs[stage]).map(move |conv| (stage, conv)))
            .map(|(stage, conv)| (stage, self.encoder_conv(stage, conv)));
        let decoder = (0..shape.stages() - 1)
            .flat_map(|stage| (0..shape.decoder_convs[stage]).map(move |conv| (stage, conv)))
            .map(|(stage, conv)| (stage, self.decoder_conv(stage, conv)));
        encoder
            .chain(decoder)
            .map(|(stage, names)| (format!("{}.bias", names.conv), shape.features[stage]))
            .collect()
    }
}
