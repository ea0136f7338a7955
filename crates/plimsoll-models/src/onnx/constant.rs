//! Small tensors that nodes need beside the parameters. Those that follow from a grid of windows are written as they are computed, and never
//! held.

use std::io::{self, Write};

use plimsoll_graph::ops::{AttentionWindows, RelativePositions};

use super::proto::data_type;

/// A tensor that follows from the program alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Constant {
    /// Whole numbers along one axis: a shape, paddings, starts.
    Numbers(Vec<i64>),
    /// Values along one axis.
    Values(Vec<f32>),
    /// The voxel of each token of each window, `[windows, tokens]`; padded tokens have the index after the last voxel.
    Tokens(AttentionWindows),
    /// For each voxel its place among the tokens of all windows, `[voxels]`.
    Places(AttentionWindows),
    /// The region of each token of each window in the shape of queries, `[windows, tokens, 1]`.
    QueryRegions(AttentionWindows),
    /// The region of each token of each window in the shape of keys, `[windows, 1, tokens]`.
    KeyRegions(AttentionWindows),
    /// The row of the table of biases for each query and each key of a window, `[tokens, tokens]`.
    Rows(RelativePositions, usize),
}

impl Constant {
    /// The type of its elements, one of [`data_type`].
    pub(super) fn data_type(&self) -> i32 {
        match self {
            Constant::Values(_) => data_type::FLOAT,
            _ => data_type::INT64,
        }
    }

    /// Its extents.
    pub(super) fn dims(&self) -> Vec<usize> {
        match self {
            Constant::Numbers(numbers) => vec![numbers.len()],
            Constant::Values(values) => vec![values.len()],
            Constant::Tokens(windows) => vec![windows.count(), windows.tokens()],
            Constant::Places(windows) => vec![windows.voxels()],
            Constant::QueryRegions(windows) => vec![windows.count(), windows.tokens(), 1],
            Constant::KeyRegions(windows) => vec![windows.count(), 1, windows.tokens()],
            Constant::Rows(_, tokens) => vec![*tokens, *tokens],
        }
    }

    /// Bytes of its elements.
    pub(super) fn bytes(&self) -> u64 {
        let element = match self {
            Constant::Values(_) => size_of::<f32>(),
            _ => size_of::<i64>(),
        };
        self.dims().iter().fold(element as u64, |bytes, extent| bytes.saturating_mul(*extent as u64))
    }

    /// Writes its elements, little-endian, the last axis fastest.
    pub(super) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut number = |number: usize| to.write_all(&(number as i64).to_le_bytes());
        match self {
            Constant::Numbers(numbers) => {
                numbers.iter().try_for_each(|number| to.write_all(&number.to_le_bytes()))
            }
            Constant::Values(values) => {
                values.iter().try_for_each(|value| to.write_all(&value.to_le_bytes()))
            }
            Constant::Tokens(windows) => {
                let padding = windows.voxels();
                let mut tokens = (0..windows.count()).flat_map(|window| windows.tokens_in(window));
                tokens.try_for_each(|token| number(token.voxel.unwrap_or(padding)))
            }
            Constant::Places(windows) => {
                (0..windows.voxels()).try_for_each(|voxel| number(windows.place(voxel)))
            }
            Constant::QueryRegions(windows) | Constant::KeyRegions(windows) => {
                let mut tokens = (0..windows.count()).flat_map(|window| windows.tokens_in(window));
                tokens.try_for_each(|token| number(usize::from(token.region)))
            }
            Constant::Rows(positions, tokens) => {
                let mut pairs = (0..*tokens).flat_map(|query| (0..*tokens).map(move |key| (query, key)));
                pairs.try_for_each(|(query, key)| number(positions.row(query, key)))
            }
        }
    }
}
