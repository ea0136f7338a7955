//! Channels weighted by a factor for each sample, and the gradient of the factors.

use serde::{Deserialize, Serialize};

use super::global_mean::{expect_vectors, vectors_of};
use crate::op::{expect_like, expect_operands, expect_shape, expect_volume, upstream};
use crate::{Array, DType, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = x · s, with one factor for each channel of each sample: the excitation of squeeze-and-excitation (Hu, Shen and Sun 2018).
/// Operands: a volume x `[N, C, D, H, W]`, and the factors s `[N, C, 1, 1, 1]`, f32. Result: as x.
///
/// The gradient of x is the same op on the gradient of z.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate;

/// The gradient of the factors of [`Gate`]: Σ g · x over the voxels of each channel of each sample. Operands: the gradient g of the
/// result, and x. Result: `[N, C, 1, 1, 1]`, f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateGrad;

const NAME: &str = "gate";
const GRAD: &str = "gate_grad";

impl Rule for Gate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        expect_vectors(NAME, "the factors", inputs[1])?;
        expect_shape(NAME, "the factors", &inputs[1].shape, &vectors_of(&inputs[0].shape))?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let (x, s) = (node.inputs[0], node.inputs[1]);
        if tape.needs(s) {
            let ds = tape.push(GateGrad, &[dz, x])?[0];
            tape.add(s, ds)?;
        }
        if tape.needs(x) {
            let dx = tape.push(Gate, &[dz, s])?[0];
            tape.add(x, dx)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let voxels = inputs[0].shape.voxels();
        vec![Array::from_fn(results[0].clone(), |i| inputs[0].data[i] * inputs[1].data[i / voxels])]
    }
}

impl Rule for GateGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 2)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        expect_like(GRAD, "the operand", inputs[1], inputs[0])?;
        Ok(vec![Signature::volume(vectors_of(&inputs[0].shape), DType::F32)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let voxels = inputs[0].shape.voxels();
        vec![Array::from_fn(results[0].clone(), |plane| {
            let places = plane * voxels..(plane + 1) * voxels;
            places.map(|i| inputs[0].data[i] * inputs[1].data[i]).sum()
        })]
    }
}
