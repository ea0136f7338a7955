//! MeshNet by its arguments.

use plimsoll_nn::{MeshActivation, MeshNet, Network};
use serde::Deserialize;

use super::network::one;

/// Arguments of MeshNet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshArguments {
    #[serde(default = "one")]
    in_channels: usize,
    out_channels: usize,
    features: Vec<usize>,
    dilations: Vec<usize>,
    activation: MeshActivation,
    instance_norm: bool,
}

impl MeshArguments {
    pub(super) fn network(&self) -> Network {
        MeshNet {
            activation: self.activation,
            instance_norm: self.instance_norm,
            ..MeshNet::new(self.in_channels, self.out_channels, &self.features, &self.dilations)
        }
        .into()
    }
}
