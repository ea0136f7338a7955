//! Maps weighted by a factor for each voxel, and the gradient of the factors.

use serde::{Deserialize, Serialize};

use crate::op::{expect_like, expect_operands, expect_shape, expect_volume, upstream};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = x · s, with one factor for each voxel of each sample, for all channels: the gate of attention U-Nets (Oktay et al. 2018,
/// arXiv:1804.03999). Operands: a volume x `[N, C, D, H, W]`, and the factors s `[N, 1, D, H, W]`, of its dtype. Result: as x.
///
/// The gradient of x is the same op on the gradient of z.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VoxelGate;

/// The gradient of the factors of [`VoxelGate`]: Σ g · x over the channels of each voxel. Operands: the gradient g of the result, and x.
/// Result: `[N, 1, D, H, W]`, of their dtype.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VoxelGateGrad;

const NAME: &str = "voxel_gate";
const GRAD: &str = "voxel_gate_grad";

/// The shape of a factor for each voxel of a volume.
fn factors_of(volume: &Shape) -> Shape {
    Shape::volume(volume.batch(), 1, volume.spatial())
}

impl Rule for VoxelGate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        expect_volume(NAME, "the factors", inputs[1])?;
        expect_shape(NAME, "the factors", &inputs[1].shape, &factors_of(&inputs[0].shape))?;
        if inputs[1].dtype != inputs[0].dtype {
            let (operand, found, expected) = ("the factors", inputs[1].dtype, "like the operand");
            return Err(GraphError::DType { op: NAME, operand, found, expected });
        }
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let (x, s) = (node.inputs[0], node.inputs[1]);
        if tape.needs(s) {
            let ds = tape.push(VoxelGateGrad, &[dz, x])?[0];
            tape.add(s, ds)?;
        }
        if tape.needs(x) {
            let dx = tape.push(VoxelGate, &[dz, s])?[0];
            tape.add(x, dx)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (voxels, channels) = (inputs[0].shape.voxels(), inputs[0].shape.channels());
        let factor = |i: usize| inputs[1].data[i / (channels * voxels) * voxels + i % voxels];
        vec![Array::from_fn(results[0].clone(), |i| inputs[0].data[i] * factor(i))]
    }
}

impl Rule for VoxelGateGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 2)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        expect_like(GRAD, "the operand", inputs[1], inputs[0])?;
        Ok(vec![Signature::volume(factors_of(&inputs[0].shape), inputs[0].dtype)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (voxels, channels) = (inputs[0].shape.voxels(), inputs[0].shape.channels());
        vec![Array::from_fn(results[0].clone(), |i| {
            let first = i / voxels * channels * voxels + i % voxels;
            let places = (0..channels).map(|channel| first + channel * voxels);
            places.map(|place| inputs[0].data[place] * inputs[1].data[place]).sum()
        })]
    }
}
