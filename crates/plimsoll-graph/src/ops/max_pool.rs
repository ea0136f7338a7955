//! The largest of the voxels of each window.

use serde::{Deserialize, Serialize};

use crate::op::{expect_like, expect_operands, expect_volume, upstream};
use crate::ops::conv::grid;
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo, Window};

/// The largest of the voxels of each window, as `torch.nn.MaxPool3d`. Places beyond the edge count as −∞, and NaN as
/// larger than any number. Operand: a volume `[N, C, D, H, W]`. Result: a volume of its dtype, of the extent
/// [`MaxPool::output`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPool {
    /// Extent and step of a window, and how far the first begins before the edge: at most half of its extent.
    pub window: Window,
    /// `true` if a window may end behind the far edge and its padding, so that no voxel is left out. It then begins before the edge
    /// nevertheless.
    pub ceil: bool,
}

/// The gradient of [`MaxPool`]: each window's goes to its first largest voxel, with the last axis fastest. Operands:
/// the gradient of the result, and the operand. Result: the gradient of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPoolGrad {
    /// The forward op.
    pub of: MaxPool,
}

const NAME: &str = "max_pool";
const GRAD: &str = "max_pool_grad";

impl MaxPool {
    /// The extent of the result: ⌊(n + 2p − k) / s⌋ + 1 along each axis. With `ceil` the quotient is rounded up, but a window that
    /// would begin behind the last voxel and the padding before the first does not exist. None where no window fits, one is
    /// empty, or numbers overflow.
    pub fn output(&self, input: [usize; 3]) -> Option<[usize; 3]> {
        let mut output = self.window.output(input)?;
        if self.ceil {
            for axis in 0..3 {
                let Window { kernel, stride, padding, .. } = self.window;
                let padded = input[axis] + 2 * padding[axis];
                let count = (padded - kernel[axis]).div_ceil(stride[axis]) + 1;
                let is_outside = (count - 1) * stride[axis] >= input[axis] + padding[axis];
                output[axis] = count - usize::from(is_outside);
            }
        }
        Some(output)
    }

    /// The places along an axis of this number of voxels that a window takes; at least one if [`MaxPool::output`] has
    /// the window.
    pub fn places(&self, axis: usize, window: usize, extent: usize) -> std::ops::Range<usize> {
        let Window { kernel, stride, padding, .. } = self.window;
        let begin = window * stride[axis];
        let end = (begin + kernel[axis]).saturating_sub(padding[axis]);
        begin.saturating_sub(padding[axis])..end.min(extent)
    }

    /// Calls `visit(window, first largest voxel)` with offsets within the channels of a volume.
    fn for_each_window(
        &self,
        channel: &[f64],
        input: [usize; 3],
        output: [usize; 3],
        mut visit: impl FnMut(usize, usize),
    ) {
        for (window, (d, h, w)) in grid(output).enumerate() {
            let places = |axis: usize, at: usize| self.places(axis, at, input[axis]);
            let mut largest: Option<usize> = None;
            for z in places(0, d) {
                for y in places(1, h) {
                    for x in places(2, w) {
                        let voxel = (z * input[1] + y) * input[2] + x;
                        if largest.is_none_or(|known| is_larger(channel[voxel], channel[known])) {
                            largest = Some(voxel);
                        }
                    }
                }
            }
            if let Some(voxel) = largest {
                visit(window, voxel);
            }
        }
    }

    fn expect(&self, op: &'static str, operand: &TensorInfo) -> Result<[usize; 3], GraphError> {
        expect_volume(op, "the operand", operand)?;
        let Window { kernel, padding, .. } = self.window;
        if !self.window.is_dense() {
            return Err(GraphError::Attribute {
                op,
                attribute: "dilation",
                found: format!("{:?}", self.window.dilation),
                expected: "the voxels of a window must be neighbours".into(),
            });
        }
        if (0..3).any(|axis| padding[axis] > kernel[axis] / 2) {
            return Err(GraphError::Attribute {
                op,
                attribute: "padding",
                found: format!("{padding:?}"),
                expected: format!("at most half of the window {kernel:?} may lie beyond the edge"),
            });
        }
        self.output(operand.shape.spatial()).ok_or_else(|| GraphError::Shape {
            op,
            operand: "the operand",
            found: operand.shape.clone(),
            expected: format!("the window {kernel:?} does not fit into it"),
        })
    }
}

/// Returns `true` if a voxel takes the place of an earlier one.
fn is_larger(voxel: f64, known: f64) -> bool {
    voxel > known || (voxel.is_nan() && !known.is_nan())
}

impl Rule for MaxPool {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        let output = self.expect(NAME, inputs[0])?;
        let shape = &inputs[0].shape;
        let shape = Shape::volume(shape.batch(), shape.channels(), output);
        Ok(vec![Signature::volume(shape, inputs[0].dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let dx = tape.push(MaxPoolGrad { of: *self }, &[dz, node.inputs[0]])?[0];
        tape.add(node.inputs[0], dx)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let x = inputs[0];
        let mut z = Array::zeros(results[0].clone());
        let (from, to) = (x.shape.voxels(), z.shape.voxels());
        let (input, output) = (x.shape.spatial(), z.shape.spatial());
        for (x, z) in x.data.chunks(from).zip(z.data.chunks_mut(to)) {
            self.for_each_window(x, input, output, |window, voxel| z[window] = x[voxel]);
        }
        vec![z]
    }
}

impl Rule for MaxPoolGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 2)?;
        let output = self.of.expect(GRAD, inputs[1])?;
        let shape = &inputs[1].shape;
        let shape = Shape::volume(shape.batch(), shape.channels(), output);
        expect_like(GRAD, "the gradient", inputs[0], &TensorInfo { shape, ..inputs[1].clone() })?;
        Ok(vec![Signature::like(inputs[1])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (dz, x) = (inputs[0], inputs[1]);
        let mut dx = Array::zeros(results[0].clone());
        let (fine, coarse) = (x.shape.voxels(), dz.shape.voxels());
        let (input, output) = (x.shape.spatial(), dz.shape.spatial());
        let all = x.data.chunks(fine).zip(dz.data.chunks(coarse)).zip(dx.data.chunks_mut(fine));
        for ((x, dz), dx) in all {
            self.of.for_each_window(x, input, output, |window, voxel| dx[voxel] += dz[window]);
        }
        vec![dx]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(k: usize, s: usize, p: usize, ceil: bool) -> MaxPool {
        MaxPool { window: Window::new([1, k, k], [1, s, s], [0, p, p]), ceil }
    }

    #[test]
    fn extents_are_those_of_pytorch() {
        // torch.nn.MaxPool2d(3, 2, 1) and torch.nn.MaxPool2d(3, 2, 0, ceil_mode=True) of a row of n.
        for (n, padded, ceiled) in
            [(3, 2, 1), (4, 2, 2), (5, 3, 2), (32, 16, 16), (38, 19, 19), (112, 56, 56)]
        {
            assert_eq!(pool(3, 2, 1, false).output([1, 5, n]), Some([1, 3, padded]));
            assert_eq!(pool(3, 2, 0, true).output([1, 5, n]), Some([1, 2, ceiled]));
        }
        // torch.nn.MaxPool2d(2, 2, 1, ceil_mode=True) of 3: a third window would begin behind the edge.
        assert_eq!(pool(2, 2, 1, true).output([1, 3, 3]), Some([1, 2, 2]));
        assert_eq!(pool(2, 2, 1, true).output([1, 4, 4]), Some([1, 3, 3]));
        assert_eq!(pool(3, 2, 0, true).output([1, 2, 5]), None);
    }
}
