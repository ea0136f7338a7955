//! The parts of losses of shapes: probabilities as volumes, distances, and the terms over them.
//!
//! A loss of sums sees each voxel by itself. These see a class as a shape: probabilities of all classes but the background,
//! `[N, C−1, D, H, W]`, and what follows from them and the labels. Their gradients go back through
//! [`ProbabilitiesGrad`] to the logits.

mod boundary_l1;
mod distance_loss;
mod mean_pool;
mod predicted_distance;
mod probabilities;

pub use boundary_l1::{BoundaryL1, BoundaryL1Grad};
pub use distance_loss::{DistanceLoss, DistanceLossGrad, DistanceTerm, SurfaceForm};
pub use mean_pool::{MeanPool, MeanPoolGrad};
pub use predicted_distance::PredictedDistance;
pub use probabilities::{Probabilities, ProbabilitiesGrad};

use crate::op::{expect_f32_volume, expect_labels_of};
use crate::{Array, DType, GraphError, Shape, Signature, TensorInfo};

/// Checks probabilities `[N, C−1, D, H, W]` and labels `[N, 1, D, H, W]`.
fn expect_probabilities_and_labels(
    op: &'static str,
    probabilities: &TensorInfo,
    labels: &TensorInfo,
) -> Result<(), GraphError> {
    expect_f32_volume(op, "probabilities", probabilities)?;
    expect_labels_of(op, labels, &probabilities.shape)
}

/// The results of a loss that is a mean: the loss `[1]`, and the sum and the number of voxels that count `[2]`, in f64.
fn mean_signature() -> Vec<Signature> {
    vec![Signature::table([1]), Signature { dtype: DType::F64, ..Signature::table([2]) }]
}

/// Returns `true` if a voxel with this label counts, for this number of classes with the background.
pub(super) fn counts(label: f64, classes: usize, ignore: Option<u8>) -> bool {
    (label as usize) < classes && !ignore.is_some_and(|ignored| label == f64::from(ignored))
}

/// Calls `visit(element, label)` for each element of `[N, C−1, D, H, W]` whose voxel counts; returns how many voxels do.
/// The class of an element is [`class_of`].
fn for_each_counted(
    probabilities: &Shape,
    labels: &Array,
    ignore: Option<u8>,
    mut visit: impl FnMut(usize, usize),
) -> usize {
    let (foreground, voxels) = (probabilities.channels(), probabilities.voxels());
    let mut counted = 0;
    for (place, label) in labels.data.iter().enumerate() {
        if !counts(*label, foreground + 1, ignore) {
            continue;
        }
        counted += 1;
        let (sample, voxel) = (place / voxels, place % voxels);
        for channel in 0..foreground {
            visit((sample * foreground + channel) * voxels + voxel, *label as usize);
        }
    }
    counted
}

/// The class of an element of `[N, C−1, D, H, W]`.
fn class_of(probabilities: &Shape, element: usize) -> usize {
    element / probabilities.voxels() % probabilities.channels() + 1
}
