//! Linear interpolation to twice the extent.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_volume, upstream};
use crate::ops::conv::grid;
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// Linear interpolation to twice the extent along some axes: `torch.nn.Upsample(scale_factor=2)` with
/// `mode="trilinear"` (or `"bilinear"`) and `align_corners=False`. Along an axis y₂ᵢ = ¼ xᵢ₋₁ + ¾ xᵢ and y₂ᵢ₊₁ = ¾ xᵢ +
/// ¼ xᵢ₊₁, where places outside have the value of the border.
///
/// Operand: a volume `[N, C, D, H, W]`. Result: `[N, C, 2D, 2H, 2W]` along those axes, of its dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upsample2 {
    /// For depth, height and width, `true` if the axis is doubled.
    pub axes: [bool; 3],
}

/// The gradient of [`Upsample2`]. Operand: the gradient of its result. Result: the gradient of its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upsample2Grad {
    /// Those of the [`Upsample2`].
    pub axes: [bool; 3],
}

const NAME: &str = "upsample2";
const GRAD: &str = "upsample2_grad";

/// Twice the extent along some axes; none if that overflows.
pub(super) fn doubled(input: [usize; 3], axes: [bool; 3]) -> Option<[usize; 3]> {
    let mut output = input;
    for axis in 0..3 {
        output[axis] = input[axis].checked_mul(1 + usize::from(axes[axis]))?;
    }
    Some(output)
}

/// Half the extent along some axes; none if one is odd.
pub(super) fn halved(input: [usize; 3], axes: [bool; 3]) -> Option<[usize; 3]> {
    let mut output = input;
    for axis in 0..3 {
        if axes[axis] {
            output[axis] = Some(input[axis] / 2).filter(|half| half * 2 == input[axis])?;
        }
    }
    Some(output)
}

/// An error about an operand that has no doubled or halved extent.
pub(super) fn unfit(op: &'static str, found: &Shape, expected: &str) -> GraphError {
    GraphError::Shape { op, operand: "the operand", found: found.clone(), expected: expected.into() }
}

/// The two places of `n` along an axis that place `i` of the result is made of, with their weights.
fn taps(i: usize, n: usize, is_doubled: bool) -> [(usize, f64); 2] {
    match (is_doubled, i % 2) {
        (false, _) => [(i, 1.0), (i, 0.0)],
        (true, 0) => [((i / 2).saturating_sub(1), 0.25), (i / 2, 0.75)],
        (true, _) => [(i / 2, 0.75), ((i / 2 + 1).min(n - 1), 0.25)],
    }
}

/// Calls `visit(fine voxel, coarse voxel, weight)` for all that the first is made of.
fn for_each_tap(coarse: [usize; 3], axes: [bool; 3], mut visit: impl FnMut(usize, usize, f64)) {
    let fine = [0, 1, 2].map(|axis| coarse[axis] * (1 + usize::from(axes[axis])));
    for (voxel, (d, h, w)) in grid(fine).enumerate() {
        for (z, of_z) in taps(d, coarse[0], axes[0]) {
            for (y, of_y) in taps(h, coarse[1], axes[1]) {
                for (x, of_x) in taps(w, coarse[2], axes[2]) {
                    visit(voxel, (z * coarse[1] + y) * coarse[2] + x, of_z * of_y * of_x);
                }
            }
        }
    }
}

impl Rule for Upsample2 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        let output = doubled(shape.spatial(), self.axes)
            .ok_or_else(|| unfit(NAME, shape, "a smaller one is needed"))?;
        let shape = Shape::volume(shape.batch(), shape.channels(), output);
        Ok(vec![Signature::volume(shape, inputs[0].dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        if let Some(dy) = upstream(tape, node, 0).filter(|_| tape.needs(node.inputs[0])) {
            let dx = tape.push(Upsample2Grad { axes: self.axes }, &[dy])?[0];
            tape.add(node.inputs[0], dx)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (coarse, fine) = (&inputs[0].shape, &results[0]);
        let mut result = Array::zeros(fine.clone());
        for plane in 0..coarse.batch() * coarse.channels() {
            for_each_tap(coarse.spatial(), self.axes, |to, from, weight| {
                let value = weight * inputs[0].data[plane * coarse.voxels() + from];
                result.data[plane * fine.voxels() + to] += value;
            });
        }
        vec![result]
    }
}

impl Rule for Upsample2Grad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_volume(GRAD, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        let input = halved(shape.spatial(), self.axes)
            .ok_or_else(|| unfit(GRAD, shape, "doubled axes have even extents"))?;
        let shape = Shape::volume(shape.batch(), shape.channels(), input);
        Ok(vec![Signature::volume(shape, inputs[0].dtype)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (fine, coarse) = (&inputs[0].shape, &results[0]);
        let mut result = Array::zeros(coarse.clone());
        for plane in 0..coarse.batch() * coarse.channels() {
            for_each_tap(coarse.spatial(), self.axes, |from, to, weight| {
                let value = weight * inputs[0].data[plane * fine.voxels() + from];
                result.data[plane * coarse.voxels() + to] += value;
            });
        }
        vec![result]
    }
}
