//! Normalisation with given statistics, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{expect_channels, expect_like, expect_operands, expect_statistics, expect_volume, upstream};
use crate::{Array, GraphError, Kind, Node, Op, Rule, Shape, Signature, Tape, TensorInfo};

use super::{Gate, NormFromRunning, Over, RunningFactors};

/// u = γ · (y − μ) · r + β, with μ and r from [`NormStats`](super::NormStats).
///
/// Operands: y `[N, C, D, H, W]`, statistics `[N, C, 2]` and, where `affine`, scale γ and shift β, `[C]` each. Result: as y.
///
/// There is a gradient if the statistics are y's own, computed by a `NormStats` of the program: it then includes the
/// gradient through them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalise {
    /// `true` if there are a scale and a shift.
    pub affine: bool,
}

/// The gradient of [`Normalise`] and of the [`NormStats`](super::NormStats) of the same y together.
///
/// Operands: the gradient g of the result, then the operands of [`Normalise`]. Results: the gradient of y and, where `affine`,
/// the gradients of scale and shift. With x̂ = (y − μ) r and means over the values that share their statistics:
///
/// dy = r · (γ g − mean(γ g) − x̂ · mean(γ g x̂)), dγ = Σ g x̂, dβ = Σ g
/// (Ioffe and Szegedy 2015, section 3; γ is inside the means, since it differs between the channels of a group).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormaliseGrad {
    /// The values that share their statistics, as in the [`NormStats`](super::NormStats).
    pub over: Over,
    /// `true` if there are a scale and a shift.
    pub affine: bool,
}

const NAME: &str = "normalise";
const GRAD: &str = "normalise_grad";

/// The number of operands of [`Normalise`].
fn operands(affine: bool) -> usize {
    if affine { 4 } else { 2 }
}

/// Checks the operands of [`Normalise`].
fn expect(op: &'static str, affine: bool, inputs: &[&TensorInfo]) -> Result<(), GraphError> {
    expect_volume(op, "the operand", inputs[0])?;
    let shape = &inputs[0].shape;
    expect_statistics(op, inputs[1], shape)?;
    if affine {
        expect_channels(op, "the scale", inputs[2], shape.channels())?;
        expect_channels(op, "the shift", inputs[3], shape.channels())?;
    }
    Ok(())
}

impl Rule for Normalise {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), operands(self.affine))?;
        expect(NAME, self.affine, inputs)?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(du) = upstream(tape, node, 0) else { return Ok(()) };
        let (y, statistics) = (node.inputs[0], node.inputs[1]);
        let of_running = tape.maker(statistics).and_then(|maker| match maker.op {
            Op::NormFromRunning(NormFromRunning { batch, epsilon }) if self.affine => {
                Some((RunningFactors { batch, epsilon }, maker.inputs[1]))
            }
            _ => None,
        });
        if let Some((factors, variance)) = of_running {
            let parameters = &node.inputs[2..];
            if parameters.iter().any(|parameter| tape.needs(*parameter)) {
                return Err(GraphError::NoGradient {
                    op: NAME,
                    operand: "scale or shift, with running statistics",
                });
            }
            let factors = tape.push(factors, &[variance, parameters[0]])?[0];
            let gradient = tape.push(Gate, &[du, factors])?[0];
            return tape.add(y, gradient);
        }
        let over = tape.maker(statistics).and_then(|maker| match &maker.op {
            Op::NormStats(stats) if maker.inputs[0] == y => Some(stats.over),
            _ => None,
        });
        let Some(over) = over else {
            return Err(GraphError::NoGradient { op: NAME, operand: "y, with statistics that are not y's" });
        };
        let mut operands = vec![du];
        operands.extend(&node.inputs);
        let gradients = tape.push(NormaliseGrad { over, affine: self.affine }, &operands)?;
        if tape.needs(y) {
            tape.add(y, gradients[0])?;
        }
        for (parameter, gradient) in node.inputs.iter().skip(2).zip(gradients.iter().skip(1)) {
            if tape.needs(*parameter) {
                tape.add(*parameter, *gradient)?;
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let y = inputs[0];
        let voxels = y.shape.voxels();
        let norms: Vec<Norm> =
            (0..y.shape.batch() * y.shape.channels()).map(|plane| Norm::new(inputs, plane)).collect();
        vec![Array::from_fn(results[0].clone(), |i| norms[i / voxels].affine(y.data[i]))]
    }
}

impl Rule for NormaliseGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 1 + operands(self.affine))?;
        expect(GRAD, self.affine, &inputs[1..])?;
        let y = inputs[1];
        self.over.expect(GRAD, &y.shape)?;
        expect_like(GRAD, "the gradient", inputs[0], y)?;
        let mut results = vec![Signature::like(y)];
        if self.affine {
            let channels = Signature::new(Shape(vec![y.shape.channels()]), Kind::Channels);
            results.extend([channels.clone(), channels]);
        }
        Ok(results)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (du, y) = (inputs[0], inputs[1]);
        let (batch, channels, voxels) = (y.shape.batch(), y.shape.channels(), y.shape.voxels());
        let mut dy = Array::zeros(results[0].clone());
        let mut dscale = Array::zeros(Shape(vec![channels]));
        let mut dshift = dscale.clone();
        for set in 0..self.over.sets(batch, channels) {
            let planes: Vec<usize> = self.over.set(set, batch, channels).planes(channels).collect();
            let count = (planes.len() * voxels) as f64;
            let (mut sum, mut sum_x) = (0.0, 0.0);
            for plane in &planes {
                let norm = Norm::new(&inputs[1..], *plane);
                let places = plane * voxels..(plane + 1) * voxels;
                let of_plane: f64 = places.clone().map(|i| du.data[i]).sum();
                let of_plane_x: f64 = places.map(|i| du.data[i] * norm.standard(y.data[i])).sum();
                dshift.data[plane % channels] += of_plane;
                dscale.data[plane % channels] += of_plane_x;
                sum += norm.scale * of_plane;
                sum_x += norm.scale * of_plane_x;
            }
            for plane in planes {
                let norm = Norm::new(&inputs[1..], plane);
                for i in plane * voxels..(plane + 1) * voxels {
                    let means = (sum + norm.standard(y.data[i]) * sum_x) / count;
                    dy.data[i] = norm.rstd * (norm.scale * du.data[i] - means);
                }
            }
        }
        match self.affine {
            true => vec![dy, dscale, dshift],
            false => vec![dy],
        }
    }
}

/// The normalisation of one channel of one sample.
struct Norm {
    mean: f64,
    rstd: f64,
    scale: f64,
    shift: f64,
}

impl Norm {
    /// The normalisation that the operands of [`Normalise`] describe.
    fn new(inputs: &[&Array], plane: usize) -> Norm {
        let channel = plane % inputs[0].shape.channels();
        let (mean, rstd) = (inputs[1].data[2 * plane], inputs[1].data[2 * plane + 1]);
        let (scale, shift) = match inputs {
            [_, _, scale, shift] => (scale.data[channel], shift.data[channel]),
            _ => (1.0, 0.0),
        };
        Norm { mean, rstd, scale, shift }
    }

    fn standard(&self, y: f64) -> f64 {
        (y - self.mean) * self.rstd
    }

    fn affine(&self, y: f64) -> f64 {
        self.scale * self.standard(y) + self.shift
    }
}
