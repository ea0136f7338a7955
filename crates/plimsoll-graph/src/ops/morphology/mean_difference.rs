//! The difference of two volumes.

use serde::{Deserialize, Serialize};

use super::cost_of;
use crate::op::{expect_f32_volume, expect_labels_of, expect_operands, expect_shape, expect_table, upstream};
use crate::{Array, Cost, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// Σ |a − b| / V over the V voxels of a sample that count, and, where there is a threshold τ,
/// |Σ relu(τ − a) − Σ relu(τ − b)| / V; the mean over samples and channels. A sample without voxels that count has 0.
///
/// Operands: volumes a and b of one shape, labels `[N, 1, D, H, W]`; there is no gradient by b. Results: `[1]`, and for each
/// sample and channel the factors that gradients by |a − b| and by relu(τ − a) have, `[N, C, 2]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanDifference {
    /// τ.
    pub threshold: Option<f32>,
    /// Classes; a label above the last does not count.
    pub classes: usize,
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
}

/// The gradient of [`MeanDifference`] by a; at a = b and at a = τ it is zero. Operands: the gradient of the first result, the
/// second result, a, b, labels. Result: like a.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanDifferenceGrad {
    /// The difference.
    pub of: MeanDifference,
}

const NAME: &str = "mean_difference";
const GRAD: &str = "mean_difference_grad";

impl MeanDifference {
    /// Returns `true` if voxels with a label count.
    pub fn counts(&self, label: usize) -> bool {
        label < self.classes && self.ignore.is_none_or(|ignore| usize::from(ignore) != label)
    }

    /// Returns the addend of the loss and the factors, for the sums of a sample and channel (Σ |a − b|, Σ relu(τ − a) −
    /// Σ relu(τ − b)) over this number of voxels. `parts` is the number of samples times the number of channels.
    pub fn from_sums(&self, [apart, below]: [f64; 2], voxels: f64, parts: usize) -> (f64, [f64; 2]) {
        let factor = if voxels > 0.0 { 1.0 / (voxels * parts as f64) } else { 0.0 };
        let sign = if below == 0.0 || self.threshold.is_none() { 0.0 } else { below.signum() };
        (factor * (apart + sign * below), [factor, factor * sign])
    }

    fn expect(self, op: &'static str, inputs: &[&TensorInfo]) -> Result<(), GraphError> {
        expect_f32_volume(op, "a", inputs[0])?;
        expect_f32_volume(op, "b", inputs[1])?;
        let shape = &inputs[0].shape;
        expect_shape(op, "b", &inputs[1].shape, shape)?;
        expect_labels_of(op, inputs[2], shape)
    }

    /// relu(τ − x).
    fn below(self, x: f64) -> f64 {
        self.threshold.map_or(0.0, |threshold| (f64::from(threshold) - x).max(0.0))
    }
}

impl Rule for MeanDifference {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 3)?;
        self.expect(NAME, inputs)?;
        let shape = &inputs[0].shape;
        Ok(vec![Signature::table([1]), Signature::table([shape.batch(), shape.channels(), 2])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let (a, b, labels) = (node.inputs[0], node.inputs[1], node.inputs[2]);
        let Some(dy) = upstream(tape, node, 0) else { return Ok(()) };
        if tape.needs(b) {
            return Err(GraphError::NoGradient { op: NAME, operand: "b" });
        }
        if tape.needs(a) {
            let operands = [dy, node.outputs[1], a, b, labels];
            let gradient = tape.push(MeanDifferenceGrad { of: *self }, &operands)?[0];
            tape.add(a, gradient)?;
        }
        Ok(())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        Cost { flops: 6 * inputs[0].shape.count() as u64, ..Cost::streaming(inputs, outputs) }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (a, b, labels) = (inputs[0], inputs[1], inputs[2]);
        let [mut loss, mut factors] = [0, 1].map(|result: usize| Array::zeros(results[result].clone()));
        let (channels, voxels) = (a.shape.channels(), a.shape.voxels());
        let parts = a.shape.batch() * channels;
        for part in 0..parts {
            let labels = &labels.data[part / channels * voxels..][..voxels];
            let (mut sums, mut counted) = ([0.0; 2], 0.0);
            for voxel in (0..voxels).filter(|voxel| self.counts(labels[*voxel] as usize)) {
                let (a, b) = (a.data[part * voxels + voxel], b.data[part * voxels + voxel]);
                sums[0] += (a - b).abs();
                sums[1] += self.below(a) - self.below(b);
                counted += 1.0;
            }
            let (value, of_part) = self.from_sums(sums, counted, parts);
            loss.data[0] += value;
            factors.data[part * 2..][..2].copy_from_slice(&of_part);
        }
        vec![loss, factors]
    }
}

impl Rule for MeanDifferenceGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 5)?;
        expect_table(GRAD, "the gradient", inputs[0], &[1])?;
        self.of.expect(GRAD, &inputs[2..])?;
        let shape = &inputs[2].shape;
        expect_table(GRAD, "factors", inputs[1], &[shape.batch(), shape.channels(), 2])?;
        Ok(vec![Signature::like(inputs[2])])
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost_of(6, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (a, b, labels) = (inputs[2], inputs[3], inputs[4]);
        let (channels, voxels) = (a.shape.channels(), a.shape.voxels());
        vec![Array::from_fn(results[0].clone(), |i| {
            let (part, voxel) = (i / voxels, i % voxels);
            if !self.of.counts(labels.data[part / channels * voxels + voxel] as usize) {
                return 0.0;
            }
            let factors = &inputs[1].data[part * 2..][..2];
            let (a, b) = (a.data[i], b.data[i]);
            let apart = if a == b { 0.0 } else { (a - b).signum() };
            let below = if self.of.below(a) > 0.0 { -1.0 } else { 0.0 };
            inputs[0].data[0] * (factors[0] * apart + factors[1] * below)
        })]
    }
}
