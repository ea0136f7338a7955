//! Volumes of what labels say.

use serde::{Deserialize, Serialize};

use super::cost_of;
use crate::op::{expect_f32_volume, expect_labels, expect_labels_of, expect_operands, upstream};
use crate::{Array, Cost, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// 1 where the label names the class, else 0, also where it is ignored, for all classes but the background. Operand: labels
/// `[N, 1, D, H, W]`. Result: a volume `[N, foreground, D, H, W]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneHot {
    /// Classes but the background.
    pub foreground: usize,
    /// A label that names no class.
    pub ignore: Option<u8>,
}

/// The first operand where the label counts, else 0. Operands: a volume `[N, C−1, D, H, W]`, labels `[N, 1, D, H, W]` of C
/// classes. Result: like the volume. A label above the last class does not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// A label that does not count.
    pub ignore: Option<u8>,
}

const ONE_HOT: &str = "one_hot";
const COUNTED: &str = "counted";

impl Rule for OneHot {
    fn name(&self) -> &'static str {
        ONE_HOT
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(ONE_HOT, inputs.len(), 1)?;
        expect_labels(ONE_HOT, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        let shape = Shape::volume(shape.batch(), self.foreground, shape.spatial());
        Ok(vec![Signature::new(shape, Kind::Volume)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let voxels = results[0].voxels();
        vec![Array::from_fn(results[0].clone(), |i| {
            let (part, voxel) = (i / voxels, i % voxels);
            let label = inputs[0].data[part / self.foreground * voxels + voxel];
            let class = part % self.foreground + 1;
            let ignored = self.ignore.is_some_and(|ignored| usize::from(ignored) == class);
            f64::from(u8::from(label == class as f64 && !ignored))
        })]
    }
}

impl Rule for Counted {
    fn name(&self) -> &'static str {
        COUNTED
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(COUNTED, inputs.len(), 2)?;
        expect_f32_volume(COUNTED, "the volume", inputs[0])?;
        expect_labels_of(COUNTED, inputs[1], &inputs[0].shape)?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(gradient) = upstream(tape, node, 0) else { return Ok(()) };
        let gradient = tape.push(*self, &[gradient, node.inputs[1]])?[0];
        tape.add(node.inputs[0], gradient)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost_of(2, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (foreground, voxels) = (results[0].channels(), results[0].voxels());
        vec![Array::from_fn(results[0].clone(), |i| {
            let label = inputs[1].data[i / voxels / foreground * voxels + i % voxels];
            let counts =
                label <= foreground as f64 && self.ignore.is_none_or(|ignored| f64::from(ignored) != label);
            if counts { inputs[0].data[i] } else { 0.0 }
        })]
    }
}
