//! Channels spread over the voxels of a finer grid, and the gradient.

use serde::{Deserialize, Serialize};

use crate::op::{expect_channels, expect_operands, expect_volume, upstream};
use crate::ops::ChannelSum;
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// Channels become the voxels of blocks: z\[n, c, b p + t\] = x\[n, c |b| + t, p\] + β\[c\], with blocks of b, whose |b| voxels t are
/// numbered with the last axis fastest. Behind a convolution of one voxel, it makes a transposed convolution with kernel and stride b.
///
/// Operands: a volume x `[N, C |b|, D, H, W]`, and β, `[C]`. Result: `[N, C, D b₀, H b₁, W b₂]`, of its dtype.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthToSpace {
    /// Extents of a block.
    pub block: [usize; 3],
}

/// The gradient of [`DepthToSpace`] by its volume. Operand: the gradient of its result. Result: the gradient of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthToSpaceGrad {
    /// Extents of a block.
    pub block: [usize; 3],
}

const NAME: &str = "depth_to_space";
const GRAD: &str = "depth_to_space_grad";

/// The most voxels of a block along an axis.
const MOST: usize = 16;

/// The voxels of a block.
fn parts(op: &'static str, block: [usize; 3]) -> Result<usize, GraphError> {
    if block.iter().all(|extent| (1..=MOST).contains(extent)) {
        return Ok(block.iter().product());
    }
    let (attribute, found) = ("block", format!("{block:?}"));
    Err(GraphError::Attribute { op, attribute, found, expected: format!("extents must be from 1 to {MOST}") })
}

/// For an element of the fine volume, the place in the coarse one that it is from.
fn coarse_place(block: [usize; 3], fine: &Shape, element: usize) -> usize {
    let [depth, height, width] = fine.spatial();
    let voxel = [element / (height * width) % depth, element / width % height, element % width];
    let plane = element / fine.voxels();
    let part = [0, 1, 2].iter().fold(0, |part, axis| part * block[*axis] + voxel[*axis] % block[*axis]);
    let count: usize = block.iter().product();
    let extent = [0, 1, 2].map(|axis| fine.spatial()[axis] / block[axis]);
    let place = [0, 1, 2].iter().fold(0, |place, axis| place * extent[*axis] + voxel[*axis] / block[*axis]);
    (plane * count + part) * extent.iter().product::<usize>() + place
}

impl Rule for DepthToSpace {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let (parts, shape) = (parts(NAME, self.block)?, &inputs[0].shape);
        if !shape.channels().is_multiple_of(parts) {
            let (operand, found) = ("the operand", shape.clone());
            let expected = format!("a multiple of {parts} channels is needed");
            return Err(GraphError::Shape { op: NAME, operand, found, expected });
        }
        let channels = shape.channels() / parts;
        expect_channels(NAME, "the shift", inputs[1], channels)?;
        let spatial = shape.spatial();
        let fine = [0, 1, 2].map(|axis| spatial[axis].saturating_mul(self.block[axis]));
        Ok(vec![Signature::volume(Shape::volume(shape.batch(), channels, fine), inputs[0].dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let (x, shift) = (node.inputs[0], node.inputs[1]);
        if tape.needs(shift) {
            let gradient = tape.push(ChannelSum, &[dz])?[0];
            tape.add(shift, gradient)?;
        }
        if tape.needs(x) {
            let gradient = tape.push(DepthToSpaceGrad { block: self.block }, &[dz])?[0];
            tape.add(x, gradient)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let fine = &results[0];
        vec![Array::from_fn(fine.clone(), |i| {
            inputs[0].data[coarse_place(self.block, fine, i)]
                + inputs[1].data[i / fine.voxels() % fine.channels()]
        })]
    }
}

impl Rule for DepthToSpaceGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        let (parts, shape) = (parts(GRAD, self.block)?, &inputs[0].shape);
        let spatial = shape.spatial();
        if (0..3).any(|axis| !spatial[axis].is_multiple_of(self.block[axis])) {
            let (operand, found) = ("the gradient", shape.clone());
            let expected = format!("multiples of {:?} are needed", self.block);
            return Err(GraphError::Shape { op: GRAD, operand, found, expected });
        }
        let coarse = [0, 1, 2].map(|axis| spatial[axis] / self.block[axis]);
        let channels = shape.channels().saturating_mul(parts);
        Ok(vec![Signature::volume(Shape::volume(shape.batch(), channels, coarse), inputs[0].dtype)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut coarse = Array::zeros(results[0].clone());
        for (i, value) in inputs[0].data.iter().enumerate() {
            coarse.data[coarse_place(self.block, &inputs[0].shape, i)] = *value;
        }
        vec![coarse]
    }
}
