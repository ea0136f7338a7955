//! A learned vector for each voxel, added to maps, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{expect_operands, expect_table, expect_volume, upstream};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = x + p, with a vector for each voxel, the same for all samples: the embedding of positions of Vision Transformers (Dosovitskiy et al.
/// 2021, arXiv:2010.11929). Operands: a volume x `[N, C, D, H, W]`, and a table p `[D · H · W, C]`. Result: as x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddPositions;

/// The gradient of the table of [`AddPositions`], a sum over samples. Operand: the gradient of the result, `[N, C, D, H, W]`. Result: a
/// table `[D · H · W, C]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddPositionsGrad;

const NAME: &str = "add_positions";
const GRAD: &str = "add_positions_grad";

impl Rule for AddPositions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let shape = &inputs[0].shape;
        expect_table(NAME, "the table", inputs[1], &[shape.voxels(), shape.channels()])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let (x, table) = (node.inputs[0], node.inputs[1]);
        if tape.needs(table) {
            let gradient = tape.push(AddPositionsGrad, &[dz])?[0];
            tape.add(table, gradient)?;
        }
        if tape.needs(x) {
            tape.add(x, dz)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (voxels, channels) = (inputs[0].shape.voxels(), inputs[0].shape.channels());
        let position = |i: usize| inputs[1].data[i % voxels * channels + i / voxels % channels];
        vec![Array::from_fn(results[0].clone(), |i| inputs[0].data[i] + position(i))]
    }
}

impl Rule for AddPositionsGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        let shape = &inputs[0].shape;
        Ok(vec![Signature::table([shape.voxels(), shape.channels()])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (batch, channels) = (inputs[0].shape.batch(), inputs[0].shape.channels());
        vec![Array::from_fn(results[0].clone(), |i| {
            let (voxel, channel) = (i / channels, i % channels);
            (0..batch).map(|sample| inputs[0].data[inputs[0].plane(sample, channel) + voxel]).sum()
        })]
    }
}
