//! A transformer block: attention within windows, then a hidden layer, each beside a skip.

use plimsoll_graph::ops::{Add, Gelu, WindowAttention};
use plimsoll_graph::{GraphError, TensorId};

use super::{EPSILON, SwinUnetr, names};
use crate::networks::builder::NetBuilder;

impl SwinUnetr {
    /// A block of a stage, with its probability of being skipped.
    pub(super) fn block(
        &self,
        builder: &mut NetBuilder<'_>,
        stage: usize,
        block: usize,
        path_dropout: f32,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let name = names::block(stage, block);
        let normalised = builder.token_norm(tokens, EPSILON, Some(&format!("{name}.norm1")))?;
        let attended = self.attend(builder, stage, block, normalised)?;
        let attended = builder.sample_drop(attended, path_dropout)?;
        let tokens = builder.push(&format!("{name}.attn"), Add, &[tokens, attended])?;

        let normalised = builder.token_norm(tokens, EPSILON, Some(&format!("{name}.norm2")))?;
        let linear1 = format!("{name}.mlp.linear1");
        let hidden = builder.linear(&linear1, normalised, self.hidden(stage), true)?;
        let hidden = builder.push(&format!("{linear1} activated"), Gelu, &[hidden])?;
        let hidden = builder.dropout(hidden, self.dropout)?;
        let mixed = builder.linear(&format!("{name}.mlp.linear2"), hidden, self.features_of(stage), true)?;
        let mixed = builder.dropout(mixed, self.dropout)?;
        let mixed = builder.sample_drop(mixed, path_dropout)?;
        builder.push(&name, Add, &[tokens, mixed])
    }

    /// Attention, between the linear layers that make queries, keys and values and that mix the heads' results.
    fn attend(
        &self,
        builder: &mut NetBuilder<'_>,
        stage: usize,
        block: usize,
        tokens: TensorId,
    ) -> Result<TensorId, GraphError> {
        let name = format!("{}.attn", names::block(stage, block));
        let features = self.features_of(stage);
        let extent = builder.program().shape(tokens).spatial();
        let (heads, table_window) = (self.num_heads[stage], self.table_window());
        // A window that is no smaller than the grid is cut to it, and not shifted along that axis.
        let is_whole = |axis: usize| extent[axis] <= table_window[axis];
        let window = [0, 1, 2].map(|axis| extent[axis].min(table_window[axis]));
        let is_shifted = |axis: usize| block % 2 == 1 && !is_whole(axis);
        let shift = [0, 1, 2].map(|axis| if is_shifted(axis) { table_window[axis] / 2 } else { 0 });
        let is_padded = (0..3).any(|axis| !extent[axis].is_multiple_of(window[axis]));

        let qkv_name = format!("{name}.qkv");
        let qkv = builder.linear(&qkv_name, tokens, 3 * features, self.qkv_bias)?;
        let mut op = WindowAttention {
            heads,
            window,
            shift,
            table_window,
            padded_bias: self.qkv_bias && is_padded,
            dropout: 0.0,
            layer: 0,
        };
        let table = format!("{name}.relative_position_bias_table");
        let mut operands = vec![qkv, builder.table(table, [op.positions().rows(), heads])];
        if op.padded_bias {
            operands.push(builder.channels(format!("{qkv_name}.bias"), 3 * features));
        }
        let noise = if self.attention_dropout > 0.0 { builder.next_layer() } else { None };
        if let Some((layer, noise)) = noise {
            (op.dropout, op.layer) = (self.attention_dropout, layer);
            operands.push(noise);
        }
        let attended = builder.push(&format!("{name} attended"), op, &operands)?;
        let mixed = builder.linear(&format!("{name}.proj"), attended, features, true)?;
        builder.dropout(mixed, self.dropout)
    }
}
