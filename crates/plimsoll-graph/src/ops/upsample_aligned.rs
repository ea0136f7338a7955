//! Linear interpolation to twice the extent, with the outermost voxels fixed.

use serde::{Deserialize, Serialize};

use super::upsample::{doubled, unfit};
use crate::op::{expect_operands, expect_volume};
use crate::ops::conv::grid;
use crate::{Array, GraphError, Rule, Shape, Signature, TensorInfo};

/// Linear interpolation to twice the extent along some axes: `torch.nn.Upsample(scale_factor=2)` with
/// `mode="trilinear"` (or `"bilinear"`) and `align_corners=True`. The first and the last voxel keep their places, so along an axis of n voxels
/// y₂ᵢ = xᵢ + i / (2n − 1) · (xᵢ₋₁ − xᵢ) and y₂ᵢ₊₁ = xᵢ + (n − 1 − i) / (2n − 1) · (xᵢ₊₁ − xᵢ). It has no gradient.
///
/// Operand: a volume `[N, C, D, H, W]`. Result: `[N, C, 2D, 2H, 2W]` along those axes, of its dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpsampleAligned {
    /// For depth, height and width, `true` if the axis is doubled.
    pub axes: [bool; 3],
}

const NAME: &str = "upsample_aligned";

/// The two places of `n` along an axis that place `i` of the result is made of, with their weights.
fn taps(i: usize, n: usize, is_doubled: bool) -> [(usize, f64); 2] {
    if !is_doubled {
        return [(i, 1.0), (i, 0.0)];
    }
    let place = i as f64 * (n as f64 - 1.0) / (2.0 * n as f64 - 1.0);
    let lower = (place.floor() as usize).min(n - 1);
    let share = place - lower as f64;
    [(lower, 1.0 - share), ((lower + 1).min(n - 1), share)]
}

impl Rule for UpsampleAligned {
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

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (coarse, fine) = (&inputs[0].shape, &results[0]);
        let [depth, height, width] = coarse.spatial();
        let mut result = Array::zeros(fine.clone());
        for plane in 0..coarse.batch() * coarse.channels() {
            let from = &inputs[0].data[plane * coarse.voxels()..][..coarse.voxels()];
            let to = &mut result.data[plane * fine.voxels()..][..fine.voxels()];
            for (value, (d, h, w)) in to.iter_mut().zip(grid(fine.spatial())) {
                for (z, of_z) in taps(d, depth, self.axes[0]) {
                    for (y, of_y) in taps(h, height, self.axes[1]) {
                        for (x, of_x) in taps(w, width, self.axes[2]) {
                            *value += of_z * of_y * of_x * from[(z * height + y) * width + x];
                        }
                    }
                }
            }
        }
        vec![result]
    }
}
