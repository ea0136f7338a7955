//! The blocks of MedNeXt, and their layers.

use plimsoll_graph::ops::{Gelu, Over, PadFront, ResponseNorm};
use plimsoll_graph::{TensorId, Window};

use super::MedNeXt;
use crate::ConfigError;
use crate::networks::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};
use crate::networks::segresnet_stages::along;

/// The effect of a block on the extent of its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It keeps the extent, and adds its input.
    Same,
    /// It halves the extent.
    Down,
    /// It doubles the extent.
    Up,
}

/// A block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) inputs: usize,
    /// Channels inside of it, as a multiple of the inputs.
    pub(super) expansion: usize,
    pub(super) outputs: usize,
}

impl Block {
    /// Channels inside of it.
    pub(super) fn hidden(&self) -> usize {
        self.inputs * self.expansion
    }
}

/// Added to variances, as `torch.nn.GroupNorm` does by default.
const EPSILON: f32 = 1e-5;
/// Added to the mean of the norms of channels.
const RESPONSE_EPSILON: f32 = 1e-6;

impl MedNeXt {
    /// A block of a stage of the encoder, the coarsest included.
    pub(super) fn encoder(&self, stage: usize, number: usize) -> Block {
        let name = match stage == self.coarsest() {
            true => format!("bottleneck.{number}"),
            false => format!("enc_stages.{stage}.{number}"),
        };
        self.same(name, stage, self.encoder_expansion[stage])
    }

    /// A block of a stage of the decoder.
    pub(super) fn decoder(&self, stage: usize, number: usize) -> Block {
        let name = format!("dec_stages.{}.{number}", self.stages().decoder_place(stage));
        self.same(name, stage, self.decoder_expansion[stage])
    }

    fn same(&self, name: String, stage: usize, expansion: usize) -> Block {
        let channels = self.stages().channels(stage);
        Block { name, kind: Kind::Same, inputs: channels, expansion, outputs: channels }
    }

    /// The block from a stage to the next coarser one.
    pub(super) fn down(&self, stage: usize) -> Block {
        Block {
            name: format!("down_blocks.{stage}"),
            kind: Kind::Down,
            inputs: self.stages().channels(stage),
            expansion: self.encoder_expansion[stage],
            outputs: self.stages().channels(stage + 1),
        }
    }

    /// The block to a stage from the next coarser one.
    pub(super) fn up(&self, stage: usize) -> Block {
        Block {
            name: format!("up_blocks.{}", self.stages().decoder_place(stage)),
            kind: Kind::Up,
            inputs: self.stages().channels(stage + 1),
            expansion: self.decoder_expansion[stage],
            outputs: self.stages().channels(stage),
        }
    }

    /// All blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        let of = |blocks: &[usize], block: &dyn Fn(usize, usize) -> Block| -> Vec<Block> {
            let counts = blocks.iter().enumerate();
            counts.flat_map(|(stage, count)| (0..*count).map(move |number| block(stage, number))).collect()
        };
        let same = of(&self.encoder_blocks, &|stage, number| self.encoder(stage, number)).into_iter();
        let same = same.chain(of(&self.decoder_blocks, &|stage, number| self.decoder(stage, number)));
        let between = (0..self.coarsest()).flat_map(|stage| [self.down(stage), self.up(stage)]);
        same.chain(between)
    }

    /// Appends a block.
    pub(super) fn append(
        &self,
        builder: &mut NetBuilder<'_>,
        block: &Block,
        x: TensorId,
    ) -> Result<TensorId, ConfigError> {
        let layer = |layer: &str| format!("{}.{layer}", block.name);
        let stride = if block.kind == Kind::Same { 1 } else { 2 };
        let window = |kernel: usize| {
            let [kernel, stride] = [kernel, stride].map(|extent| along(self.dimensions, extent));
            Window::same(kernel, stride)
        };
        let depthwise = window(self.kernel_size);
        let y = match block.kind {
            // The convolution has no bias: the normalisation behind it would cancel it.
            Kind::Same | Kind::Down => builder.depthwise(&layer("conv1"), x, depthwise)?,
            Kind::Up => builder.depthwise_transposed(&layer("conv1"), x, depthwise)?,
        };
        let options = NormActOptions {
            statistics: Statistics::Own(Over::Instance),
            epsilon: EPSILON,
            slope: 1.0,
            affine: true,
            conv_bias: false,
        };
        let u = builder.norm(&layer("norm"), y, options)?;
        let h = builder.linear(&layer("conv2"), u, block.hidden(), true)?;
        let mut h = builder.push(&layer("act"), Gelu, &[h])?;
        if self.grn && block.kind != Kind::Down {
            let channels = ["global_resp_gamma", "global_resp_beta"]
                .map(|part| builder.channels(layer(part), block.hidden()));
            let op = ResponseNorm { epsilon: RESPONSE_EPSILON };
            h = builder.push(&layer("grn"), op, &[h, channels[0], channels[1]])?;
        }
        let z = builder.linear(&layer("conv3"), h, block.outputs, true)?;
        let shortcut = layer("res_conv");
        Ok(match block.kind {
            Kind::Same => builder.add(x, z)?,
            Kind::Down => {
                let shape = ConvShape { features: block.outputs, window: window(1) };
                let shortcut = builder.bare_conv(&shortcut, &[x], shape, true)?;
                builder.add(z, shortcut)?
            }
            Kind::Up => {
                let shortcut = builder.transposed_to_least(&shortcut, x, block.outputs, window(1))?;
                let sum = builder.add(z, shortcut)?;
                let axes = along(self.dimensions, 2).map(|stride| stride == 2);
                builder.push(&layer("padded"), PadFront { axes }, &[sum])?
            }
        })
    }
}
