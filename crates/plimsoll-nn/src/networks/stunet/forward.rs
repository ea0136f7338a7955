//! The layers: their names in the authors' files, and their ops.

use plimsoll_graph::TensorId;
use plimsoll_graph::ops::Over;

use super::StuNet;
use crate::ConfigError;
use crate::networks::builder::{ConvNames, ConvShape, NetBuilder, NormActOptions, Statistics};

/// Added to variances, as `torch.nn.InstanceNorm3d` does by default.
const EPSILON: f32 = 1e-5;
/// The slope of leaky ReLUs, PyTorch's default.
const SLOPE: f32 = 0.01;

/// A residual block.
pub(super) struct Block {
    name: String,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) kernel: [usize; 3],
    stride: [usize; 3],
    /// `true` if its input passes through a convolution before it is added.
    projects: bool,
}

impl Block {
    /// The name of a layer of the block.
    pub(super) fn layer(&self, layer: &str) -> String {
        format!("{}.{layer}", self.name)
    }

    /// Appends the block over concatenated maps.
    fn append(&self, builder: &mut NetBuilder<'_>, maps: &[TensorId]) -> Result<TensorId, ConfigError> {
        // Convolutions before a normalisation have biases that it cancels.
        let options = NormActOptions {
            statistics: Statistics::Own(Over::Instance),
            epsilon: EPSILON,
            slope: SLOPE,
            affine: true,
            conv_bias: false,
        };
        let names = ConvNames { conv: self.layer("conv1"), norm: self.layer("norm1") };
        let shape = ConvShape::same(self.outputs, self.kernel, self.stride);
        let first = builder.conv_norm_act(&names, maps, shape, options)?;
        let shape = ConvShape::same(self.outputs, self.kernel, [1; 3]);
        let y = builder.bare_conv(&self.layer("conv2"), &[first], shape, false)?;
        let main = builder.norm(&self.layer("norm2"), y, options)?;
        let shortcut = match maps {
            [map] if !self.projects => *map,
            maps => {
                let point = ConvShape::same(self.outputs, [1; 3], self.stride);
                builder.bare_conv(&self.layer("conv3"), maps, point, true)?
            }
        };
        Ok(builder.add_act(&self.name, main, shortcut, SLOPE)?)
    }
}

impl StuNet {
    /// The blocks of a stage of the encoder.
    fn encoder(&self, stage: usize) -> Vec<Block> {
        let from = if stage == 0 { self.in_channels } else { self.features[stage - 1] };
        self.blocks_of(stage, format!("conv_blocks_context.{stage}"), from, self.strides[stage])
    }

    /// The blocks of a stage of the decoder, over its own map and the map from below.
    fn decoder(&self, stage: usize) -> Vec<Block> {
        let name = format!("conv_blocks_localization.{}", self.decoder_place(stage));
        self.blocks_of(stage, name, 2 * self.features[stage], [1; 3])
    }

    fn blocks_of(&self, stage: usize, name: String, from: usize, stride: [usize; 3]) -> Vec<Block> {
        let outputs = self.features[stage];
        let block = |number: usize| Block {
            name: format!("{name}.{number}"),
            inputs: if number == 0 { from } else { outputs },
            outputs,
            kernel: self.kernels[stage],
            stride: if number == 0 { stride } else { [1; 3] },
            projects: number == 0,
        };
        (0..self.encoder_blocks[stage]).map(block).collect()
    }

    /// All blocks.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let encoder = (0..self.stages()).flat_map(|stage| self.encoder(stage));
        encoder.chain((0..self.stages() - 1).flat_map(|stage| self.decoder(stage))).collect()
    }

    /// The name of the convolution to a stage from the next coarser one.
    fn up(&self, stage: usize) -> String {
        format!("upsample_layers.{}.conv", self.decoder_place(stage))
    }

    /// The name of the convolution that makes the logits of a stage.
    pub(super) fn head(&self, stage: usize) -> String {
        format!("seg_outputs.{}", self.decoder_place(stage))
    }

    /// Appends the network: logits of the finest stage, and of this number of coarser ones.
    pub(super) fn append(
        &self,
        builder: &mut NetBuilder<'_>,
        image: TensorId,
        heads: usize,
    ) -> Result<Vec<TensorId>, ConfigError> {
        let (mut map, mut skips) = (image, Vec::with_capacity(self.stages()));
        for stage in 0..self.stages() {
            for block in self.encoder(stage) {
                map = block.append(builder, &[map])?;
            }
            skips.push(map);
        }
        skips.pop();
        let mut logits = Vec::new();
        for (stage, skip) in skips.into_iter().enumerate().rev() {
            let coarse = builder.linear(&self.up(stage), map, self.features[stage], true)?;
            let up = builder.nearest(coarse, self.strides[stage + 1])?;
            let mut maps = vec![up, skip];
            for block in self.decoder(stage) {
                map = block.append(builder, &maps)?;
                maps = vec![map];
            }
            if stage <= heads {
                logits.push(builder.head(&self.head(stage), map, self.classes)?);
            }
        }
        logits.reverse();
        Ok(logits)
    }

    /// Inputs of each output of the layer that a parameter is of; none of normalisations.
    pub(super) fn fan(&self, parameter: &str) -> Option<usize> {
        let (layer, _) = parameter.rsplit_once('.')?;
        if let Some(stage) = (0..self.stages() - 1).find(|stage| layer == self.up(*stage)) {
            return Some(self.features[stage + 1]);
        }
        if let Some(stage) = (0..self.stages() - 1).find(|stage| layer == self.head(*stage)) {
            return Some(self.features[stage]);
        }
        let block = self.blocks().into_iter().find(|block| layer.starts_with(&block.layer("")))?;
        let taps: usize = block.kernel.iter().product();
        match layer.rsplit('.').next()? {
            "conv1" => Some(block.inputs * taps),
            "conv2" => Some(block.outputs * taps),
            "conv3" => Some(block.inputs),
            _ => None,
        }
    }
}
