//! AttentionUnet by the arguments of MONAI's constructor.

use plimsoll_nn::{AttentionUnet, Network};
use serde::Deserialize;

use super::layer::Each;
use super::network::{three, three_dimensions};

/// Arguments of `AttentionUnet`. Defaults are the constructor's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionUnetArguments {
    spatial_dims: usize,
    in_channels: usize,
    out_channels: usize,
    channels: Vec<usize>,
    strides: Vec<Each>,
    #[serde(default = "three")]
    kernel_size: Each,
    #[serde(default = "three")]
    up_kernel_size: Each,
    #[serde(rename = "dropout")]
    _dropout: Option<f64>,
}

impl AttentionUnetArguments {
    pub(super) fn network(&self) -> Result<Network, String> {
        three_dimensions(self.spatial_dims)?;
        if self.up_kernel_size.axes() != [3; 3] {
            return Err("up_kernel_size must be 3".into());
        }
        let kernel = self.kernel_size.axes();
        if kernel != [kernel[0]; 3] {
            return Err(format!("kernel_size is {kernel:?}, but must be the same along all axes"));
        }
        // As MONAI, which leaves out what is too much.
        let wanted = self.channels.len().saturating_sub(1);
        let strides = self.strides.iter().take(wanted).map(Each::axes);
        Ok(AttentionUnet {
            strides: std::iter::once([1; 3]).chain(strides).collect(),
            kernel_size: kernel[0],
            ..AttentionUnet::new(self.in_channels, self.out_channels, &self.channels)
        }
        .into())
    }
}
