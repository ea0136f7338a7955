//! The difference of the boundaries of prediction and target, without distances.

use serde::{Deserialize, Serialize};

use super::{class_of, counts, expect_probabilities_and_labels, for_each_counted};
use crate::op::{expect_f64_table, expect_operands, expect_table, upstream};
use crate::{Array, Cost, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The mean of |b(p) − b(t)| over voxels that count and classes but the background. b(x) is the soft inner boundary: x minus
/// the least of x at the voxel and the six that share a face with it; p and t are 0 at voxels that do not count. It takes one
/// pass, where the losses of distances take transforms, and is offered in their place on some steps.
///
/// Operands: probabilities `[N, C−1, D, H, W]`, labels `[N, 1, D, H, W]`. Results: the loss `[1]`; the sum and the number of
/// voxels that count `[2]`, f64.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundaryL1 {
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
}

/// The gradient of [`BoundaryL1`]. Operands: its own, then the sum and number that it found, then the gradient of the loss
/// `[1]`. Result: the gradient of the probabilities. Of several least neighbours the first has it, the voxel itself before
/// all others, which come in the order of memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundaryL1Grad {
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
}

const NAME: &str = "boundary_l1";
const GRAD: &str = "boundary_l1_grad";
/// Operations of a voxel.
const FLOPS: u64 = 30;

fn cost(inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
    let streaming = Cost::streaming(inputs, outputs);
    Cost { flops: FLOPS * inputs[0].shape.count() as u64, ..streaming }
}

/// A voxel and those that share a face with it, in the order in which the least is looked for: itself, then by memory.
fn neighbours(extent: [usize; 3], voxel: usize) -> impl Iterator<Item = usize> {
    let [depth, height, width] = extent;
    let at = [voxel / (height * width), voxel / width % height, voxel % width];
    let steps = [height * width, width, 1];
    let before = (0..3).filter(move |axis| at[*axis] > 0).map(move |axis| voxel - steps[axis]);
    let limits = [depth, height, width];
    let after =
        (0..3).rev().filter(move |axis| at[*axis] + 1 < limits[*axis]).map(move |axis| voxel + steps[axis]);
    std::iter::once(voxel).chain(before).chain(after)
}

/// The voxel at which `x` is least around another.
fn least(extent: [usize; 3], voxel: usize, x: impl Fn(usize) -> f64) -> usize {
    neighbours(extent, voxel).fold(voxel, |best, other| if x(other) < x(best) { other } else { best })
}

/// Calls `visit(element, least neighbour, b(p) − b(t))`; returns how many voxels count.
fn for_each(inputs: &[&Array], ignore: Option<u8>, mut visit: impl FnMut(usize, usize, f64)) -> usize {
    let (p, labels) = (inputs[0], inputs[1]);
    let (extent, voxels) = (p.shape.spatial(), p.shape.voxels());
    for_each_counted(&p.shape, labels, ignore, |at, _| {
        let (channel, voxel) = (at - at % voxels, at % voxels);
        let class = class_of(&p.shape, at);
        let sample = at / voxels / p.shape.channels() * voxels;
        let label = |voxel: usize| labels.data[sample + voxel];
        let x = |voxel: usize| match counts(label(voxel), p.shape.channels() + 1, ignore) {
            true => p.data[channel + voxel],
            false => 0.0,
        };
        let t =
            |voxel: usize| f64::from(u8::from(label(voxel) == class as f64 && Some(class as u8) != ignore));
        let lowest = least(extent, voxel, x);
        let target = t(voxel) - t(least(extent, voxel, t));
        visit(at, channel + lowest, x(voxel) - x(lowest) - target);
    })
}

impl Rule for BoundaryL1 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_probabilities_and_labels(NAME, inputs[0], inputs[1])?;
        Ok(super::mean_signature())
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        let operands = [node.inputs[0], node.inputs[1], node.outputs[1], gradient];
        let gradient = tape.push(BoundaryL1Grad { ignore: self.ignore }, &operands)?[0];
        tape.add(node.inputs[0], gradient)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost(inputs, outputs)
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut sum = 0.0;
        let voxels = for_each(inputs, self.ignore, |_, _, difference| sum += difference.abs()) as f64;
        let mean = sum / (voxels.max(1.0) * inputs[0].shape.channels() as f64);
        vec![
            Array { shape: results[0].clone(), data: vec![mean] },
            Array { shape: results[1].clone(), data: vec![sum, voxels] },
        ]
    }
}

impl Rule for BoundaryL1Grad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 4)?;
        expect_probabilities_and_labels(GRAD, inputs[0], inputs[1])?;
        expect_f64_table(GRAD, "the sum", inputs[2], &[2])?;
        expect_table(GRAD, "the gradient", inputs[3], &[1])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost(inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let shape = &inputs[0].shape;
        let voxels = inputs[2].data[1].max(1.0);
        let factor = inputs[3].data[0] / (voxels * shape.channels() as f64);
        let mut gradient = Array::zeros(results[0].clone());
        for_each(inputs, self.ignore, |at, lowest, difference| {
            let slope = if difference == 0.0 { 0.0 } else { factor * difference.signum() };
            gradient.data[at] += slope;
            gradient.data[lowest] -= slope;
        });
        // Of voxels that do not count the value is 0 whatever the network says.
        let mut counted = vec![false; shape.count()];
        for_each_counted(shape, inputs[1], self.ignore, |at, _| counted[at] = true);
        for (gradient, _) in gradient.data.iter_mut().zip(counted).filter(|(_, counted)| !counted) {
            *gradient = 0.0;
        }
        vec![gradient]
    }
}
