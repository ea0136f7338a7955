//! Voxels of a block one behind the other along the channels, and the gradient of that.

use serde::{Deserialize, Serialize};

use super::conv::grid;
use crate::op::{expect_operands, expect_volume, upstream};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// Blocks of voxels become single voxels: channel k · C + c of place p is channel c of the voxel at p · `block` + `offsets[k]`, or
/// zero where that is beyond the last voxel. An offset may be there more than once, or not at all.
///
/// Operand: a volume `[N, C, D, H, W]`. Result: `[N, K · C, ⌈D / block⌉, …]` for K offsets. With a block of 2 along each axis it
/// gathers what the patch merging of Swin transformers reads (Liu et al. 2021, arXiv:2103.14030), whose implementations
/// disagree about the order of offsets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpaceToDepth {
    /// Depth, height and width of a block.
    pub block: [usize; 3],
    /// The offsets of the voxels of a block, in order; each is below the block.
    pub offsets: Vec<[usize; 3]>,
}

/// The gradient of [`SpaceToDepth`]. Operand: the gradient of its result. Result: the gradient of its operand, in which
/// values at repeated offsets are added, and voxels at offsets that are not read are 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpaceToDepthGrad {
    /// The forward op.
    pub of: SpaceToDepth,
    /// Extent of its operand.
    pub input: [usize; 3],
}

const NAME: &str = "space_to_depth";
const GRAD: &str = "space_to_depth_grad";

/// More voxels than any block has.
const MOST_OFFSETS: usize = 64;

impl SpaceToDepth {
    fn check(&self, op: &'static str) -> Result<(), GraphError> {
        let wrong = |attribute, found, expected: String| {
            Err(GraphError::Attribute { op, attribute, found, expected })
        };
        if self.block.iter().any(|extent| !(1..=4).contains(extent)) {
            return wrong("block", format!("{:?}", self.block), "extents from 1 to 4 are possible".into());
        }
        if !(1..=MOST_OFFSETS).contains(&self.offsets.len()) {
            let found = format!("{} of them", self.offsets.len());
            return wrong("offsets", found, format!("1 to {MOST_OFFSETS} are possible"));
        }
        match self.offsets.iter().find(|offset| (0..3).any(|axis| offset[axis] >= self.block[axis])) {
            None => Ok(()),
            Some(offset) => {
                let expected = format!("each must be within a block of {:?}", self.block);
                wrong("offsets", format!("{offset:?}"), expected)
            }
        }
    }

    /// The extent of the result for the operand's extent.
    pub fn output(&self, input: [usize; 3]) -> [usize; 3] {
        [0, 1, 2].map(|axis| input[axis].div_ceil(self.block[axis]))
    }

    /// Calls `visit(k, place in the result, voxel of the operand)` for all that is read, within a channel.
    fn for_each_pair(&self, input: [usize; 3], mut visit: impl FnMut(usize, usize, usize)) {
        for (k, offset) in self.offsets.iter().enumerate() {
            for (place, (d, h, w)) in grid(self.output(input)).enumerate() {
                let along = |axis: usize, at: usize| at * self.block[axis] + offset[axis];
                let at = [along(0, d), along(1, h), along(2, w)];
                if (0..3).all(|axis| at[axis] < input[axis]) {
                    visit(k, place, (at[0] * input[1] + at[1]) * input[2] + at[2]);
                }
            }
        }
    }
}

impl Rule for SpaceToDepth {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 1)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        self.check(NAME)?;
        let shape = &inputs[0].shape;
        let channels = shape.channels() * self.offsets.len();
        let result = Shape::volume(shape.batch(), channels, self.output(shape.spatial()));
        Ok(vec![Signature::volume(result, inputs[0].dtype)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let operand = node.inputs[0];
        if let Some(dy) = upstream(tape, node, 0).filter(|_| tape.needs(operand)) {
            let input = tape.program().shape(operand).spatial();
            let dx = tape.push(SpaceToDepthGrad { of: self.clone(), input }, &[dy])?[0];
            tape.add(operand, dx)?;
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let x = inputs[0];
        let mut y = Array::zeros(results[0].clone());
        let channels = x.shape.channels();
        for (n, c) in (0..x.shape.batch()).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            self.for_each_pair(x.shape.spatial(), |k, place, voxel| {
                let to = y.plane(n, k * channels + c) + place;
                y.data[to] = x.data[x.plane(n, c) + voxel];
            });
        }
        vec![y]
    }
}

impl Rule for SpaceToDepthGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        self.of.check(GRAD)?;
        let (shape, offsets) = (&inputs[0].shape, self.of.offsets.len());
        let fits = shape.channels().is_multiple_of(offsets) && shape.spatial() == self.of.output(self.input);
        if self.input.contains(&0) || !fits {
            let expected =
                format!("{offsets} times some channels of {:?} are needed", self.of.output(self.input));
            return Err(GraphError::Shape {
                op: GRAD,
                operand: "the gradient",
                found: shape.clone(),
                expected,
            });
        }
        let result = Shape::volume(shape.batch(), shape.channels() / offsets, self.input);
        Ok(vec![Signature::volume(result, inputs[0].dtype)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let dy = inputs[0];
        let mut dx = Array::zeros(results[0].clone());
        let channels = dx.shape.channels();
        for (n, c) in (0..dx.shape.batch()).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            self.of.for_each_pair(self.input, |k, place, voxel| {
                let to = dx.plane(n, c) + voxel;
                dx.data[to] += dy.data[dy.plane(n, k * channels + c) + place];
            });
        }
        vec![dx]
    }
}
