//! Means over blocks of voxels.

use serde::{Deserialize, Serialize};

use crate::op::{expect_f32_volume, expect_operands, upstream};
use crate::ops::conv::grid;
use crate::{Array, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The mean of each block of voxels: place i of m takes places ⌊i·n/m⌋ to ⌊(i+1)·n/m⌋ of n along each axis, so that each voxel
/// is in one block. For n = 2m it is `torch.nn.AvgPool3d(2)`. Operand: an f32 volume `[N, C, D, H, W]`. Result: `[N, C, output…]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanPool {
    /// Extent of the result.
    pub output: [usize; 3],
}

/// The gradient of [`MeanPool`]. Operand: the gradient of its result. Result: the gradient of its operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanPoolGrad {
    /// Extent of the operand of the [`MeanPool`].
    pub input: [usize; 3],
}

const NAME: &str = "mean_pool";
const GRAD: &str = "mean_pool_grad";

impl MeanPool {
    /// The first place of a block along an axis, of `to` blocks of `from` places; block `to` begins at the end.
    pub fn start(block: usize, to: usize, from: usize) -> usize {
        block * from / to
    }
}

fn unfit(op: &'static str, found: &Shape, expected: String) -> GraphError {
    GraphError::Shape { op, operand: "the operand", found: found.clone(), expected }
}

/// Calls `visit(fine, coarse, voxels of the block)` for the offsets of each voxel and its block within their channels.
fn for_each_voxel(fine: [usize; 3], coarse: [usize; 3], mut visit: impl FnMut(usize, usize, usize)) {
    for (block, (d, h, w)) in grid(coarse).enumerate() {
        let at = [d, h, w];
        let range = |axis: usize| {
            let start = |block: usize| MeanPool::start(block, coarse[axis], fine[axis]);
            start(at[axis])..start(at[axis] + 1)
        };
        let count = (0..3).map(|axis| range(axis).len()).product();
        for z in range(0) {
            for y in range(1) {
                for x in range(2) {
                    visit((z * fine[1] + y) * fine[2] + x, block, count);
                }
            }
        }
    }
}

impl Rule for MeanPool {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_f32_volume(NAME, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        if shape.spatial().iter().zip(self.output).any(|(from, to)| to == 0 || to > *from) {
            return Err(unfit(NAME, shape, format!("at least {:?} voxels are needed", self.output)));
        }
        let shape = Shape::volume(shape.batch(), shape.channels(), self.output);
        Ok(vec![Signature::new(shape, Kind::Volume)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        let operand = node.inputs[0];
        let input = tape.program().shape(operand).spatial();
        let gradient = tape.push(MeanPoolGrad { input }, &[gradient])?[0];
        tape.add(operand, gradient)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut result = Array::zeros(results[0].clone());
        let (fine, coarse) = (inputs[0].shape.clone(), results[0].clone());
        for channel in 0..fine.batch() * fine.channels() {
            for_each_voxel(fine.spatial(), coarse.spatial(), |from, to, count| {
                let value = inputs[0].data[channel * fine.voxels() + from] / count as f64;
                result.data[channel * coarse.voxels() + to] += value;
            });
        }
        vec![result]
    }
}

impl Rule for MeanPoolGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_f32_volume(GRAD, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        if shape.spatial().iter().zip(self.input).any(|(to, from)| *to == 0 || *to > from) {
            return Err(unfit(GRAD, shape, format!("at most {:?} voxels are needed", self.input)));
        }
        let shape = Shape::volume(shape.batch(), shape.channels(), self.input);
        Ok(vec![Signature::new(shape, Kind::Volume)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut result = Array::zeros(results[0].clone());
        let (fine, coarse) = (results[0].clone(), inputs[0].shape.clone());
        for channel in 0..fine.batch() * fine.channels() {
            for_each_voxel(fine.spatial(), coarse.spatial(), |to, from, count| {
                let value = inputs[0].data[channel * coarse.voxels() + from] / count as f64;
                result.data[channel * fine.voxels() + to] = value;
            });
        }
        vec![result]
    }
}
