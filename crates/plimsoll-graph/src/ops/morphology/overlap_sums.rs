//! Sums of products.

use serde::{Deserialize, Serialize};

use super::cost_of;
use crate::op::{expect_f32_volume, expect_operands, expect_shape, expect_table, upstream};
use crate::{Array, Cost, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// Σ a b and Σ a over the voxels of each sample, of its channels together or one by one. Operands: volumes a and b of one shape
/// `[N, C, D, H, W]`. Result: `[N, 1, 2]` or `[N, C, 2]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverlapSums {
    /// `true` if each channel has sums of its own.
    pub by_channel: bool,
}

/// The gradient of [`OverlapSums`] by one of its operands. Operands: the gradient of its result, and the other operand.
/// Result: like the other operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverlapSumsGrad {
    /// The sums.
    pub of: OverlapSums,
    /// `true` if the gradient is with respect to a, which is summed by itself as well.
    pub by_first: bool,
}

const NAME: &str = "overlap_sums";
const GRAD: &str = "overlap_sums_grad";

impl OverlapSums {
    /// The shape of the sums.
    fn result(self, volume: &Shape) -> [usize; 3] {
        [volume.batch(), if self.by_channel { volume.channels() } else { 1 }, 2]
    }

    /// Elements of a volume that are summed together.
    fn elements(self, volume: &Shape) -> usize {
        volume.voxels() * if self.by_channel { 1 } else { volume.channels() }
    }
}

impl Rule for OverlapSums {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        for operand in inputs {
            expect_f32_volume(NAME, "an operand", operand)?;
        }
        expect_shape(NAME, "b", &inputs[1].shape, &inputs[0].shape)?;
        Ok(vec![Signature::table(self.result(&inputs[0].shape))])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(sums) = upstream(tape, node, 0) else { return Ok(()) };
        let (a, b) = (node.inputs[0], node.inputs[1]);
        for (operand, other, by_first) in [(a, b, true), (b, a, false)] {
            if tape.needs(operand) {
                let gradient = tape.push(OverlapSumsGrad { of: *self, by_first }, &[sums, other])?[0];
                tape.add(operand, gradient)?;
            }
        }
        Ok(())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        Cost { flops: 3 * inputs[0].shape.count() as u64, ..Cost::streaming(inputs, outputs) }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut sums = Array::zeros(results[0].clone());
        let elements = self.elements(&inputs[0].shape);
        for (i, (a, b)) in inputs[0].data.iter().zip(&inputs[1].data).enumerate() {
            let place = i / elements * 2;
            sums.data[place] += a * b;
            sums.data[place + 1] += a;
        }
        vec![sums]
    }
}

impl Rule for OverlapSumsGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 2)?;
        expect_f32_volume(GRAD, "the other operand", inputs[1])?;
        expect_table(GRAD, "the sums' gradient", inputs[0], &self.of.result(&inputs[1].shape))?;
        Ok(vec![Signature::like(inputs[1])])
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        cost_of(2, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let elements = self.of.elements(&inputs[1].shape);
        vec![Array::from_fn(results[0].clone(), |i| {
            let place = i / elements * 2;
            let alone = if self.by_first { inputs[0].data[place + 1] } else { 0.0 };
            inputs[0].data[place] * inputs[1].data[i] + alone
        })]
    }
}
