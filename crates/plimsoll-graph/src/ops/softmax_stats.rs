//! Sums over voxels from which region losses and cross-entropy follow.

use serde::{Deserialize, Serialize};

use super::VoxelSum;
use super::loss::for_each_voxel;
use crate::op::{expect_f32_volume, expect_labels_of, expect_operands};
use crate::{Array, GraphError, Rule, Shape, Signature, TensorInfo};

/// With p = softmax of the logits over the classes and t the one-hot labels, for each sample and class the four sums over
/// voxels Σ p t, Σ p (or Σ p²), Σ t and −Σ t log p, then the sums of `extra`. Voxels whose label is `ignore`, or is no class,
/// count nowhere.
///
/// Operands: logits `[N, C, D, H, W]` of f32, labels `[N, 1, D, H, W]`. Result: `[N, C, 4 + extra]`. The losses made of these
/// sums carry their gradient to the logits themselves; there is none through the sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftmaxStats {
    /// `true` if probabilities are squared in the second sum.
    pub squared: bool,
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
    /// More sums.
    pub extra: Vec<VoxelSum>,
}

impl SoftmaxStats {
    /// Sums of a sample and class.
    pub fn rows(&self) -> usize {
        4 + self.extra.len()
    }
}

const NAME: &str = "softmax_stats";

/// Checks logits and labels, and returns (samples, classes).
pub(super) fn expect_logits_and_labels(
    op: &'static str,
    logits: &TensorInfo,
    labels: &TensorInfo,
) -> Result<(usize, usize), GraphError> {
    expect_f32_volume(op, "logits", logits)?;
    let shape = &logits.shape;
    expect_labels_of(op, labels, shape)?;
    Ok((shape.batch(), shape.channels()))
}

impl Rule for SoftmaxStats {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        let (batch, classes) = expect_logits_and_labels(NAME, inputs[0], inputs[1])?;
        Ok(vec![Signature::table([batch, classes, self.rows()])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut sums = Array::zeros(results[0].clone());
        let classes = inputs[0].shape.channels();
        for_each_voxel(inputs[0], inputs[1], self.ignore, |voxel| {
            for (class, p) in voxel.p.iter().enumerate() {
                let place = (voxel.sample * classes + class) * self.rows();
                let row = &mut sums.data[place..][..self.rows()];
                row[1] += if self.squared { p * p } else { *p };
                if class == voxel.label {
                    row[0] += p;
                    row[2] += 1.0;
                    row[3] += voxel.cross_entropy();
                }
                for (sum, extra) in row[4..].iter_mut().zip(&self.extra) {
                    *sum += extra.value(voxel, class);
                }
            }
        });
        vec![sums]
    }
}
