//! Tokens of patches, and transformer blocks.

use plimsoll_graph::ops::{Add, AddPositions, ChannelScale, Conv, Over, RotaryAttention, SwiGlu};
use plimsoll_graph::{GraphError, TensorId, Window};

use super::{PATCH, Primus, names};
use crate::networks::basic_block::BasicBlock;
use crate::networks::builder::{ConvShape, NetBuilder, NormActOptions, Statistics};

/// Added to the variances of tokens and of maps, PyTorch's default.
const EPSILON: f32 = 1e-5;

impl Primus {
    /// Appends everything up to the normalised tokens behind the last block.
    pub(super) fn encode(
        &self,
        builder: &mut NetBuilder<'_>,
        image: TensorId,
    ) -> Result<TensorId, GraphError> {
        let tokens = match self.stem() {
            None => self.patches(builder, names::INPUT, image, PATCH)?,
            Some(_) => self.convolved(builder, image)?,
        };
        let positions =
            builder.table(names::POSITIONS.into(), [self.grid().iter().product(), self.hidden_size]);
        let mut tokens = builder.push("tokens with positions", AddPositions, &[tokens, positions])?;
        for block in 0..self.depth() {
            tokens = self.block(builder, block, tokens)?;
        }
        builder.token_norm(tokens, EPSILON, Some(names::NORM))
    }

    /// A convolution of blocks of voxels to tokens.
    fn patches(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        map: TensorId,
        extent: usize,
    ) -> Result<TensorId, GraphError> {
        let window = Window::blocks([extent; 3]);
        let inputs = builder.program().shape(map).channels();
        let weights = builder.weights(name, self.hidden_size, inputs, window.kernel);
        let bias = builder.channels(format!("{name}.bias"), self.hidden_size);
        builder.push(name, Conv::new(window, true, builder.precision()), &[map, weights, bias])
    }

    /// Tokens from residual blocks that halve the extent, in the third version with the maps before the last one, too.
    fn convolved(&self, builder: &mut NetBuilder<'_>, image: TensorId) -> Result<TensorId, GraphError> {
        let Some(stem) = self.stem() else { return Ok(image) };
        let options = NormActOptions {
            statistics: Statistics::Own(Over::Instance),
            epsilon: EPSILON,
            slope: stem.slope,
            affine: true,
            // The normalisations behind them cancel biases.
            conv_bias: false,
        };
        let (mut map, mut inputs, mut sum) = (image, self.in_channels, None);
        for (level, features) in stem.features.into_iter().enumerate() {
            let stage = level.checked_sub(1);
            let stride = if stage.is_some() { [2; 3] } else { [1; 3] };
            let shape = ConvShape::same(features, [3; 3], stride);
            map =
                BasicBlock { name: &names::residual(stage), inputs, shape, options }.append(builder, map)?;
            inputs = features;
            let is_last = level + 1 == stem.features.len();
            if stem.skips && !is_last {
                let name = format!("{}.proj_to_tokens.{level}", names::EMBEDDING);
                let tokens = self.patches(builder, &name, map, PATCH >> level)?;
                let factor =
                    builder.channels(format!("{}.scale_proj_to_tokens.{level}", names::EMBEDDING), 1);
                let scaled = builder.push(
                    &format!("{name} scaled"),
                    ChannelScale { shared: true },
                    &[tokens, factor],
                )?;
                sum = Some(match sum {
                    None => scaled,
                    Some(sum) => builder.add(sum, scaled)?,
                });
            }
        }
        let tokens = self.patches(builder, &format!("{}.final_proj", names::EMBEDDING), map, 1)?;
        match sum {
            None => Ok(tokens),
            Some(sum) => builder.add(tokens, sum),
        }
    }

    /// A transformer block: attention, then a gated hidden layer, each scaled beside a skip.
    fn block(
        &self,
        builder: &mut NetBuilder<'_>,
        number: usize,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let name = names::block(number);
        let normalised = builder.token_norm(tokens, EPSILON, Some(&format!("{name}.norm1")))?;
        let attended = self.attend(builder, &format!("{name}.attn"), normalised)?;
        let attended = self.branch(builder, &format!("{name}.gamma_1"), attended, number)?;
        let tokens = builder.push(&format!("{name}.attn"), Add, &[tokens, attended])?;

        let normalised = builder.token_norm(tokens, EPSILON, Some(&format!("{name}.norm2")))?;
        let layer = |layer: &str| format!("{name}.mlp.{layer}");
        let [gate, values] = ["fc1_g", "fc1_x"].map(layer);
        let gate = builder.linear(&gate, normalised, self.hidden(), true)?;
        let values = builder.linear(&values, normalised, self.hidden(), true)?;
        let hidden = builder.push(&layer("gated"), SwiGlu, &[gate, values])?;
        let hidden = builder.token_norm(hidden, EPSILON, Some(&layer("norm")))?;
        let mixed = builder.linear(&layer("fc2"), hidden, self.hidden_size, true)?;
        let mixed = self.branch(builder, &format!("{name}.gamma_2"), mixed, number)?;
        builder.push(&name, Add, &[tokens, mixed])
    }

    /// Attention, between the linear layers that make queries, keys and values and that mix the heads' normalised results.
    fn attend(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let width = self.hidden_size;
        let queries = builder.linear(&format!("{name}.q_proj"), tokens, width, true)?;
        // Keys have no bias, as in Eva-02.
        let keys = builder.linear(&format!("{name}.k_proj"), tokens, width, false)?;
        let values = builder.linear(&format!("{name}.v_proj"), tokens, width, true)?;
        let op = RotaryAttention { heads: self.heads_of_attention() };
        let attended = builder.push(&format!("{name} attended"), op, &[queries, keys, values])?;
        let attended = builder.token_norm(attended, EPSILON, Some(&format!("{name}.norm")))?;
        builder.linear(&format!("{name}.proj"), attended, width, true)
    }

    /// The result of a branch beside a skip: times a factor for each channel, and dropped for some samples while training.
    fn branch(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        map: TensorId,
        block: usize,
    ) -> Result<TensorId, GraphError> {
        let factors = builder.channels(name.into(), self.hidden_size);
        let scaled =
            builder.push(&format!("{name} scaled"), ChannelScale { shared: false }, &[map, factors])?;
        builder.sample_drop(scaled, self.path_dropout_of(block))
    }
}
