//! The soft recall of a part of the target.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_table, expect_table_of, upstream};
use crate::{Array, DType, GraphError, Node, Op, Rule, Shape, Signature, Tape, TensorInfo};

/// 1 − (Σ s p + n) / (Σ s + d), the mean over samples and classes, or over classes with sums over all samples: how much of s
/// the probabilities p miss (Kirchhoff et al. 2024, "Skeleton Recall Loss").
///
/// Operand: [`OverlapSums`](super::OverlapSums) of s and p by channel, `[N, C, 2]`. Result: `[1]`. There is a gradient where s
/// has none: it is of the target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftRecall {
    /// `true` if a class's sums run over all samples.
    pub batch: bool,
    /// n, added to the numerator.
    pub smooth_numerator: f32,
    /// d, added to the denominator.
    pub smooth_denominator: f32,
}

/// The gradient of [`SoftRecall`] by Σ s p; that by Σ s is zero, as s is of the target. Operands: the gradient of its result,
/// its operand. Result: like its operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftRecallGrad {
    /// The loss.
    pub of: SoftRecall,
}

const NAME: &str = "soft_recall";
const GRAD: &str = "soft_recall_grad";

impl SoftRecall {
    /// The loss of the sums of all samples and classes; `visit(sample, class, slope)` gets its derivatives by Σ s p.
    pub fn from_sums(&self, samples: usize, classes: usize, sums: impl Fn(usize, usize) -> [f64; 2], mut visit: impl FnMut(usize, usize, f64)) -> f64 {
        let [n, d] = [self.smooth_numerator, self.smooth_denominator].map(f64::from);
        let together = if self.batch { samples } else { 1 };
        let quotients = (samples / together * classes) as f64;
        let mut loss = 1.0;
        for first in (0..samples).step_by(together.max(1)) {
            for class in 0..classes {
                let (mut overlap, mut size) = (n, d);
                for sample in first..first + together {
                    let [of_sample, all] = sums(sample, class);
                    overlap += of_sample;
                    size += all;
                }
                // Without smoothing, nothing of nothing is nothing.
                let size = size.max(f64::MIN_POSITIVE);
                loss -= overlap / size / quotients;
                (first..first + together).for_each(|sample| visit(sample, class, -1.0 / (size * quotients)));
            }
        }
        loss
    }
}

fn expect_sums(op: &'static str, sums: &TensorInfo) -> Result<(), GraphError> {
    expect_table_of(op, "sums", sums, DType::F32, "f32")?;
    expect_table(op, "sums", sums, &[sums.shape.dim(0), sums.shape.dim(1), 2])
}

/// The number of samples, the number of classes, and the sums of each.
fn table(sums: &Array) -> (usize, usize, impl Fn(usize, usize) -> [f64; 2] + '_) {
    let classes = sums.shape.dim(1);
    let at = move |sample: usize, class: usize| {
        let place = (sample * classes + class) * 2;
        [sums.data[place], sums.data[place + 1]]
    };
    (sums.shape.dim(0), classes, at)
}

impl Rule for SoftRecall {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_sums(NAME, inputs[0])?;
        Ok(vec![Signature::table([1])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dy) = upstream(tape, node, 0).filter(|_| tape.needs(node.inputs[0])) else { return Ok(()) };
        let is_of_target = tape
            .maker(node.inputs[0])
            .is_some_and(|maker| matches!(maker.op, Op::OverlapSums(_)) && !tape.needs(maker.inputs[0]));
        if !is_of_target {
            return Err(GraphError::NoGradient { op: NAME, operand: "sums whose s depends on the network" });
        }
        let gradient = tape.push(SoftRecallGrad { of: *self }, &[dy, node.inputs[0]])?[0];
        tape.add(node.inputs[0], gradient)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (samples, classes, sums) = table(inputs[0]);
        let loss = self.from_sums(samples, classes, sums, |_, _, _| {});
        vec![Array { shape: results[0].clone(), data: vec![loss] }]
    }
}

impl Rule for SoftRecallGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 2)?;
        expect_table(GRAD, "the gradient", inputs[0], &[1])?;
        expect_sums(GRAD, inputs[1])?;
        Ok(vec![Signature::like(inputs[1])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut gradient = Array::zeros(results[0].clone());
        let (samples, classes, sums) = table(inputs[1]);
        self.of.from_sums(samples, classes, sums, |sample, class, slope| {
            gradient.data[(sample * classes + class) * 2] = inputs[0].data[0] * slope;
        });
        vec![gradient]
    }
}
