//! The harmonic mean of topology precision and sensitivity.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_table, upstream};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// 1 − 2 P S / (P + S + ε) with the topology precision P = (Σ sᵖ t + n) / (Σ sᵖ + d) and sensitivity
/// S = (Σ sᵗ p + n) / (Σ sᵗ + d) of skeletons sᵖ and sᵗ, the mean over samples; as `monai.losses.SoftclDiceLoss`.
///
/// Operands: [`OverlapSums`](super::OverlapSums) of sᵖ and t, and of sᵗ and p, both `[N, 1, 2]`. Result: `[1]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClDice {
    /// n, added to both numerators.
    pub smooth_numerator: f32,
    /// d, added to both denominators.
    pub smooth_denominator: f32,
    /// ε, added to the denominator of the harmonic mean.
    pub smooth: f32,
}

/// The gradient of [`ClDice`]. Operands: the gradient of its result, then its operands. Results: the gradients of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClDiceGrad {
    /// The loss.
    pub of: ClDice,
}

const NAME: &str = "cldice";
const GRAD: &str = "cldice_grad";

impl ClDice {
    /// The loss of a sample, and its derivatives by the sums of both operands.
    pub fn from_sums(&self, precision: [f64; 2], sensitivity: [f64; 2]) -> (f64, [[f64; 2]; 2]) {
        let [n, d, smooth] = [self.smooth_numerator, self.smooth_denominator, self.smooth].map(f64::from);
        let quotient = |[overlap, size]: [f64; 2]| {
            // Without smoothing, nothing of nothing is nothing.
            let size = (size + d).max(f64::MIN_POSITIVE);
            let value = (overlap + n) / size;
            (value, [1.0 / size, -value / size])
        };
        let ((p, by_p), (s, by_s)) = (quotient(precision), quotient(sensitivity));
        let sum = (p + s + smooth).max(f64::MIN_POSITIVE);
        // By P: −2 S (S + ε) / (P + S + ε)².
        let slope = |this: f64, other: f64| -2.0 * other * (sum - this) / (sum * sum);
        let (slope_p, slope_s) = (slope(p, s), slope(s, p));
        (1.0 - 2.0 * p * s / sum, [by_p.map(|by| by * slope_p), by_s.map(|by| by * slope_s)])
    }
}

/// Checks the sums.
fn expect_sums(op: &'static str, sums: &[&TensorInfo]) -> Result<(), GraphError> {
    for operand in sums {
        expect_table(op, "sums", operand, &[sums[0].shape.dim(0), 1, 2])?;
    }
    Ok(())
}

/// The two rows of a sample.
fn rows(precision: &Array, sensitivity: &Array, sample: usize) -> [[f64; 2]; 2] {
    [precision, sensitivity].map(|sums| [sums.data[2 * sample], sums.data[2 * sample + 1]])
}

impl Rule for ClDice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_sums(NAME, inputs)?;
        Ok(vec![Signature::table([1])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dy) = upstream(tape, node, 0) else { return Ok(()) };
        let gradients = tape.push(ClDiceGrad { of: *self }, &[dy, node.inputs[0], node.inputs[1]])?;
        for (operand, gradient) in node.inputs.iter().zip(gradients) {
            if tape.needs(*operand) {
                tape.add(*operand, gradient)?;
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let samples = inputs[0].shape.dim(0);
        let mut loss = Array::zeros(results[0].clone());
        for sample in 0..samples {
            let [precision, sensitivity] = rows(inputs[0], inputs[1], sample);
            loss.data[0] += self.from_sums(precision, sensitivity).0 / samples as f64;
        }
        vec![loss]
    }
}

impl Rule for ClDiceGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 3)?;
        expect_table(GRAD, "the gradient", inputs[0], &[1])?;
        expect_sums(GRAD, &inputs[1..])?;
        Ok(vec![Signature::like(inputs[1]), Signature::like(inputs[2])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let samples = inputs[1].shape.dim(0);
        let mut gradients: Vec<Array> = results.iter().cloned().map(Array::zeros).collect();
        for sample in 0..samples {
            let [precision, sensitivity] = rows(inputs[1], inputs[2], sample);
            let (_, slopes) = self.of.from_sums(precision, sensitivity);
            for (gradient, slopes) in gradients.iter_mut().zip(slopes) {
                for (row, slope) in slopes.into_iter().enumerate() {
                    gradient.data[2 * sample + row] = inputs[0].data[0] * slope / samples as f64;
                }
            }
        }
        gradients
    }
}
