//! Soft Dice and cross-entropy of a softmax.

use serde::{Deserialize, Serialize};

use super::SoftmaxStats;
use super::softmax_stats::{expect_logits_and_labels, for_each_voxel};
use crate::op::{expect_operands, expect_shape, upstream};
use crate::{Array, GraphError, Kind, Node, Recompute, Rule, Shape, Signature, Tape, TensorInfo};

/// Weights and options of a loss `dice · (1 − Dice) + cross_entropy · CE`.
///
/// Dice is the mean over samples and classes (`batch`: over classes, of sums over all samples) of
/// (2 Σpt + n) / (Σp + Σt + d), squared p where `squared`; CE is the mean over voxels of −log p of the label. As
/// `monai.losses.DiceCELoss(softmax=True, to_onehot_y=True)`; with both smoothing terms 10⁻⁵, `batch` and no background it is
/// nnU-Net's `DC_and_CE_loss`, shifted by the constant 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegionTerms {
    /// Weight of the Dice term.
    pub dice: f32,
    /// Weight of the cross-entropy.
    pub cross_entropy: f32,
    /// Whether a class's sums run over all samples of a batch before the quotient is taken.
    pub batch: bool,
    /// Whether class 0 counts in the Dice term.
    pub include_background: bool,
    /// Whether probabilities are squared in the denominator.
    pub squared: bool,
    /// Added to the numerator.
    pub smooth_numerator: f32,
    /// Added to the denominator.
    pub smooth_denominator: f32,
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
}

impl Default for RegionTerms {
    fn default() -> RegionTerms {
        RegionTerms {
            dice: 1.0,
            cross_entropy: 1.0,
            batch: false,
            include_background: true,
            squared: false,
            smooth_numerator: 1e-5,
            smooth_denominator: 1e-5,
            ignore: None,
        }
    }
}

impl RegionTerms {
    /// The sums that the loss is made of.
    pub fn stats(&self) -> SoftmaxStats {
        SoftmaxStats { squared: self.squared, ignore: self.ignore }
    }

    /// The loss and, for each sample and class, the derivatives of the Dice term by Σpt and by the second sum. `sums` is
    /// `[N, C, 4]` as [`SoftmaxStats`] makes it; `slopes` gets `[N, C, 2]`. Returns (Dice term, cross-entropy, voxels that
    /// count), without weights.
    pub fn value_and_slopes(
        &self,
        sums: impl Fn(usize, usize, usize) -> f64,
        (batch, classes): (usize, usize),
        mut slopes: impl FnMut(usize, usize, [f64; 2]),
    ) -> (f64, f64, f64) {
        let first = usize::from(!self.include_background && classes > 1);
        let groups = if self.batch { 1 } else { batch };
        let samples = |group: usize| if self.batch { 0..batch } else { group..group + 1 };
        let terms = (groups * (classes - first)) as f64;
        let (n, d) = (f64::from(self.smooth_numerator), f64::from(self.smooth_denominator));
        let mut dice = 0.0;
        for group in 0..groups {
            for class in 0..classes {
                let total = |k: usize| samples(group).map(|sample| sums(sample, class, k)).sum::<f64>();
                let numerator = 2.0 * total(0) + n;
                let denominator = total(1) + total(2) + d;
                let counts = class >= first;
                let slope = match counts {
                    true => [-2.0 / denominator / terms, numerator / denominator.powi(2) / terms],
                    false => [0.0; 2],
                };
                if counts {
                    dice += (1.0 - numerator / denominator) / terms;
                }
                samples(group).for_each(|sample| slopes(sample, class, slope));
            }
        }
        let over_all = |k: usize| -> f64 {
            (0..batch).flat_map(|s| (0..classes).map(move |c| (s, c))).map(|(s, c)| sums(s, c, k)).sum()
        };
        let voxels = over_all(2).max(1.0);
        (dice, over_all(3) / voxels, voxels)
    }
}

/// The loss. Operand: the sums `[N, C, 4]` of [`SoftmaxStats`], then the logits and labels that they are of (which are read
/// by the gradient only). Results: the weighted sum `[1]`; the Dice term and the cross-entropy, unweighted, `[2]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiceCe {
    /// Weights and options.
    pub terms: RegionTerms,
}

/// The gradient of [`DiceCe`]. Operands: logits, labels, the sums, the gradient of the loss `[1]`. Result: the gradient of the
/// logits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiceCeGrad {
    /// Weights and options.
    pub terms: RegionTerms,
}

const NAME: &str = "dice_ce";
const GRAD: &str = "dice_ce_grad";

impl Rule for DiceCe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 3)?;
        let (batch, classes) = expect_logits_and_labels(NAME, inputs[1], inputs[2])?;
        expect_shape(NAME, "the sums", &inputs[0].shape, &Shape(vec![batch, classes, 4]))?;
        Ok(vec![Signature::new(Shape(vec![1]), Kind::Table), Signature::new(Shape(vec![2]), Kind::Table)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        let [sums, logits, labels] = node.inputs[..] else { return Ok(()) };
        let dlogits = tape.push(DiceCeGrad { terms: self.terms }, &[logits, labels, sums, gradient])?[0];
        tape.add(logits, dlogits)
    }

    fn recompute(&self) -> Recompute {
        Recompute::Never
    }

    fn evaluate(&self, inputs: &[&Array], _results: &[Shape]) -> Vec<Array> {
        let sums = inputs[0];
        let (batch, classes) = (sums.shape.dim(0), sums.shape.dim(1));
        let at = |n: usize, c: usize, k: usize| sums.data[(n * classes + c) * 4 + k];
        let (dice, ce, _) = self.terms.value_and_slopes(at, (batch, classes), |_, _, _| {});
        let total = f64::from(self.terms.dice) * dice + f64::from(self.terms.cross_entropy) * ce;
        vec![
            Array { shape: Shape(vec![1]), data: vec![total] },
            Array { shape: Shape(vec![2]), data: vec![dice, ce] },
        ]
    }
}

impl Rule for DiceCeGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 4)?;
        let (batch, classes) = expect_logits_and_labels(GRAD, inputs[0], inputs[1])?;
        expect_shape(GRAD, "the sums", &inputs[2].shape, &Shape(vec![batch, classes, 4]))?;
        expect_shape(GRAD, "the gradient", &inputs[3].shape, &Shape(vec![1]))?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (logits, labels, sums) = (inputs[0], inputs[1], inputs[2]);
        let upstream = inputs[3].data[0];
        let (batch, classes) = (sums.shape.dim(0), sums.shape.dim(1));
        let at = |n: usize, c: usize, k: usize| sums.data[(n * classes + c) * 4 + k];
        let mut slopes = vec![[0.0; 2]; batch * classes];
        let (_, _, voxels) =
            self.terms.value_and_slopes(at, (batch, classes), |n, c, slope| slopes[n * classes + c] = slope);
        let (dice, ce) = (f64::from(self.terms.dice), f64::from(self.terms.cross_entropy));
        let mut gradient = Array::zeros(results[0].clone());
        for_each_voxel(logits, labels, self.terms.ignore, |sample, voxel, p, label| {
            let by_p = |class: usize| {
                let [by_overlap, by_size] = slopes[sample * classes + class];
                let overlap = if class == label { by_overlap } else { 0.0 };
                overlap + by_size * if self.terms.squared { 2.0 * p[class] } else { 1.0 }
            };
            let mean: f64 = (0..classes).map(|class| p[class] * by_p(class)).sum();
            for (class, probability) in p.iter().enumerate() {
                let one_hot = f64::from(u8::from(class == label));
                let place = gradient.plane(sample, class) + voxel;
                gradient.data[place] = upstream
                    * (dice * probability * (by_p(class) - mean) + ce * (probability - one_hot) / voxels);
            }
        });
        vec![gradient]
    }
}
