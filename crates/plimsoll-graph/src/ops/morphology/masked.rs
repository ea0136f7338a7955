//! Volumes of what labels say.

use serde::{Deserialize, Serialize};

use super::{cost_of, expect_image};
use crate::op::{expect_kind, expect_operands, expect_shape, upstream};
use crate::{Array, Cost, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// 1 where the label names the class, else 0, also where it is ignored, for all classes but the background. Operand: labels
/// `[N, 1, D, H, W]`. Result: an image `[N, foreground, D, H, W]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneHot {
    /// Classes but the background.
    pub foreground: usize,
    /// A label that names no class.
    pub ignore: Option<u8>,
}

/// The first operand where the label counts, else 0. Operands: an image `[N, C−1, D, H, W]`, labels `[N, 1, D, H, W]` of C
/// classes. Result: like the image. A label above the last class does not count.
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
        expect_kind(ONE_HOT, "the operand", inputs[0], |kind| *kind == Kind::Labels, "labels")?;
        let shape = &inputs[0].shape;
        let shape = Shape::volume(shape.batch(), self.foreground, shape.spatial());
        Ok(vec![Signature::new(shape, Kind::Image)])
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
        expect_image(COUNTED, "the image", inputs[0])?;
        expect_kind(COUNTED, "labels", inputs[1], |kind| *kind == Kind::Labels, "labels")?;
        let shape = &inputs[0].shape;
        expect_shape(COUNTED, "labels", &inputs[1].shape, &Shape::volume(shape.batch(), 1, shape.spatial()))?;
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

    fn in_place(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
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
