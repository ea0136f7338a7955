//! The layers as ops of a program.

use plimsoll_graph::ops::{LeakyRelu, Over, Prelu, Sigmoid, VoxelGate};
use plimsoll_graph::{TensorId, Window};

use super::AttentionUnet;
use super::layers::{GateLayers, Layer};
use crate::ConfigError;
use crate::networks::batch_norm::EPSILON;
use crate::networks::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};

/// Normalisation by the statistics of a batch, or of each map by its own, which cancel a bias before it.
fn normalisation(statistics: Statistics) -> NormActOptions {
    let is_batch = matches!(statistics, Statistics::Batch);
    NormActOptions { statistics, epsilon: EPSILON, slope: 0.0, affine: is_batch, conv_bias: is_batch }
}

impl AttentionUnet {
    /// Appends the network up to its logits.
    pub(super) fn append(
        &self,
        builder: &mut NetBuilder<'_>,
        image: TensorId,
    ) -> Result<TensorId, ConfigError> {
        let (mut map, mut skips) = (image, Vec::with_capacity(self.stages()));
        for (stage, stride) in self.strides.iter().enumerate() {
            let mut stride = *stride;
            for layer in self.convolutions(stage) {
                let shape = ConvShape::same(layer.outputs, layer.kernel, stride);
                let y = builder.bare_conv(&layer.name(), &[map], shape, true)?;
                map = activated(builder, &layer, y, self.dropout)?;
                stride = [1; 3];
            }
            skips.push(map);
        }
        skips.pop();
        for (stage, skip) in skips.into_iter().enumerate().rev() {
            let up = self.up(stage);
            let window = Window::same(up.kernel, self.strides[stage + 1]);
            let y = builder.transposed(&up.name(), map, up.outputs, window, true)?;
            // Here MONAI has no dropout.
            let below = activated(builder, &up, y, 0.0)?;
            let weighted = weighted(builder, &self.gate(stage), below, skip)?;
            map = self.merged(builder, &self.merge(stage), [weighted, below])?;
        }
        Ok(builder.head(&self.head().name(), map, self.classes)?)
    }

    /// The convolution over the maps of a stage, with instance normalisation, dropout and PReLU.
    fn merged(
        &self,
        builder: &mut NetBuilder<'_>,
        layer: &Layer,
        maps: [TensorId; 2],
    ) -> Result<TensorId, ConfigError> {
        let shape = ConvShape::same(layer.outputs, layer.kernel, [1; 3]);
        let y = builder.bare_conv(&layer.name(), &maps, shape, false)?;
        let instance = normalisation(Statistics::Own(Over::Instance));
        let u = builder.norm(&layer.behind("N"), y, instance)?;
        let kept = builder.dropout(u, self.dropout)?;
        let slope = builder.channels(format!("{}.weight", layer.behind("A")), 1);
        Ok(builder.push(&layer.behind("A"), Prelu, &[kept, slope])?)
    }
}

/// Batch normalisation, dropout and ReLU of the result of a convolution.
fn activated(
    builder: &mut NetBuilder<'_>,
    layer: &Layer,
    map: TensorId,
    dropout: f32,
) -> Result<TensorId, ConfigError> {
    let u = builder.norm(&layer.behind("N"), map, normalisation(Statistics::Batch))?;
    let kept = builder.dropout(u, dropout)?;
    Ok(builder.push(&layer.behind("A"), LeakyRelu { slope: 0.0 }, &[kept])?)
}

/// A skip connection times the factors that a gate makes of it and of the map from below.
fn weighted(
    builder: &mut NetBuilder<'_>,
    gate: &GateLayers,
    below: TensorId,
    skip: TensorId,
) -> Result<TensorId, ConfigError> {
    let name = &gate.name;
    let mut point = |part: &str, layer: &Layer, map: TensorId| {
        let y = builder.linear(&layer.name(), map, layer.outputs, true)?;
        builder.norm(&format!("{name}.{part}.1"), y, normalisation(Statistics::Batch))
    };
    let (of_below, of_skip) = (point("W_g", &gate.below, below)?, point("W_x", &gate.skip, skip)?);
    let sum = builder.add_act(&format!("{name}.relu"), of_below, of_skip, 0.0)?;
    let y = builder.linear(&gate.factor.name(), sum, gate.factor.outputs, true)?;
    let logit = builder.norm(&format!("{name}.psi.1"), y, normalisation(Statistics::Batch))?;
    let factor = builder.push(&format!("{name}.psi"), Sigmoid, &[logit])?;
    Ok(builder.push(name, VoxelGate, &[skip, factor])?)
}
