//! Leaky ReLU whose slope is learned, and its gradients.

use serde::{Deserialize, Serialize};

use crate::op::{expect_channels, expect_like, expect_operands, expect_volume, upstream};
use crate::{Array, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = x where x > 0, else a · x, with one learned slope a: `torch.nn.PReLU()` (He et al. 2015, arXiv:1502.01852). Operands: a volume x, and
/// the slope `[1]`. Result: as x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prelu;

/// The gradients of [`Prelu`]. Operands: the gradient g of its result, x, and the slope. Results: the gradient of x, and the gradient of
/// the slope, Σ g · min(x, 0) over all elements, `[1]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreluGrad;

const NAME: &str = "prelu";
const GRAD: &str = "prelu_grad";

impl Rule for Prelu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 2)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        expect_channels(NAME, "the slope", inputs[1], 1)?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let (x, slope) = (node.inputs[0], node.inputs[1]);
        if !tape.needs(x) && !tape.needs(slope) {
            return Ok(());
        }
        // The slope may be negative, so that the result does not tell the sign of the operand.
        let gradients = tape.push(PreluGrad, &[dz, x, slope])?;
        for (operand, gradient) in [x, slope].into_iter().zip(gradients) {
            if tape.needs(operand) {
                tape.add(operand, gradient)?;
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let slope = inputs[1].data[0];
        let value = |x: f64| if x > 0.0 { x } else { slope * x };
        vec![Array::from_fn(results[0].clone(), |i| value(inputs[0].data[i]))]
    }
}

impl Rule for PreluGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 3)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        expect_like(GRAD, "the operand", inputs[1], inputs[0])?;
        expect_channels(GRAD, "the slope", inputs[2], 1)?;
        Ok(vec![Signature::like(inputs[0]), Signature::new(Shape(vec![1]), Kind::Channels)])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let [g, x, slope] = inputs else { return Vec::new() };
        let dx = |i: usize| g.data[i] * if x.data[i] > 0.0 { 1.0 } else { slope.data[0] };
        let sum = g.data.iter().zip(&x.data).map(|(g, x)| g * x.min(0.0)).sum();
        vec![Array::from_fn(results[0].clone(), dx), Array::from_fn(results[1].clone(), |_| sum)]
    }
}
