//! Tensors of weight files that follow from a configuration.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::RelativePositions;

/// A tensor of weight files that follows from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    values: Values,
}

/// The elements of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Values {
    /// For each pair of tokens of an attention window, the row of their relative position in the table of biases: a square.
    Rows { tokens: usize, positions: RelativePositions },
    /// Zeroes.
    Zeroes(Shape),
}

impl Constant {
    /// The rows of a table of biases for the pairs of a window's tokens.
    pub(super) fn rows(name: impl Into<String>, tokens: usize, positions: RelativePositions) -> Constant {
        Constant { name: name.into(), values: Values::Rows { tokens, positions } }
    }

    /// Zeroes.
    pub(super) fn zeroes(name: impl Into<String>, shape: Shape) -> Constant {
        Constant { name: name.into(), values: Values::Zeroes(shape) }
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        match &self.values {
            Values::Rows { tokens, .. } => Shape(vec![*tokens, *tokens]),
            Values::Zeroes(shape) => shape.clone(),
        }
    }

    /// Writes its elements, in the logical order of its shape. Rows are whole numbers below 2²⁴.
    pub fn fill(&self, values: &mut [f32]) {
        match &self.values {
            Values::Rows { tokens, positions } => {
                for (place, value) in values.iter_mut().enumerate() {
                    *value = positions.row(place / tokens, place % tokens) as f32;
                }
            }
            Values::Zeroes(_) => values.fill(0.0),
        }
    }
}
