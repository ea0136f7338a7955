//! Means over windows of feature maps.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_volume, upstream};
use crate::ops::conv::grid;
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The mean of each window of voxels, with a step of the window: `torch.nn.AvgPool3d(window)`. Voxels at the far end that fill no
/// window are left out.
///
/// Operand: a volume `[N, C, D, H, W]`. Result: `[N, C, ⌊D / window⌋, …]`, of its dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AvgPool {
    /// Voxels of a window along depth, height and width.
    pub window: [usize; 3],
}

/// The gradient of [`AvgPool`]: its share of the result's gradient for each voxel of a window. Operand: the gradient of its result. Result: the
/// gradient of its operand. Its own gradient is the mean again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AvgPoolGrad {
    /// The window of the [`AvgPool`].
    pub window: [usize; 3],
    /// Extent of the operand of the [`AvgPool`].
    pub input: [usize; 3],
}

const NAME: &str = "avg_pool";
const GRAD: &str = "avg_pool_grad";

impl AvgPool {
    /// The extent after the pool: none where a window is empty or does not fit.
    fn output(self, input: [usize; 3]) -> Option<[usize; 3]> {
        let mut output = [0; 3];
        for axis in 0..3 {
            output[axis] = input[axis].checked_div(self.window[axis]).filter(|extent| *extent > 0)?;
        }
        Some(output)
    }

    /// Calls `visit(voxel, window that it is in)` for each voxel that is in one.
    fn for_each_voxel(self, input: [usize; 3], output: [usize; 3], mut visit: impl FnMut(usize, usize)) {
        for (voxel, (d, h, w)) in grid(input).enumerate() {
            let at = [d / self.window[0], h / self.window[1], w / self.window[2]];
            if (0..3).all(|axis| at[axis] < output[axis]) {
                visit(voxel, (at[0] * output[1] + at[1]) * output[2] + at[2]);
            }
        }
    }

    fn voxels(self) -> f64 {
        self.window.iter().map(|extent| *extent as f64).product()
    }
}

impl Rule for AvgPool {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        let Some(output) = self.output(shape.spatial()) else {
            let expected = format!("windows of {:?} voxels are to fit", self.window);
            return Err(GraphError::Shape {
                op: NAME,
                operand: "the operand",
                found: shape.clone(),
                expected,
            });
        };
        let shape = Shape::volume(shape.batch(), shape.channels(), output);
        Ok(vec![Signature::volume(shape, inputs[0].dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let operand = node.inputs[0];
        if let Some(dy) = upstream(tape, node, 0).filter(|_| tape.needs(operand)) {
            let input = tape.program().shape(operand).spatial();
            let dx = tape.push(AvgPoolGrad { window: self.window, input }, &[dy])?[0];
            tape.add(operand, dx)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (from, to) = (&inputs[0].shape, &results[0]);
        let mut result = Array::zeros(to.clone());
        for plane in 0..from.batch() * from.channels() {
            self.for_each_voxel(from.spatial(), to.spatial(), |voxel, window| {
                let value = inputs[0].data[plane * from.voxels() + voxel] / self.voxels();
                result.data[plane * to.voxels() + window] += value;
            });
        }
        vec![result]
    }
}

impl Rule for AvgPoolGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        let shape = &inputs[0].shape;
        if (AvgPool { window: self.window }).output(self.input) != Some(shape.spatial()) {
            let expected =
                format!("one of windows of {:?} in {:?} voxels is needed", self.window, self.input);
            return Err(GraphError::Shape {
                op: GRAD,
                operand: "the gradient",
                found: shape.clone(),
                expected,
            });
        }
        let shape = Shape::volume(shape.batch(), shape.channels(), self.input);
        Ok(vec![Signature::volume(shape, inputs[0].dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let operand = node.inputs[0];
        if let Some(dx) = upstream(tape, node, 0).filter(|_| tape.needs(operand)) {
            let dy = tape.push(AvgPool { window: self.window }, &[dx])?[0];
            tape.add(operand, dy)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (from, to) = (&inputs[0].shape, &results[0]);
        let pool = AvgPool { window: self.window };
        let mut result = Array::zeros(to.clone());
        for plane in 0..from.batch() * from.channels() {
            pool.for_each_voxel(to.spatial(), from.spatial(), |voxel, window| {
                let value = inputs[0].data[plane * from.voxels() + window] / pool.voxels();
                result.data[plane * to.voxels() + voxel] = value;
            });
        }
        vec![result]
    }
}
