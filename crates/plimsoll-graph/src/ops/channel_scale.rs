//! Maps times a learned factor for each channel, and the gradients.

use serde::{Deserialize, Serialize};

use crate::op::{expect_channels, expect_like, expect_operands, expect_volume, upstream};
use crate::{Array, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = γ x, with one factor for each channel, or one for all: the `LayerScale` of transformers (Touvron et al. 2021, arXiv:2103.17239).
/// Operands: a volume x `[N, C, D, H, W]`, and γ, `[C]`, or `[1]` if `shared`. Result: as x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelScale {
    /// `true` if all channels have one factor.
    pub shared: bool,
}

/// The gradients of [`ChannelScale`], dx = γ dz and dγ = Σ dz · x over samples and voxels, and over channels if `shared`. Operands: the
/// gradient dz of its result, then its operands. Results: the gradients of x and γ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelScaleGrad {
    /// `true` if all channels have one factor.
    pub shared: bool,
}

const NAME: &str = "channel_scale";
const GRAD: &str = "channel_scale_grad";

/// The number of factors for a volume.
fn factors(shared: bool, volume: &Shape) -> usize {
    if shared { 1 } else { volume.channels() }
}

/// The place of the factor of an element.
fn factor_of(shared: bool, volume: &Shape, element: usize) -> usize {
    if shared { 0 } else { element / volume.voxels() % volume.channels() }
}

impl Rule for ChannelScale {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        expect_channels(NAME, "the factors", inputs[1], factors(self.shared, &inputs[0].shape))?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let grad = ChannelScaleGrad { shared: self.shared };
        let gradients = tape.push(grad, &[dz, node.inputs[0], node.inputs[1]])?;
        for (operand, gradient) in node.inputs.iter().zip(gradients) {
            if tape.needs(*operand) {
                tape.add(*operand, gradient)?;
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let factor = |i: usize| inputs[1].data[factor_of(self.shared, &results[0], i)];
        vec![Array::from_fn(results[0].clone(), |i| factor(i) * inputs[0].data[i])]
    }
}

impl Rule for ChannelScaleGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 3)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        expect_like(GRAD, "the operand", inputs[1], inputs[0])?;
        let count = factors(self.shared, &inputs[0].shape);
        expect_channels(GRAD, "the factors", inputs[2], count)?;
        Ok(vec![Signature::like(inputs[0]), Signature::new(Shape(vec![count]), Kind::Channels)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let [dz, x, factors] = [0, 1, 2].map(|operand| inputs[operand]);
        let place = |i: usize| factor_of(self.shared, &dz.shape, i);
        let of_map = Array::from_fn(results[0].clone(), |i| factors.data[place(i)] * dz.data[i]);
        let mut of_factors = Array::zeros(results[1].clone());
        for (i, (dz, x)) in dz.data.iter().zip(&x.data).enumerate() {
            of_factors.data[place(i)] += dz * x;
        }
        vec![of_map, of_factors]
    }
}
