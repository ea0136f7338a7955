//! Dilation and erosion by a cube.

use serde::{Deserialize, Serialize};

use super::{cost_of, for_each_channel, infer_gradient, neighbour};
use crate::op::{expect_f32_volume, expect_operands, upstream};
use crate::{Array, Cost, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The value taken of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extreme {
    /// The largest: dilation.
    Max,
    /// The smallest: erosion.
    Min,
}

/// The extreme value of the cube of 2 · radius + 1 voxels a side around each voxel; as `max_pool3d(x, 2 r + 1, 1, r)`, or
/// −`max_pool3d(−x, …)`. Operand and result: a volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoxExtreme {
    /// Voxels to each side: 1 to 8.
    pub radius: usize,
    /// The value taken of a window.
    pub extreme: Extreme,
}

/// `factor` times the gradient of [`BoxExtreme`]. Operands: the gradient of its result, and its operand. Result: the gradient of
/// its operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoxExtremeGrad {
    /// The op.
    pub of: BoxExtreme,
    /// Factor of the gradient.
    pub factor: f32,
}

const NAME: &str = "box_extreme";
const GRAD: &str = "box_extreme_grad";
const MOST_RADIUS: usize = 8;

impl BoxExtreme {
    fn check(self, op: &'static str) -> Result<(), GraphError> {
        if (1..=MOST_RADIUS).contains(&self.radius) {
            return Ok(());
        }
        let (found, expected) = (self.radius.to_string(), format!("it must be 1 to {MOST_RADIUS}"));
        Err(GraphError::Attribute { op, attribute: "radius", found, expected })
    }

    /// The place in a channel that a window's value is from: the first that has it.
    fn source(self, channel: &[f64], extent: [usize; 3], place: usize) -> usize {
        let mut best = None;
        let reach = self.radius as isize;
        for d in -reach..=reach {
            for h in -reach..=reach {
                for w in -reach..=reach {
                    let Some(at) = neighbour(extent, place, [d, h, w]) else { continue };
                    let better = best.is_none_or(|best: usize| match self.extreme {
                        Extreme::Max => channel[at] > channel[best],
                        Extreme::Min => channel[at] < channel[best],
                    });
                    if better {
                        best = Some(at);
                    }
                }
            }
        }
        best.unwrap_or(place)
    }
}

/// Adds the gradient of a tensor's box extreme to the tensor's gradient.
pub(super) fn add_gradient(
    tape: &mut Tape<'_>,
    of: BoxExtreme,
    operand: crate::TensorId,
    upstream: crate::TensorId,
    factor: f32,
) -> Result<(), GraphError> {
    let dx = tape.push(BoxExtremeGrad { of, factor }, &[upstream, operand])?[0];
    tape.add(operand, dx)
}

impl Rule for BoxExtreme {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_f32_volume(NAME, "the operand", inputs[0])?;
        self.check(NAME)?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        match upstream(tape, node, 0) {
            Some(dy) if tape.needs(node.inputs[0]) => add_gradient(tape, *self, node.inputs[0], dy, 1.0),
            _ => Ok(()),
        }
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let side = 2 * self.radius as u64 + 1;
        cost_of(side * (side + 1), inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let extent = inputs[0].shape.spatial();
        let mut result = Array::zeros(results[0].clone());
        for_each_channel(inputs[0], |first, channel| {
            for place in 0..channel.len() {
                result.data[first + place] = channel[self.source(channel, extent, place)];
            }
        });
        vec![result]
    }
}

impl Rule for BoxExtremeGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        self.of.check(GRAD)?;
        infer_gradient(GRAD, inputs)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let side = 2 * self.of.radius as u64 + 1;
        cost_of(side * (side + 1) + 12 * side, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let extent = inputs[0].shape.spatial();
        let mut dx = Array::zeros(results[0].clone());
        for_each_channel(inputs[1], |first, channel| {
            for place in 0..channel.len() {
                let to = first + self.of.source(channel, extent, place);
                dx.data[to] += f64::from(self.factor) * inputs[0].data[first + place];
            }
        });
        vec![dx]
    }
}
