//! Probabilities of the foreground classes as a volume.

use serde::{Deserialize, Serialize};

use crate::op::{expect_f32_volume, expect_operands, expect_shape, upstream};
use crate::ops::softmax;
use crate::{Array, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// The softmax of logits over all classes, without the background's. Operand: logits `[N, C, D, H, W]`. Result: `[N, C−1, D, H, W]`.
/// Both are f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probabilities;

/// The gradient of [`Probabilities`], pᶜ (gᶜ − Σ pᵏ gᵏ) with g⁰ = 0. Operands: logits, the gradient g of the probabilities.
/// Result: the gradient of the logits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbabilitiesGrad;

const NAME: &str = "probabilities";
const GRAD: &str = "probabilities_grad";

fn foreground(op: &'static str, logits: &TensorInfo) -> Result<Shape, GraphError> {
    expect_f32_volume(op, "logits", logits)?;
    let shape = &logits.shape;
    if shape.channels() < 2 {
        let expected = "at least two classes are needed".into();
        return Err(GraphError::Shape { op, operand: "logits", found: shape.clone(), expected });
    }
    Ok(Shape::volume(shape.batch(), shape.channels() - 1, shape.spatial()))
}

/// Calls `visit(first, step, p)` with the softmax of each voxel and where its classes lie in the logits.
fn for_each_softmax(logits: &Array, mut visit: impl FnMut(usize, usize, &[f64])) {
    let (classes, voxels) = (logits.shape.channels(), logits.shape.voxels());
    for sample in 0..logits.shape.batch() {
        for voxel in 0..voxels {
            let first = logits.plane(sample, 0) + voxel;
            let p = softmax((0..classes).map(|class| logits.data[first + class * voxels]));
            visit(first, voxels, &p);
        }
    }
}

/// The place in `[N, C−1, …]` of the first foreground class of the voxel whose first class is at `first` in `[N, C, …]`.
fn foreground_place(logits: &Shape, first: usize) -> usize {
    first - first / (logits.channels() * logits.voxels()) * logits.voxels()
}

impl Rule for Probabilities {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        Ok(vec![Signature::new(foreground(NAME, inputs[0])?, Kind::Volume)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        let logits = node.inputs[0];
        let dlogits = tape.push(ProbabilitiesGrad, &[logits, gradient])?[0];
        tape.add(logits, dlogits)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut result = Array::zeros(results[0].clone());
        for_each_softmax(inputs[0], |first, step, p| {
            let to = foreground_place(&inputs[0].shape, first);
            for (channel, p) in p[1..].iter().enumerate() {
                result.data[to + channel * step] = *p;
            }
        });
        vec![result]
    }
}

impl Rule for ProbabilitiesGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 2)?;
        let expected = foreground(GRAD, inputs[0])?;
        expect_f32_volume(GRAD, "the gradient", inputs[1])?;
        expect_shape(GRAD, "the gradient", &inputs[1].shape, &expected)?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut result = Array::zeros(results[0].clone());
        for_each_softmax(inputs[0], |first, step, p| {
            let from = foreground_place(&inputs[0].shape, first);
            let slope = |class: usize| match class {
                0 => 0.0,
                _ => inputs[1].data[from + (class - 1) * step],
            };
            for class in 0..p.len() {
                // Σ pᵏ (gᶜ − gᵏ): no cancellation where p is nearly 1.
                let mean: f64 = p.iter().enumerate().map(|(k, p)| p * (slope(class) - slope(k))).sum();
                result.data[first + class * step] = p[class] * mean;
            }
        });
        vec![result]
    }
}
