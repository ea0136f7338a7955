//! Running statistics of batch normalisation: their update in training, and statistics made of them for evaluation.

use serde::{Deserialize, Serialize};

use crate::op::{expect_channels, expect_kind, expect_operands, expect_table};
use crate::{Array, DType, GraphError, Kind, Rule, Shape, Signature, TensorInfo};

/// Moves running statistics towards the statistics of a batch, as `torch.nn.BatchNorm3d` does in training: running ← (1 − momentum) · running
/// + momentum · batch, with the variance divided by one less than the number of values; and counts the batch.
///
/// Operands: running mean `[C]`, running variance `[C]` and the number of batches `[1]`, all parts of the model; the two results
/// of a [`NormStats`](super::NormStats) over a batch, `[N, C, 2]` and `[C]`; and, if `guarded`, the gradients' norm `[1]`.
/// Updates the first three; where the norm is not finite, they keep their bits, since the step is refused.
///
/// A node of its own, so that statistics may be recomputed without being counted twice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningUpdate {
    /// The share of the new batch, from 0 to 1.
    pub momentum: f32,
    /// `true` if the norm of all gradients is an operand.
    pub guarded: bool,
}

/// The statistics that a batch is normalised with in evaluation: running mean, and 1/√(running variance + ε), alike for all
/// samples. Operands: running mean and running variance, `[C]` each. Result: `[N, C, 2]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormFromRunning {
    /// Samples.
    pub batch: usize,
    /// Added to the variance.
    pub epsilon: f32,
}

/// The factor by which [`Normalise`](super::Normalise) with [`NormFromRunning`] multiplies each channel, alike for all
/// samples: scale / √(running variance + ε). The gradients of its operand are multiplied by it too, since running
/// statistics do not depend on that operand. Operands: running variance and scale, `[C]` each. Result: `[N, C, 1, 1,
/// 1]`, f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningFactors {
    /// Samples.
    pub batch: usize,
    /// Added to the variance.
    pub epsilon: f32,
}

const UPDATE: &str = "running_update";
const STATISTICS: &str = "norm_from_running";
const FACTORS: &str = "running_factors";

/// Checks that two operands are a mean and a variance of the same channels, and returns how many there are.
fn expect_running(op: &'static str, inputs: &[&TensorInfo]) -> Result<usize, GraphError> {
    expect_kind(op, "the running mean", inputs[0], Kind::Channels)?;
    let channels = inputs[0].shape.dim(0);
    expect_channels(op, "the running mean", inputs[0], channels)?;
    expect_channels(op, "the running variance", inputs[1], channels)?;
    Ok(channels)
}

impl Rule for RunningUpdate {
    fn name(&self) -> &'static str {
        UPDATE
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        if !(0.0..=1.0).contains(&self.momentum) {
            return Err(GraphError::Attribute {
                op: UPDATE,
                attribute: "momentum",
                found: self.momentum.to_string(),
                expected: "it must be from 0 to 1".into(),
            });
        }
        expect_operands(UPDATE, inputs.len(), 5 + usize::from(self.guarded))?;
        let channels = expect_running(UPDATE, inputs)?;
        expect_table(UPDATE, "the number of batches", inputs[2], &[1])?;
        let volume = Shape::volume(inputs[3].shape.batch(), channels, [1; 3]);
        crate::op::expect_statistics(UPDATE, inputs[3], &volume)?;
        expect_channels(UPDATE, "the variance", inputs[4], channels)?;
        if let Some(norm) = inputs.get(5) {
            expect_table(UPDATE, "the norm", norm, &[1])?;
        }
        Ok(Vec::new())
    }

    fn updates(&self) -> Vec<usize> {
        vec![0, 1, 2]
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], _results: &[Shape]) -> Vec<Array> {
        if inputs.get(5).is_some_and(|norm| !norm.data[0].is_finite()) {
            return inputs.iter().take(3).copied().cloned().collect();
        }
        let momentum = f64::from(self.momentum);
        let moved = |running: &Array, batch: &dyn Fn(usize) -> f64| {
            let data = running.data.iter().enumerate();
            let data = data.map(|(channel, known)| (1.0 - momentum) * known + momentum * batch(channel));
            Array { shape: running.shape.clone(), data: data.collect() }
        };
        let mean = moved(inputs[0], &|channel| inputs[3].data[2 * channel]);
        let variance = moved(inputs[1], &|channel| inputs[4].data[channel]);
        vec![mean, variance, Array::from_fn(inputs[2].shape.clone(), |i| inputs[2].data[i] + 1.0)]
    }
}

impl Rule for NormFromRunning {
    fn name(&self) -> &'static str {
        STATISTICS
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(STATISTICS, inputs.len(), 2)?;
        let channels = expect_running(STATISTICS, inputs)?;
        Ok(vec![Signature::new(Shape(vec![self.batch, channels, 2]), Kind::Statistics)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let channels = inputs[0].shape.dim(0);
        vec![Array::from_fn(results[0].clone(), |i| match (i % 2, i / 2 % channels) {
            (0, channel) => inputs[0].data[channel],
            (_, channel) => 1.0 / (inputs[1].data[channel] + f64::from(self.epsilon)).sqrt(),
        })]
    }
}

impl Rule for RunningFactors {
    fn name(&self) -> &'static str {
        FACTORS
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(FACTORS, inputs.len(), 2)?;
        expect_kind(FACTORS, "the running variance", inputs[0], Kind::Channels)?;
        let channels = inputs[0].shape.dim(0);
        expect_channels(FACTORS, "the running variance", inputs[0], channels)?;
        expect_channels(FACTORS, "the scale", inputs[1], channels)?;
        Ok(vec![Signature::volume(Shape::volume(self.batch, channels, [1; 3]), DType::F32)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let channels = inputs[0].shape.dim(0);
        vec![Array::from_fn(results[0].clone(), |i| {
            let channel = i % channels;
            inputs[1].data[channel] / (inputs[0].data[channel] + f64::from(self.epsilon)).sqrt()
        })]
    }
}
