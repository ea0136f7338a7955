//! The erosion of soft skeletons.

use serde::{Deserialize, Serialize};

use super::{cost_of, for_each_channel, infer_gradient, neighbour};
use crate::op::{expect_f32_volume, expect_operands, upstream};
use crate::{Array, Cost, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The smallest of a voxel and its neighbours along each axis: the minimum of three windows of three, of two in a volume of
/// depth 1; as `soft_erode` of clDice (Shit et al. 2021). Operand and result: a volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossErosion;

/// The gradient of [`CrossErosion`]. Operands: the gradient of its result, and its operand. Result: the gradient of its operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossErosionGrad;

const NAME: &str = "cross_erosion";
const GRAD: &str = "cross_erosion_grad";

/// The place of the smallest of the window along an axis, the first of equals.
fn smallest_along(channel: &[f64], extent: [usize; 3], place: usize, axis: usize) -> usize {
    let at = |step: isize| {
        let mut steps = [0; 3];
        steps[axis] = step;
        neighbour(extent, place, steps)
    };
    let mut best = at(-1).unwrap_or(place);
    for other in [Some(place), at(1)].into_iter().flatten() {
        if channel[other] < channel[best] {
            best = other;
        }
    }
    best
}

/// The smallest of the windows: the place along each axis that its value is from, and the share of the gradient that goes
/// there. The windows are compared one after the other, and of equals the one before and the new one have a half each.
fn sources(channel: &[f64], extent: [usize; 3], place: usize) -> [(usize, f64); 3] {
    let mut sources = [0, 1, 2].map(|axis| (smallest_along(channel, extent, place, axis), 0.0));
    let first = usize::from(extent[0] == 1);
    sources[first].1 = 1.0;
    let mut smallest = channel[sources[first].0];
    for axis in first + 1..3 {
        let value = channel[sources[axis].0];
        let share = if value < smallest {
            1.0
        } else if value == smallest {
            0.5
        } else {
            0.0
        };
        sources[..axis].iter_mut().for_each(|source| source.1 *= 1.0 - share);
        sources[axis].1 = share;
        smallest = smallest.min(value);
    }
    sources
}

impl Rule for CrossErosion {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_f32_volume(NAME, "the operand", inputs[0])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let x = node.inputs[0];
        let Some(dy) = upstream(tape, node, 0).filter(|_| tape.needs(x)) else { return Ok(()) };
        let dx = tape.push(CrossErosionGrad, &[dy, x])?[0];
        tape.add(x, dx)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost_of(6, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let extent = inputs[0].shape.spatial();
        let mut result = Array::zeros(results[0].clone());
        for_each_channel(inputs[0], |first, channel| {
            for place in 0..channel.len() {
                let values = [0, 1, 2].map(|axis| channel[smallest_along(channel, extent, place, axis)]);
                result.data[first + place] = values.into_iter().fold(f64::INFINITY, f64::min);
            }
        });
        vec![result]
    }
}

impl Rule for CrossErosionGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_gradient(GRAD, inputs)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost_of(40, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let extent = inputs[0].shape.spatial();
        let mut dx = Array::zeros(results[0].clone());
        for_each_channel(inputs[1], |first, channel| {
            for place in 0..channel.len() {
                for (source, share) in sources(channel, extent, place) {
                    dx.data[first + source] += share * inputs[0].data[first + place];
                }
            }
        });
        vec![dx]
    }
}
