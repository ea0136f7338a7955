//! A plane of zeroes in front of a volume, and its removal.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_volume, upstream};
use crate::ops::conv::grid;
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// A plane of zeroes before the first one along some axes: `torch.nn.functional.pad(x, (1, 0, 1, 0, 1, 0))` along all three. A transposed
/// convolution of stride 2 whose padding is half its kernel makes 2n − 1 voxels of n; with the plane there are 2n.
///
/// Operand: a volume `[N, C, D, H, W]`. Result: one voxel longer along each of the axes, of the same dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PadFront {
    /// `true` for the axes, of depth, height and width, along which a plane is added.
    pub axes: [bool; 3],
}

/// The gradient of [`PadFront`], which leaves out the first plane along its axes. Operand: the gradient of the result. Result: the
/// gradient of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PadFrontGrad {
    /// The axes of the [`PadFront`].
    pub axes: [bool; 3],
}

const NAME: &str = "pad_front";
const GRAD: &str = "pad_front_grad";

impl PadFront {
    /// Planes that are added along each axis.
    pub fn planes(self) -> [usize; 3] {
        self.axes.map(usize::from)
    }

    /// The extent of the result.
    fn output(self, input: [usize; 3]) -> [usize; 3] {
        let planes = self.planes();
        [0, 1, 2].map(|axis| input[axis] + planes[axis])
    }

    /// Calls `visit(voxel, the same voxel of the padded volume)` for each voxel of a volume.
    fn for_each_voxel(self, input: [usize; 3], mut visit: impl FnMut(usize, usize)) {
        let ([front, top, left], [_, height, width]) = (self.planes(), self.output(input));
        for (voxel, (d, h, w)) in grid(input).enumerate() {
            visit(voxel, ((d + front) * height + h + top) * width + w + left);
        }
    }
}

impl Rule for PadFront {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        let shape = Shape::volume(shape.batch(), shape.channels(), self.output(shape.spatial()));
        Ok(vec![Signature::volume(shape, inputs[0].dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        if let Some(dy) = upstream(tape, node, 0).filter(|_| tape.needs(node.inputs[0])) {
            let dx = tape.push(PadFrontGrad { axes: self.axes }, &[dy])?[0];
            tape.add(node.inputs[0], dx)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (from, to) = (&inputs[0].shape, &results[0]);
        let mut result = Array::zeros(to.clone());
        for plane in 0..from.batch() * from.channels() {
            self.for_each_voxel(from.spatial(), |voxel, padded| {
                result.data[plane * to.voxels() + padded] = inputs[0].data[plane * from.voxels() + voxel];
            });
        }
        vec![result]
    }
}

impl Rule for PadFrontGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        let (shape, planes) = (&inputs[0].shape, PadFront { axes: self.axes }.planes());
        let padded = shape.spatial();
        if (0..3).any(|axis| padded[axis] <= planes[axis]) {
            return Err(GraphError::Shape {
                op: GRAD,
                operand: "the gradient",
                found: shape.clone(),
                expected: format!("more voxels than the {planes:?} planes in front are needed"),
            });
        }
        let input = [0, 1, 2].map(|axis| padded[axis] - planes[axis]);
        let shape = Shape::volume(shape.batch(), shape.channels(), input);
        Ok(vec![Signature::volume(shape, inputs[0].dtype)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (from, to) = (&inputs[0].shape, &results[0]);
        let mut result = Array::zeros(to.clone());
        for plane in 0..to.batch() * to.channels() {
            PadFront { axes: self.axes }.for_each_voxel(to.spatial(), |voxel, padded| {
                result.data[plane * to.voxels() + voxel] = inputs[0].data[plane * from.voxels() + padded];
            });
        }
        vec![result]
    }
}
