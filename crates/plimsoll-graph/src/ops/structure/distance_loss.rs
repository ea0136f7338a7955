//! Losses of probabilities weighted with distances.

use serde::{Deserialize, Serialize};

use super::{class_of, expect_probabilities_and_labels, for_each_counted};
use crate::op::{expect_f32_volume, expect_f64_table, expect_operands, expect_shape, expect_table, upstream};
use crate::{Array, GraphError, Node, Op, Rule, Shape, Signature, Tape, TensorId, TensorInfo};

/// The sum over voxels that a [`DistanceLoss`] takes. D is the signed distance of a voxel to a mask, positive outside:
/// the target's is Dₜ, the prediction's Dₚ. It is infinite if a mask, or its complement, is empty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum DistanceTerm {
    /// Dₜ p, and 0 where Dₜ is infinite (Kervadec et al. 2019).
    Boundary,
    /// (p − t)² (|Dₚ|^α + |Dₜ|^α), where what is infinite counts as 0 (Karimi and Salcudean 2019).
    Hausdorff {
        /// α.
        alpha: f32,
        /// `true` if the loss is log(1 + mean).
        log: bool,
    },
    /// See [`SurfaceForm`], with both distances bounded to 0 and τ, and divided by τ.
    Surface {
        /// τ, in the unit of distances.
        tolerance: f32,
        /// The formula.
        form: SurfaceForm,
    },
}

/// The formula of the surface distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SurfaceForm {
    /// Dₜ p + Dₚ t (1 − p): both false positives and false negatives cost more the further off they are.
    #[default]
    Symmetric,
    /// Dₜ (1 − p) + Dₚ t, which rewards false positives, and whose second term has no gradient.
    AsPublished,
}

impl DistanceTerm {
    /// Returns `true` if it is of the predicted mask's distances as well.
    pub fn uses_prediction(&self) -> bool {
        !matches!(self, DistanceTerm::Boundary)
    }

    /// Returns `true` if it is of distances inside the mask as well.
    pub fn is_signed(&self) -> bool {
        !matches!(self, DistanceTerm::Surface { .. })
    }

    /// The term of a voxel and class, and its derivative by p.
    fn value(&self, p: f64, t: f64, target: f64, predicted: f64) -> [f64; 2] {
        let finite = |distance: f64| if distance.is_finite() { distance } else { 0.0 };
        match *self {
            DistanceTerm::Boundary => [finite(target) * p, finite(target)],
            DistanceTerm::Hausdorff { alpha, .. } => {
                let power = |distance: f64| finite(distance).abs().powf(alpha.into());
                let distance = power(predicted) + power(target);
                [(p - t).powi(2) * distance, 2.0 * (p - t) * distance]
            }
            DistanceTerm::Surface { tolerance, form } => {
                let bounded = |distance: f64| (distance.max(0.0) / f64::from(tolerance)).min(1.0);
                let (target, predicted) = (bounded(target), bounded(predicted));
                match form {
                    SurfaceForm::Symmetric => {
                        [target * p + predicted * t * (1.0 - p), target - predicted * t]
                    }
                    SurfaceForm::AsPublished => [target * (1.0 - p) + predicted * t, -target],
                }
            }
        }
    }

    /// The loss of a mean.
    pub fn loss(&self, mean: f64) -> f64 {
        if self.is_log() { mean.ln_1p() } else { mean }
    }

    /// The derivative of the loss by the mean.
    pub fn slope(&self, mean: f64) -> f64 {
        if self.is_log() { 1.0 / (1.0 + mean) } else { 1.0 }
    }

    fn is_log(&self) -> bool {
        matches!(self, DistanceTerm::Hausdorff { log: true, .. })
    }
}

/// The mean of a term over voxels that count and classes but the background.
///
/// Operands: probabilities `[N, C−1, D, H, W]`, labels `[N, 1, D, H, W]`, distances to the target (like the probabilities)
/// and, unless the term is [`DistanceTerm::Boundary`], those to the prediction. Results: the loss `[1]`; the sum and the
/// number of voxels that count `[2]`, f64.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistanceLoss {
    /// The term that is summed.
    pub term: DistanceTerm,
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
}

/// The gradient of [`DistanceLoss`]. Operands: its own, then the sum and number that it found, then the gradient of the loss
/// `[1]`. Result: the gradient of the probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistanceLossGrad {
    /// The loss.
    pub loss: DistanceLoss,
}

const NAME: &str = "distance_loss";
const GRAD: &str = "distance_loss_grad";

impl DistanceLoss {
    /// Distances that it is of.
    fn maps(&self) -> usize {
        1 + usize::from(self.term.uses_prediction())
    }

    /// The mean of a sum over this number of voxels of `classes` classes.
    pub fn mean(sum: f64, voxels: f64, classes: usize) -> f64 {
        sum / DistanceLoss::elements(voxels, classes)
    }

    /// The divisor of a sum; not zero if no voxel counts.
    pub fn elements(voxels: f64, classes: usize) -> f64 {
        voxels.max(1.0) * classes as f64
    }

    fn expect(&self, op: &'static str, inputs: &[&TensorInfo], more: usize) -> Result<(), GraphError> {
        expect_operands(op, inputs.len(), 2 + self.maps() + more)?;
        expect_probabilities_and_labels(op, inputs[0], inputs[1])?;
        for map in &inputs[2..2 + self.maps()] {
            expect_f32_volume(op, "distances", map)?;
            expect_shape(op, "distances", &map.shape, &inputs[0].shape)?;
        }
        Ok(())
    }

    /// Calls `visit(element, [term, derivative])`; returns how many voxels count.
    fn for_each(&self, inputs: &[&Array], mut visit: impl FnMut(usize, [f64; 2])) -> usize {
        let shape = &inputs[0].shape;
        for_each_counted(shape, inputs[1], self.ignore, |at, label| {
            let t = f64::from(u8::from(label == class_of(shape, at)));
            let predicted = if self.term.uses_prediction() { inputs[3].data[at] } else { 0.0 };
            visit(at, self.term.value(inputs[0].data[at], t, inputs[2].data[at], predicted));
        })
    }
}

impl Rule for DistanceLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        self.expect(NAME, inputs, 0)?;
        Ok(super::mean_signature())
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        // Distances to a mask are constant but for jumps; those to anything else would need a gradient of their own.
        let is_constant = |map: &TensorId| {
            !tape.needs(*map)
                || tape.maker(*map).is_some_and(|maker| matches!(maker.op, Op::PredictedDistance(_)))
        };
        if !node.inputs[2..].iter().all(is_constant) {
            return Err(GraphError::NoGradient { op: NAME, operand: "distances" });
        }
        let mut operands = node.inputs.clone();
        operands.extend([node.outputs[1], gradient]);
        let gradient = tape.push(DistanceLossGrad { loss: *self }, &operands)?[0];
        tape.add(node.inputs[0], gradient)
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut sum = 0.0;
        let voxels = self.for_each(inputs, |_, [value, _]| sum += value) as f64;
        let loss = self.term.loss(DistanceLoss::mean(sum, voxels, inputs[0].shape.channels()));
        vec![
            Array { shape: results[0].clone(), data: vec![loss] },
            Array { shape: results[1].clone(), data: vec![sum, voxels] },
        ]
    }
}

impl Rule for DistanceLossGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        self.loss.expect(GRAD, inputs, 2)?;
        let tables = &inputs[2 + self.loss.maps()..];
        expect_f64_table(GRAD, "the sum", tables[0], &[2])?;
        expect_table(GRAD, "the gradient", tables[1], &[1])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let tables = &inputs[2 + self.loss.maps()..];
        let (sum, voxels, classes) = (tables[0].data[0], tables[0].data[1], inputs[0].shape.channels());
        let slope = self.loss.term.slope(DistanceLoss::mean(sum, voxels, classes));
        let factor = tables[1].data[0] * slope / DistanceLoss::elements(voxels, classes);
        let mut gradient = Array::zeros(results[0].clone());
        self.loss.for_each(inputs, |at, [_, slope]| gradient.data[at] = factor * slope);
        vec![gradient]
    }
}
