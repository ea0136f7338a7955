//! The Gaussian error linear unit, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{add_pointwise_gradient, infer_pointwise, infer_pointwise_gradient};
use crate::{Array, GraphError, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = x · Φ(x), with Φ the distribution function of the standard normal distribution: the exact form, not that by a hyperbolic
/// tangent (Hendrycks and Gimpel 2016, arXiv:1606.08415; `torch.nn.GELU()`). Operand and result: a volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gelu;

/// The gradient of [`Gelu`], Φ(x) + x · φ(x) with the density φ. Operands: the gradient of its result, and its operand. Result:
/// the gradient of its operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeluGrad;

const NAME: &str = "gelu";
const GRAD: &str = "gelu_grad";

/// The density of the standard normal distribution.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Its distribution function, by the series Φ(x) = ½ + φ(x) · (x + x³/3 + x⁵/(3·5) + …), all of whose terms have one sign
/// (Marsaglia 2004, "Evaluating the normal distribution").
fn distribution(x: f64) -> f64 {
    // Beyond nine deviations it is 0 or 1 to more digits than an f64 has.
    if x.abs() > 9.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > f64::EPSILON * sum.abs() {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    0.5 + density(x) * sum
}

impl Rule for Gelu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_pointwise(NAME, inputs)
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        add_pointwise_gradient(tape, node, GeluGrad, node.inputs[0])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| inputs[0].data[i] * distribution(inputs[0].data[i]))]
    }
}

impl Rule for GeluGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        infer_pointwise_gradient(GRAD, "the operand", inputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        vec![Array::from_fn(results[0].clone(), |i| {
            let x = inputs[1].data[i];
            inputs[0].data[i] * (distribution(x) + x * density(x))
        })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.norm.cdf`
    #[test]
    fn the_distribution_is_that_of_tables() {
        for (x, expected) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-1.96, 0.024_997_895_148_220_435),
            (3.5, 0.999_767_370_920_964_5),
            (-6.0, 9.865_876_450_376_946e-10),
            (12.0, 1.0),
        ] {
            assert!((distribution(x) - expected).abs() < 1e-15, "{x}: {} is not {expected}", distribution(x));
        }
    }
}
