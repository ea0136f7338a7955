//! MedNeXt by the arguments of MONAI's constructor.

use plimsoll_nn::{MedNeXt, Network, NetworkSize};
use serde::Deserialize;

use super::network::{dimensions, finest_first, one, three_dimensions, two};

/// A number for all stages, or one for each.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OfStages {
    All(usize),
    Each(Vec<usize>),
}

impl OfStages {
    /// The number of each of `stages` stages.
    fn numbers(&self, stages: usize) -> Vec<usize> {
        match self {
            OfStages::All(number) => vec![*number; stages],
            OfStages::Each(numbers) => numbers.clone(),
        }
    }
}

/// Arguments of `MedNeXt`. Defaults are the constructor's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MedNextArguments {
    #[serde(default = "dimensions")]
    spatial_dims: usize,
    init_filters: Option<usize>,
    #[serde(default = "one")]
    in_channels: usize,
    #[serde(default = "two")]
    out_channels: usize,
    encoder_expansion_ratio: Option<OfStages>,
    decoder_expansion_ratio: Option<OfStages>,
    #[serde(default = "two")]
    bottleneck_expansion_ratio: usize,
    kernel_size: Option<usize>,
    #[serde(default)]
    deep_supervision: bool,
    #[serde(default)]
    use_residual_connection: bool,
    blocks_down: Option<Vec<usize>>,
    #[serde(default = "two")]
    blocks_bottleneck: usize,
    blocks_up: Option<Vec<usize>>,
    norm_type: Option<String>,
    #[serde(default)]
    global_resp_norm: bool,
}

/// The kernel of MONAI's constructor.
const MEDNEXT_KERNEL: usize = 7;

impl MedNextArguments {
    pub(super) fn network(&self) -> Result<Network, String> {
        three_dimensions(self.spatial_dims)?;
        if !self.use_residual_connection {
            return Err("use_residual_connection must be true: MedNeXt is supported with these alone".into());
        }
        if self.norm_type.as_deref().is_some_and(|norm| norm != "group") {
            return Err("norm_type must be group".into());
        }
        let kernel = self.kernel_size.unwrap_or(MEDNEXT_KERNEL);
        let usual = MedNeXt::new(self.in_channels, self.out_channels, NetworkSize::S, kernel);
        let four = || vec![2; 4];
        let mut encoder_blocks = self.blocks_down.clone().unwrap_or_else(four);
        let decoder_blocks = finest_first(&self.blocks_up.clone().unwrap_or_else(four));
        let ratios = |of: &Option<OfStages>, stages: usize| {
            of.as_ref().map_or_else(|| vec![2; stages], |of| of.numbers(stages))
        };
        let mut encoder_expansion = ratios(&self.encoder_expansion_ratio, encoder_blocks.len());
        let decoder_expansion = finest_first(&ratios(&self.decoder_expansion_ratio, decoder_blocks.len()));
        encoder_blocks.push(self.blocks_bottleneck);
        encoder_expansion.push(self.bottleneck_expansion_ratio);
        let deep_supervision = if self.deep_supervision { decoder_blocks.len() } else { 0 };
        Ok(MedNeXt {
            init_filters: self.init_filters.unwrap_or(usual.init_filters),
            encoder_blocks,
            decoder_blocks,
            encoder_expansion,
            decoder_expansion,
            grn: self.global_resp_norm,
            deep_supervision,
            ..usual
        }
        .into())
    }
}
