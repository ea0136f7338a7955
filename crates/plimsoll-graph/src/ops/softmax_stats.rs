//! Sums over voxels from which region losses and cross-entropy follow.

use serde::{Deserialize, Serialize};

use crate::op::{expect_kind, expect_operands, expect_shape, upstream};
use crate::{Array, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// With p = softmax of the logits over the classes and t the one-hot labels, for each sample and class the four sums over
/// voxels Σ p t, Σ p (or Σ p²), Σ t and −Σ t log p. Voxels whose label is `ignore`, or is no class, count nowhere.
///
/// Operands: logits `[N, C, D, H, W]` (an image), labels `[N, 1, D, H, W]`. Result: `[N, C, 4]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftmaxStats {
    /// Whether probabilities are squared in the second sum.
    pub squared: bool,
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
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
        Ok(vec![Signature::new(Shape(vec![batch, classes, 4]), Kind::Table)])
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
        for_each_voxel(inputs[0], inputs[1], self.ignore, |sample, _, p, label| {
            for (class, p) in p.iter().enumerate() {
                let row = &mut sums.data[(sample * inputs[0].shape.channels() + class) * 4..][..4];
                row[1] += if self.squared { p * p } else { *p };
                if class == label {
                    row[0] += p;
                    row[2] += 1.0;
                    row[3] -= p.ln();
                }
            }
        });
        vec![sums]
    }
}

/// The softmax of some logits.
pub fn softmax(logits: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let top = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = logits.map(|logit| (logit - top).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.into_iter().map(|e| e / sum).collect()
}

/// Calls `visit(sample, voxel, probabilities, label)` for each voxel that counts.
pub(super) fn for_each_voxel(
    logits: &Array,
    labels: &Array,
    ignore: Option<u8>,
    mut visit: impl FnMut(usize, usize, &[f64], usize),
) {
    let (voxels, classes) = (logits.shape.voxels(), logits.shape.channels());
    for (place, label) in labels.data.iter().enumerate() {
        let (sample, voxel) = (place / voxels, place % voxels);
        let label = *label as usize;
        if label >= classes || ignore.is_some_and(|ignored| label == usize::from(ignored)) {
            continue;
        }
        let p = softmax((0..classes).map(|class| logits.data[logits.plane(sample, class) + voxel]));
        visit(sample, voxel, &p, label);
    }
}
