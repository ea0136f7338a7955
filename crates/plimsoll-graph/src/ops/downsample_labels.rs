//! Labels on a coarser grid.

use serde::{Deserialize, Serialize};

use super::conv::grid;
use crate::op::{expect_labels, expect_operands};
use crate::{Array, DType, GraphError, Kind, Rule, Shape, Signature, TensorInfo};

/// The label of the nearest voxel: place i of n takes ⌊(i + ½) · m / n⌋ of m, PyTorch's `nearest-exact`, as nnU-Net makes the
/// targets of deep supervision. Operand: labels `[N, 1, D, H, W]`. Result: labels `[N, 1, output…]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DownsampleLabels {
    /// Extent of the result.
    pub output: [usize; 3],
}

const NAME: &str = "downsample_labels";

impl DownsampleLabels {
    /// The source place of a place along an axis, of `to` places from `from`.
    pub fn source(place: usize, to: usize, from: usize) -> usize {
        ((2 * place + 1) * from / (2 * to)).min(from - 1)
    }
}

impl Rule for DownsampleLabels {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_labels(NAME, "the operand", inputs[0])?;
        let shape = Shape::volume(inputs[0].shape.batch(), 1, self.output);
        Ok(vec![Signature { shape, dtype: DType::U8, kind: Kind::Labels }])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let from = inputs[0].shape.spatial();
        let mut result = Array::zeros(results[0].clone());
        for sample in 0..results[0].batch() {
            let (source, target) = (inputs[0].plane(sample, 0), result.plane(sample, 0));
            for (place, (d, h, w)) in grid(self.output).enumerate() {
                let mut offset = 0;
                for (axis, at) in [d, h, w].into_iter().enumerate() {
                    offset = offset * from[axis] + Self::source(at, self.output[axis], from[axis]);
                }
                result.data[target + place] = inputs[0].data[source + offset];
            }
        }
        vec![result]
    }
}
