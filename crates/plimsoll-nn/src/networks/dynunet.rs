//! `monai.networks.nets.DynUNet`: two convolutions per stage; a stage of the decoder has the kernel of the next coarser stage.

use plimsoll_graph::Window;
use serde::{Deserialize, Serialize};

use super::builder::ConvNames;
use super::unet::UNetStyle;
use super::{Design, Network, NetworkSettings, UNet};
use crate::ConfigError;

/// MONAI's DynUNet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DynUNet {
    /// Its shape, with two convolutions per stage.
    pub shape: UNet,
}

impl DynUNet {
    pub(super) const SETTINGS: &[&str] =
        &["features", "kernels", "strides", "affine", "deep_supervision", "dropout"];

    /// `DynUNet(3, in_channels, classes, kernels, strides, strides[1:], filters=features)`, with normalisations that have scale
    /// and shift.
    pub fn new(
        in_channels: usize,
        classes: usize,
        features: &[usize],
        kernels: &[[usize; 3]],
        strides: &[[usize; 3]],
    ) -> DynUNet {
        DynUNet { shape: UNet::new(in_channels, classes, features, kernels, strides) }
    }

    pub(super) fn design(design: &Design, settings: &NetworkSettings) -> DynUNet {
        DynUNet { shape: UNet::design(design, settings) }
    }

    pub(super) fn reference(features: Option<&[usize]>) -> DynUNet {
        DynUNet { shape: UNet::reference(5, features) }
    }
}

fn conv_names(block: &str, conv: usize) -> ConvNames {
    let number = conv + 1;
    ConvNames { conv: format!("{block}.conv{number}.conv"), norm: format!("{block}.norm{number}") }
}

impl UNetStyle for DynUNet {
    const NAME: &str = "dynunet";
    const TITLE: &str = "DynUNet";
    const SCHEME: &str = "monai";

    fn shape(&self) -> &UNet {
        &self.shape
    }

    fn with_shape(&self, shape: UNet) -> Network {
        DynUNet { shape }.into()
    }

    fn check_style(&self) -> Result<(), ConfigError> {
        for (setting, counts) in
            [("encoder_convs", &self.shape.encoder_convs), ("decoder_convs", &self.shape.decoder_convs)]
        {
            if counts.iter().any(|count| *count != 2) {
                let found = format!("{counts:?}");
                let expected = "DynUNet has 2 per stage".into();
                return Err(ConfigError::Value { setting, found, expected });
            }
        }
        for (kernel, stride) in self.shape.kernels.iter().zip(&self.shape.strides) {
            Self::encoder_window(*kernel, *stride)?;
        }
        Ok(())
    }

    /// MONAI's `get_padding`, which follows from the stride as well: at a stride of 3 a kernel of 3 is not padded.
    fn encoder_window(kernel: [usize; 3], stride: [usize; 3]) -> Result<Window, ConfigError> {
        Window::dividing(kernel, stride).ok_or_else(|| ConfigError::Value {
            setting: "kernels",
            found: format!("{kernel:?} with a stride of {stride:?}"),
            expected: "a kernel may be at most one voxel shorter than its stride".into(),
        })
    }

    fn encoder_conv(&self, stage: usize, conv: usize) -> ConvNames {
        let block = match stage {
            0 => "input_block".into(),
            last if last == self.shape.stages() - 1 => "bottleneck".into(),
            between => format!("downsamples.{}", between - 1),
        };
        conv_names(&block, conv)
    }

    fn decoder_conv(&self, stage: usize, conv: usize) -> ConvNames {
        conv_names(&format!("upsamples.{}.conv_block", self.shape.decoder_place(stage)), conv)
    }

    fn transposed(&self, stage: usize) -> String {
        format!("upsamples.{}.transp_conv.conv", self.shape.decoder_place(stage))
    }

    fn head(&self, stage: usize) -> String {
        match stage {
            0 => "output_block.conv.conv".into(),
            coarser => format!("deep_supervision_heads.{}.conv.conv", coarser - 1),
        }
    }

    fn is_duplicate(tensor: &str) -> bool {
        // All blocks are there once more, nested as they are run.
        tensor.starts_with("skip_layers.")
    }

    fn other_names(&self, tensor: &str) -> Vec<String> {
        // Stage by stage, the layer of a stage holds the one below as `next_layer`; the last of these is the bottleneck.
        let inside = |depth: usize| format!("skip_layers{}", ".next_layer".repeat(depth));
        let place = |text: &str| {
            let (place, rest) = text.split_once('.')?;
            Some((place.parse::<usize>().ok()?, rest.to_string()))
        };
        let stages = self.shape.stages();
        let nested = || -> Option<String> {
            if let Some(rest) = tensor.strip_prefix("input_block.") {
                return Some(format!("{}.downsample.{rest}", inside(0)));
            }
            if let Some(rest) = tensor.strip_prefix("bottleneck.") {
                return Some(format!("{}.{rest}", inside(stages - 1)));
            }
            if let Some((i, rest)) = tensor.strip_prefix("downsamples.").and_then(place) {
                return Some(format!("{}.downsample.{rest}", inside(i + 1)));
            }
            if let Some((i, rest)) = tensor.strip_prefix("upsamples.").and_then(place) {
                return Some(format!("{}.upsample.{rest}", inside(stages - 2 - i)));
            }
            let (i, rest) = tensor.strip_prefix("deep_supervision_heads.").and_then(place)?;
            Some(format!("{}.super_head.{rest}", inside(i + 1)))
        };
        nested().into_iter().collect()
    }

    fn decoder_kernel(&self, stage: usize) -> usize {
        stage + 1
    }
}
