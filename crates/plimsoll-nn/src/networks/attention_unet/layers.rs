//! The convolutions of the network, with the names that MONAI gives them.

use super::AttentionUnet;
use crate::networks::segresnet_stages::along;

/// A convolution, and the layers behind it.
pub(super) struct Layer {
    /// The name of all of them together.
    pub(super) block: String,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) kernel: [usize; 3],
    /// `true` if it is transposed.
    pub(super) transposed: bool,
}

impl Layer {
    /// The name of the convolution; parameters are `NAME.weight` and `NAME.bias`.
    pub(super) fn name(&self) -> String {
        format!("{}.conv", self.block)
    }

    /// The name of the normalisation, `N`, or the activation, `A`, behind it.
    pub(super) fn behind(&self, part: &str) -> String {
        format!("{}.adn.{part}", self.block)
    }

    /// The inputs of an output, as PyTorch counts them: of a transposed convolution its outputs.
    pub(super) fn fan(&self) -> usize {
        let channels = if self.transposed { self.outputs } else { self.inputs };
        channels * self.kernel.iter().product::<usize>()
    }
}

/// The convolutions of the gate of a stage.
pub(super) struct GateLayers {
    /// The name of the gate.
    pub(super) name: String,
    /// Over the map from below.
    pub(super) below: Layer,
    /// Over the skip connection.
    pub(super) skip: Layer,
    /// To one channel.
    pub(super) factor: Layer,
}

/// Convolutions of a stage.
const CONVOLUTIONS: usize = 2;

impl AttentionUnet {
    /// The name of the layer that leads from a stage to the coarser ones and back.
    fn attention_layer(stage: usize) -> String {
        format!("model.1{}", ".submodule.1".repeat(stage))
    }

    /// The convolutions of a stage, one after the other.
    pub(super) fn convolutions(&self, stage: usize) -> Vec<Layer> {
        let stage_name = match stage {
            0 => "model.0".into(),
            _ => {
                let outer = Self::attention_layer(stage - 1);
                // Within the coarsest stage there is no other.
                let place = if stage + 1 == self.stages() { "" } else { ".0" };
                format!("{outer}.submodule{place}")
            }
        };
        let outputs = self.features[stage];
        let from = if stage == 0 { self.in_channels } else { self.features[stage - 1] };
        let convolution = |number: usize| Layer {
            block: format!("{stage_name}.conv.{number}"),
            inputs: if number == 0 { from } else { outputs },
            outputs,
            kernel: along(self.dimensions, self.kernel_size),
            transposed: false,
        };
        (0..CONVOLUTIONS).map(convolution).collect()
    }

    /// The transposed convolution to a stage from the next coarser one.
    pub(super) fn up(&self, stage: usize) -> Layer {
        Layer {
            block: format!("{}.upconv.up", Self::attention_layer(stage)),
            inputs: self.features[stage + 1],
            outputs: self.features[stage],
            kernel: along(self.dimensions, 3),
            transposed: true,
        }
    }

    /// The convolutions of the gate of a stage.
    pub(super) fn gate(&self, stage: usize) -> GateLayers {
        let name = format!("{}.attention", Self::attention_layer(stage));
        let of = |part: &str, inputs: usize, outputs: usize| Layer {
            block: format!("{name}.{part}.0"),
            inputs,
            outputs,
            kernel: [1; 3],
            transposed: false,
        };
        let (features, inside) = (self.features[stage], self.gate_features(stage));
        GateLayers {
            below: of("W_g", features, inside),
            skip: of("W_x", features, inside),
            factor: of("psi", inside, 1),
            name,
        }
    }

    /// The convolution over the weighted skip connection of a stage and the map from below.
    pub(super) fn merge(&self, stage: usize) -> Layer {
        Layer {
            block: format!("{}.merge", Self::attention_layer(stage)),
            inputs: 2 * self.features[stage],
            outputs: self.features[stage],
            kernel: along(self.dimensions, 3),
            transposed: false,
        }
    }

    /// The convolution that makes logits.
    pub(super) fn head(&self) -> Layer {
        Layer {
            block: "model.2".into(),
            inputs: self.features[0],
            outputs: self.classes,
            kernel: [1; 3],
            transposed: false,
        }
    }

    /// All convolutions.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let mut layers = vec![self.head()];
        for stage in 0..self.stages() {
            layers.extend(self.convolutions(stage));
            if stage + 1 < self.stages() {
                let GateLayers { below, skip, factor, .. } = self.gate(stage);
                layers.extend([self.up(stage), below, skip, factor, self.merge(stage)]);
            }
        }
        layers
    }
}
