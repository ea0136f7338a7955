//! UNETR by the arguments of MONAI's constructor.

use plimsoll_nn::{Network, Unetr};
use serde::Deserialize;

use super::layer::Each;
use super::network::{dimensions, three_dimensions, yes};

/// Arguments of `UNETR`. Defaults are the constructor's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnetrArguments {
    in_channels: usize,
    out_channels: usize,
    img_size: Each,
    feature_size: Option<usize>,
    hidden_size: Option<usize>,
    mlp_dim: Option<usize>,
    num_heads: Option<usize>,
    /// The kind of layer that makes tokens, `pos_embed` before MONAI 1.3.
    #[serde(alias = "pos_embed")]
    proj_type: Option<String>,
    norm_name: Option<String>,
    #[serde(default = "yes")]
    conv_block: bool,
    #[serde(default = "yes")]
    res_block: bool,
    #[serde(rename = "dropout_rate")]
    _dropout_rate: Option<f64>,
    #[serde(default = "dimensions")]
    spatial_dims: usize,
    #[serde(default)]
    qkv_bias: bool,
    /// Changes no result.
    #[serde(rename = "save_attn")]
    _save_attn: Option<bool>,
}

/// Channels of the hidden layers of MONAI's constructor.
const MLP_DIM: usize = 3072;

impl UnetrArguments {
    pub(super) fn network(&self) -> Result<Network, String> {
        three_dimensions(self.spatial_dims)?;
        if !self.conv_block || !self.res_block {
            return Err("conv_block and res_block must be true".into());
        }
        if self.proj_type.as_deref().is_some_and(|kind| kind != "conv") {
            return Err("proj_type must be conv".into());
        }
        if self.norm_name.as_deref().is_some_and(|norm| norm.to_lowercase() != "instance") {
            return Err("norm_name must be instance".into());
        }
        let usual = Unetr::new(self.in_channels, self.out_channels, self.img_size.axes());
        let hidden_size = self.hidden_size.unwrap_or(usual.hidden_size);
        let mlp_dim = self.mlp_dim.unwrap_or(MLP_DIM);
        Ok(Unetr {
            feature_size: self.feature_size.unwrap_or(usual.feature_size),
            hidden_size,
            mlp_ratio: mlp_dim as f32 / hidden_size.max(1) as f32,
            num_heads: self.num_heads.map_or(usual.num_heads, |heads| vec![heads]),
            qkv_bias: self.qkv_bias,
            ..usual
        }
        .into())
    }
}
