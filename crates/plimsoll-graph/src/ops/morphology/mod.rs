//! Grey morphology of probabilities, and what losses make of it.
//!
//! A soft skeleton is a chain of [`CrossErosion`] and [`SkeletonStep`], [`BoxExtreme`] the erosion and dilation by a cube.
//! [`OverlapSums`] and [`MeanDifference`] compare such volumes with the volumes of a target. All treat each channel of each
//! sample by itself, and windows end at the border.
//!
//! If several voxels of a window are equal, gradients follow PyTorch's on the CPU: a window's goes to the first voxel
//! that has its extreme value, in the order of depth, height and width; the gradient of the minimum of two windows goes
//! half to each.

mod box_extreme;
mod cldice;
mod cross_erosion;
mod masked;
mod mean_difference;
mod overlap_sums;
mod recall;
mod skeleton_step;

pub use box_extreme::{BoxExtreme, BoxExtremeGrad, Extreme};
pub use cldice::{ClDice, ClDiceGrad};
pub use cross_erosion::{CrossErosion, CrossErosionGrad};
pub use masked::{Counted, OneHot};
pub use mean_difference::{MeanDifference, MeanDifferenceGrad};
pub use overlap_sums::{OverlapSums, OverlapSumsGrad};
pub use recall::{SoftRecall, SoftRecallGrad};
pub use skeleton_step::{SkeletonStep, SkeletonStepGrad, Union};

use crate::op::{expect_f32_volume, expect_operands, expect_shape};
use crate::{Array, Cost, GraphError, Signature, TensorInfo};

/// The cost of an op with this number of operations for each element of its first result.
fn cost_of(flops: u64, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
    let count = outputs.first().map_or(0, |tensor| tensor.shape.count() as u64);
    Cost { flops: flops.saturating_mul(count), ..Cost::streaming(inputs, outputs) }
}

/// The result of the gradient of an op over windows. Operands: the gradient of that op's result, and its operand.
fn infer_gradient(op: &'static str, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
    expect_operands(op, inputs.len(), 2)?;
    for operand in inputs {
        expect_f32_volume(op, "an operand", operand)?;
        expect_shape(op, "an operand", &operand.shape, &inputs[0].shape)?;
    }
    Ok(vec![Signature::like(inputs[1])])
}

/// The place of a neighbour in a channel, where there is one.
fn neighbour(extent: [usize; 3], place: usize, step: [isize; 3]) -> Option<usize> {
    let [_, height, width] = extent;
    let at = [place / (height * width), place / width % height, place % width];
    let mut to = 0;
    for axis in 0..3 {
        let along = at[axis].checked_add_signed(step[axis]).filter(|along| *along < extent[axis])?;
        to = to * extent[axis] + along;
    }
    Some(to)
}

/// Calls `visit(first, channel)` for each channel of each sample, with the place of its first voxel.
fn for_each_channel(volume: &Array, mut visit: impl FnMut(usize, &[f64])) {
    let voxels = volume.shape.voxels().max(1);
    for (channel, values) in volume.data.chunks(voxels).enumerate() {
        visit(channel * voxels, values);
    }
}
