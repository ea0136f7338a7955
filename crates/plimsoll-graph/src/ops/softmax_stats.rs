//! Sums over voxels from which region losses and cross-entropy follow.

use serde::{Deserialize, Serialize};

use super::VoxelSum;
use super::loss::for_each_voxel;
use crate::op::{expect_kind, expect_operands, expect_shape, upstream};
use crate::{Array, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// With p = softmax of the logits over the classes and t the one-hot labels, for each sample and class the four sums over
/// voxels Σ p t, Σ p (or Σ p²), Σ t and −Σ t log p, then those of `extra`. Voxels whose label is `ignore`, or is no class,
/// count nowhere.
///
/// Operands: logits `[N, C, D, H, W]` (an image), labels `[N, 1, D, H, W]`. Result: `[N, C, 4 + extra]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftmaxStats {
    /// Whether probabilities are squared in the second sum.
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
    expect_kind(op, "logits", logits, |kind| *kind == Kind::Image, "an image")?;
    expect_kind(op, "labels", labels, |kind| *kind == Kind::Labels, "labels")?;
    let shape = &logits.shape;
    let expected = Shape::volume(shape.batch(), 1, shape.spatial());
    expect_shape(op, "labels", &labels.shape, &expected)?;
    Ok((shape.batch(), shape.channels()))
}

impl Rule for SoftmaxStats {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        let (batch, classes) = expect_logits_and_labels(NAME, inputs[0], inputs[1])?;
        Ok(vec![Signature::new(Shape(vec![batch, classes, self.rows()]), Kind::Table)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        // The losses made of these sums carry their gradient to the logits themselves.
        match upstream(tape, node, 0) {
            None => Ok(()),
            Some(_) => Err(GraphError::NoGradient { op: NAME, operand: "logits" }),
        }
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
                    row[3] -= p.ln();
                }
                for (sum, extra) in row[4..].iter_mut().zip(&self.extra) {
                    *sum += extra.value(voxel, class);
                }
            }
        });
        vec![sums]
    }
}
