//! The layers of the network, with the names that MONAI gives them.

use super::MonaiUNet;
use crate::UNetNorm;

/// A convolution, and what is behind it.
pub(super) struct Layer {
    /// Its name; parameters are `NAME.weight` and `NAME.bias`.
    pub(super) name: String,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) kernel: [usize; 3],
    /// The prefix of the names of normalisation and activation, if there are any: `….adn`.
    pub(super) adn: Option<String>,
}

/// A step of the encoder: the stages, of which the last is the bottom.
pub(super) struct Down {
    pub(super) prefix: String,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) stride: [usize; 3],
}

/// A step of the decoder, to the map above its stage.
pub(super) struct Up {
    pub(super) prefix: String,
    /// Channels of the map of its stage, and of that from below.
    pub(super) inputs: [usize; 2],
    pub(super) outputs: usize,
    pub(super) stride: [usize; 3],
    pub(super) is_top: bool,
}

impl MonaiUNet {
    pub(super) fn stages(&self) -> usize {
        self.features.len()
    }

    /// The way down: the stages before the bottom, then the bottom.
    pub(super) fn downs(&self) -> Vec<Down> {
        let inputs = std::iter::once(&self.in_channels).chain(&self.features);
        let strides = self.strides.iter().copied().chain([[1; 3]]);
        let last = self.stages().saturating_sub(1);
        let of_stage = |(stage, ((inputs, outputs), stride)): (usize, ((&usize, &usize), [usize; 3]))| {
            let prefix = format!("model{}", ".1.submodule".repeat(stage));
            // The bottom is not nested further.
            let prefix = if stage == last { prefix } else { format!("{prefix}.0") };
            Down { prefix, inputs: *inputs, outputs: *outputs, stride }
        };
        inputs.zip(&self.features).zip(strides).enumerate().map(of_stage).collect()
    }

    /// The way up, the coarsest first.
    pub(super) fn ups(&self) -> Vec<Up> {
        // One stride leads from each stage but the bottom to the next.
        let outputs = std::iter::once(&self.classes).chain(&self.features);
        let stages = self.features.iter().zip(&self.strides).zip(outputs).enumerate();
        let up = |(stage, ((own, stride), outputs)): (usize, ((&usize, &[usize; 3]), &usize))| {
            // What comes from below has the channels of this stage, but from the bottom its own.
            let below = match self.features.get(stage + 1..) {
                Some([bottom]) => *bottom,
                _ => *own,
            };
            let prefix = format!("model{}.2", ".1.submodule".repeat(stage));
            Up { prefix, inputs: [*own, below], outputs: *outputs, stride: *stride, is_top: stage == 0 }
        };
        let mut ups: Vec<Up> = stages.map(up).collect();
        ups.reverse();
        ups
    }

    /// The convolutions of a step down one after the other; the residual's is not among them.
    pub(super) fn units(&self, down: &Down) -> Vec<Layer> {
        let prefix = &down.prefix;
        let unit = |number: usize| {
            let prefix = match self.residual_units {
                0 => prefix.clone(),
                _ => format!("{prefix}.conv.unit{number}"),
            };
            Layer {
                name: format!("{prefix}.conv"),
                inputs: if number == 0 { down.inputs } else { down.outputs },
                outputs: down.outputs,
                kernel: self.kernel,
                adn: Some(format!("{prefix}.adn")),
            }
        };
        (0..self.residual_units.max(1)).map(unit).collect()
    }

    /// The shortcut convolution of a step down, if its result has another shape than its map.
    pub(super) fn residual(&self, down: &Down) -> Option<Layer> {
        let strided = down.stride != [1; 3];
        let is_other = self.residual_units > 0 && (strided || down.inputs != down.outputs);
        is_other.then(|| Layer {
            name: format!("{}.residual", down.prefix),
            inputs: down.inputs,
            outputs: down.outputs,
            kernel: if strided { self.kernel } else { [1; 3] },
            adn: None,
        })
    }

    /// The transposed convolution of a step up.
    pub(super) fn transposed(&self, up: &Up) -> Layer {
        let prefix = match self.residual_units {
            0 => up.prefix.clone(),
            _ => format!("{}.0", up.prefix),
        };
        let is_last = up.is_top && self.residual_units == 0;
        Layer {
            name: format!("{prefix}.conv"),
            inputs: up.inputs.iter().sum(),
            outputs: up.outputs,
            kernel: self.up_kernel,
            adn: (!is_last).then(|| format!("{prefix}.adn")),
        }
    }

    /// The convolution of the residual unit behind it, if there is one.
    pub(super) fn smoothing(&self, up: &Up) -> Option<Layer> {
        let prefix = format!("{}.1.conv.unit0", up.prefix);
        (self.residual_units > 0).then(|| Layer {
            name: format!("{prefix}.conv"),
            inputs: up.outputs,
            outputs: up.outputs,
            kernel: self.kernel,
            adn: (!up.is_top).then(|| format!("{prefix}.adn")),
        })
    }

    /// All convolutions, in the order of the forward pass.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let mut layers = Vec::new();
        for down in self.downs() {
            layers.extend(self.units(&down));
            layers.extend(self.residual(&down));
        }
        for up in self.ups() {
            layers.push(self.transposed(&up));
            layers.extend(self.smoothing(&up));
        }
        layers
    }

    /// The names of its activations in files of MONAI, in the order of the forward pass: a PReLU's slope is `NAME.weight`.
    pub fn activations(&self) -> Vec<String> {
        self.layers().into_iter().filter_map(|layer| Some(format!("{}.A", layer.adn?))).collect()
    }

    /// Returns `true` if a convolution has a bias that the normalisation behind it does not cancel.
    pub(super) fn has_bias(&self, layer: &Layer) -> bool {
        self.bias && (layer.adn.is_none() || self.norm != UNetNorm::Instance)
    }
}
