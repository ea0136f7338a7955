//! Tensors of weight files that follow from a configuration.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::RelativePositions;

/// A tensor of weight files that follows from the configuration: for each pair of tokens of an attention window, the row of their
/// relative position in the table of biases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Tokens of a window; the tensor is square.
    pub tokens: usize,
    /// The relative positions that the rows belong to.
    pub positions: RelativePositions,
}

impl Constant {
    /// Its shape.
    pub fn shape(&self) -> Shape {
        Shape(vec![self.tokens, self.tokens])
    }

    /// Writes its elements, in the logical order of its shape. Rows are whole numbers below 2²⁴.
    pub fn fill(&self, values: &mut [f32]) {
        for (place, value) in values.iter_mut().enumerate() {
            *value = self.positions.row(place / self.tokens, place % self.tokens) as f32;
        }
    }
}
