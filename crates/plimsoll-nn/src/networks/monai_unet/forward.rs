//! The layers as ops of a program.

use plimsoll_graph::ops::{Conv, ConvTranspose, LeakyRelu, Over};
use plimsoll_graph::{DType, TensorId, Window};

use super::layers::Layer;
use super::{EPSILON, MonaiUNet};
use crate::ConfigError;
use crate::UNetNorm;
use crate::networks::builder::{NetBuilder, NormActOptions, Statistics};

/// A network being appended.
pub(super) struct Forward<'n, 'b, 'p> {
    pub(super) net: &'n MonaiUNet,
    pub(super) builder: &'b mut NetBuilder<'p>,
    pub(super) slopes: std::slice::Iter<'n, f32>,
}

impl Forward<'_, '_, '_> {
    /// Convolution, and normalisation, dropout and activation where the layer has them.
    pub(super) fn conv(
        &mut self,
        layer: &Layer,
        map: TensorId,
        stride: [usize; 3],
        dtype: DType,
    ) -> Result<TensorId, ConfigError> {
        let mut operands =
            vec![map, self.builder.weights(&layer.name, layer.outputs, layer.inputs, layer.kernel)];
        let bias = self.net.has_bias(layer);
        if bias {
            operands.push(self.builder.channels(format!("{}.bias", layer.name), layer.outputs));
        }
        let window = Window::same(layer.kernel, stride);
        let y = self.builder.push(&layer.name, Conv::new(window, bias, dtype), &operands)?;
        self.adn(layer, y)
    }

    /// The transposed convolution over a stage's map and that from below: the sum of one over each.
    pub(super) fn transposed(
        &mut self,
        layer: &Layer,
        maps: [TensorId; 2],
        stride: [usize; 3],
        dtype: DType,
    ) -> Result<TensorId, ConfigError> {
        let mut parts = Vec::new();
        for (map, part) in maps.into_iter().zip(PARTS) {
            let shape = self.builder.program().shape(map).clone();
            let name = format!("{}.{part}", layer.name);
            let mut operands =
                vec![map, self.builder.weights(&name, shape.channels(), layer.outputs, layer.kernel)];
            let bias = parts.is_empty() && self.net.has_bias(layer);
            if bias {
                operands.push(self.builder.channels(format!("{}.bias", layer.name), layer.outputs));
            }
            let spatial = shape.spatial();
            let up = ConvTranspose {
                window: Window::same(layer.kernel, stride),
                groups: 1,
                first_channel: 0,
                channels: layer.outputs,
                output: [0, 1, 2].map(|axis| spatial[axis] * stride[axis]),
                bias,
                dtype,
            };
            parts.push(self.builder.push(&name, up, &operands)?);
        }
        let sum = match parts[..] {
            [skip, below] => self.builder.add(skip, below)?,
            _ => return Err(internal()),
        };
        self.adn(layer, sum)
    }

    fn adn(&mut self, layer: &Layer, map: TensorId) -> Result<TensorId, ConfigError> {
        let Some(adn) = &layer.adn else { return Ok(map) };
        let statistics = match self.net.norm {
            UNetNorm::Instance => Statistics::Own(Over::Instance),
            UNetNorm::Batch { .. } => Statistics::Batch,
        };
        let slope = *self.slopes.next().ok_or_else(internal)?;
        let options = NormActOptions {
            statistics,
            epsilon: EPSILON,
            slope,
            affine: self.net.affine,
            conv_bias: self.net.has_bias(layer),
        };
        let normalised = self.builder.norm(&format!("{adn}.N"), map, options)?;
        let kept = self.builder.dropout(normalised, self.net.dropout)?;
        Ok(self.builder.push(&format!("{adn}.A"), LeakyRelu { slope }, &[kept])?)
    }
}

/// The parts of the weights of a transposed convolution, in their order in files of MONAI.
pub(super) const PARTS: [&str; 2] = ["skip", "below"];

/// `check` counts the slopes, and a transposed convolution has two maps.
pub(super) fn internal() -> ConfigError {
    ConfigError::Value {
        setting: "slopes",
        found: "too few".into(),
        expected: "there must be one for each activation".into(),
    }
}
