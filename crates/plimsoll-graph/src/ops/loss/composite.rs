//! The loss of some sums, and its gradient.

use serde::{Deserialize, Serialize};

use super::{Loss, Piece, for_each_voxel};
use crate::op::{expect_operands, expect_table, expect_table_of, upstream};
use crate::ops::softmax_stats::expect_logits_and_labels;
use crate::{Array, DType, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The loss. Operand: the sums `[N, C, rows]` of [`SoftmaxStats`](crate::ops::SoftmaxStats), or for regions the sums of
/// [`RegionStats`](crate::ops::RegionStats). Results: the loss `[1]`; its
/// components, without weights, `[components]`.
///
/// There is a gradient where the sums are those that the loss asks for ([`Loss::stats`]) and a node of the program made them: it
/// goes to the logits that they are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompositeLoss {
    /// Its components.
    pub loss: Loss,
}

/// The gradient of [`CompositeLoss`]. Operands: logits, labels, the sums, the gradient of the loss `[1]`. Result: the
/// gradient of the logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompositeLossGrad {
    /// The components of the loss.
    pub loss: Loss,
}

const NAME: &str = "composite_loss";
const GRAD: &str = "composite_loss_grad";

impl Rule for CompositeLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_table_of(NAME, "the sums", inputs[0], DType::F32, "f32")?;
        let (batch, classes) = (inputs[0].shape.dim(0), inputs[0].shape.dim(1));
        expect_table(NAME, "the sums", inputs[0], &[batch, classes, self.loss.rows()])?;
        Ok(vec![Signature::table([1]), Signature::table([self.loss.components.len()])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        let sums = node.inputs[0];
        let wrong = GraphError::NoGradient { op: NAME, operand: "sums that it did not ask for" };
        let maker = tape.maker(sums).ok_or_else(|| wrong.clone())?;
        if maker.op != self.loss.sums_op() {
            return Err(wrong);
        }
        let [logits, labels] = maker.inputs[..] else { return Err(wrong) };
        if !tape.needs(logits) {
            return Ok(());
        }
        let dlogits = tape.push(self.loss.gradient_op(), &[logits, labels, sums, gradient])?[0];
        tape.add(logits, dlogits)
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut parts = Array::zeros(results[1].clone());
        let (at, (batch, classes)) = table(inputs[0]);
        let total = self.loss.value(at, batch, classes, 1.0, |piece| {
            if let Piece::Part { component, value } = piece {
                parts.data[component] = value;
            }
        });
        vec![Array { shape: Shape(vec![1]), data: vec![total] }, parts]
    }
}

/// The entries of a table of sums by sample, class and row, and its numbers of samples and classes.
pub(in crate::ops) fn table(sums: &Array) -> (impl Fn(usize, usize, usize) -> f64 + '_, (usize, usize)) {
    let (batch, classes, rows) = (sums.shape.dim(0), sums.shape.dim(1), sums.shape.dim(2));
    (move |n, c, k| sums.data[(n * classes + c) * rows + k], (batch, classes))
}

impl Rule for CompositeLossGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 4)?;
        let (batch, classes) = expect_logits_and_labels(GRAD, inputs[0], inputs[1])?;
        expect_table(GRAD, "the sums", inputs[2], &[batch, classes, self.loss.rows()])?;
        expect_table(GRAD, "the gradient", inputs[3], &[1])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (at, (batch, classes)) = table(inputs[2]);
        let own: Vec<_> = self.loss.voxel_sums().collect();
        let mut slopes = vec![[0.0; 3]; batch * classes];
        let mut entropy = vec![0.0; classes];
        let mut factors = vec![0.0; own.len() * classes];
        self.loss.value(at, batch, classes, inputs[3].data[0], |piece| match piece {
            Piece::Part { .. } => {}
            Piece::Region { sample, class, slopes: new } => {
                let place = &mut slopes[sample * classes + class];
                place.iter_mut().zip(new).for_each(|(slope, new)| *slope += new);
            }
            Piece::CrossEntropy { class, factor } => entropy[class] += factor,
            Piece::Voxel { sum, class, factor } => factors[sum * classes + class] = factor,
        });
        let mut gradient = Array::zeros(results[0].clone());
        for_each_voxel(inputs[0], inputs[1], self.loss.ignore, |voxel| {
            // p times the derivatives by p, and the derivatives by logits themselves.
            let (mut by_p, mut direct) = (vec![0.0; classes], vec![0.0; classes]);
            for class in 0..classes {
                let [by_overlap, by_size, by_squares] = slopes[voxel.sample * classes + class];
                let p = voxel.p[class];
                let here = f64::from(u8::from(class == voxel.label));
                by_p[class] = p * (here * by_overlap + by_size + 2.0 * p * by_squares);
                direct[class] = entropy[voxel.label] * (p - here);
                for (sum, factors) in own.iter().zip(factors.chunks_exact(classes)) {
                    let (through_p, by_logit) = sum.slopes(voxel, class);
                    by_p[class] += factors[class] * through_p;
                    direct[class] += factors[class] * by_logit;
                }
            }
            for class in 0..classes {
                // 1 − p of the class itself is kept apart: others would cancel where p is nearly 1.
                let others: f64 = (0..classes).filter(|other| *other != class).map(|other| by_p[other]).sum();
                let through_p = by_p[class] * voxel.rest[class] - voxel.p[class] * others;
                let place = gradient.plane(voxel.sample, class) + voxel.place;
                gradient.data[place] = through_p + direct[class];
            }
        });
        vec![gradient]
    }
}
