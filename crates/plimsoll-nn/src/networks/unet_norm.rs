//! The normalisation of U-Nets.

use serde::{Deserialize, Serialize};

/// The statistics that the maps of a U-Net are normalised with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UNetNorm {
    /// The statistics of each map of each sample. They cancel biases of the convolution before, so that it has none.
    #[default]
    Instance,
    /// The statistics of a batch while training; otherwise the running ones, which do not cancel a bias.
    Batch {
        /// `true` if convolutions before a normalisation have biases.
        conv_bias: bool,
    },
}
