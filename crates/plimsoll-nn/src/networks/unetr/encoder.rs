//! The encoder: tokens of patches, and transformer blocks.

use plimsoll_graph::ops::{Add, AddPositions, Conv, Fill, Gelu, WindowAttention};
use plimsoll_graph::{GraphError, Shape, TensorId, Window};

use super::{BLOCKS, SKIPS, Unetr, names};
use crate::networks::builder::NetBuilder;

/// The epsilon of the normalisations of tokens, PyTorch's default.
const EPSILON: f32 = 1e-5;

/// The attention of all tokens to each other, and the table of biases that it needs: zeroes.
#[derive(Clone, Copy)]
struct Attention {
    op: WindowAttention,
    table: TensorId,
}

/// Results of the encoder.
pub(super) struct Encoded {
    /// The tokens behind the blocks of the skip connections.
    pub(super) skips: Vec<TensorId>,
    /// The normalised tokens behind the last block.
    pub(super) coarsest: TensorId,
}

impl Unetr {
    /// Appends the encoder.
    pub(super) fn encode(
        &self,
        builder: &mut NetBuilder<'_>,
        image: TensorId,
    ) -> Result<Encoded, GraphError> {
        let mut tokens = self.embed(builder, image)?;
        // All tokens are one window, and nothing depends on relative positions.
        let op = WindowAttention {
            heads: self.head_count(),
            window: self.grid(),
            shift: [0; 3],
            table_window: self.grid(),
            padded_bias: false,
            dropout: 0.0,
            layer: 0,
        };
        let shape = Shape(vec![op.positions().rows(), self.head_count()]);
        let table = builder.push("no biases", Fill { value: 0.0, shape }, &[])?;
        let attention = Attention { op, table };
        let mut skips = Vec::with_capacity(SKIPS.len());
        for block in 0..BLOCKS {
            tokens = self.block(builder, &names::block(block), attention, tokens)?;
            if SKIPS.contains(&block) {
                skips.push(tokens);
            }
        }
        let coarsest = builder.token_norm(tokens, EPSILON, Some(names::NORM))?;
        Ok(Encoded { skips, coarsest })
    }

    /// Patches of the image as tokens, with their positions.
    fn embed(&self, builder: &mut NetBuilder<'_>, image: TensorId) -> Result<TensorId, GraphError> {
        let name = names::EMBEDDING;
        let window = Window::blocks(self.token());
        let weights = builder.weights(name, self.hidden_size, self.in_channels, window.kernel);
        let bias = builder.channels(format!("{name}.bias"), self.hidden_size);
        let conv = Conv::new(window, true, builder.precision());
        let tokens = builder.push(name, conv, &[image, weights, bias])?;
        let positions =
            builder.table(names::POSITIONS.into(), [self.grid().iter().product(), self.hidden_size]);
        let tokens = builder.push("tokens with positions", AddPositions, &[tokens, positions])?;
        builder.dropout(tokens, self.dropout)
    }

    /// A transformer block: attention, then a hidden layer, each beside a skip.
    fn block(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        attention: Attention,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let normalised = builder.token_norm(tokens, EPSILON, Some(&format!("{name}.norm1")))?;
        let attended = self.attend(builder, &format!("{name}.attn"), attention, normalised)?;
        let tokens = builder.push(&format!("{name}.attn"), Add, &[tokens, attended])?;

        let normalised = builder.token_norm(tokens, EPSILON, Some(&format!("{name}.norm2")))?;
        let linear1 = format!("{name}.mlp.linear1");
        let hidden = builder.linear(&linear1, normalised, self.hidden(), true)?;
        let hidden = builder.push(&format!("{linear1} activated"), Gelu, &[hidden])?;
        let hidden = builder.dropout(hidden, self.dropout)?;
        let mixed = builder.linear(&format!("{name}.mlp.linear2"), hidden, self.hidden_size, true)?;
        let mixed = builder.dropout(mixed, self.dropout)?;
        builder.push(name, Add, &[tokens, mixed])
    }

    /// Attention, between the linear layers that make queries, keys and values and that mix the heads' results.
    fn attend(
        &self,
        builder: &mut NetBuilder<'_>,
        name: &str,
        Attention { mut op, table }: Attention,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let qkv = builder.linear(&format!("{name}.qkv"), tokens, 3 * self.hidden_size, self.qkv_bias)?;
        let mut operands = vec![qkv, table];
        let noise = if self.dropout > 0.0 { builder.next_layer() } else { None };
        if let Some((layer, noise)) = noise {
            (op.dropout, op.layer) = (self.dropout, layer);
            operands.push(noise);
        }
        let attended = builder.push(&format!("{name} attended"), op, &operands)?;
        let mixed = builder.linear(&format!("{name}.out_proj"), attended, self.hidden_size, true)?;
        builder.dropout(mixed, self.dropout)
    }
}
