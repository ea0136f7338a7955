//! Normalisation and activation in one, and their gradient.

use serde::{Deserialize, Serialize};

use super::conv::check_norm;
use super::leaky_relu::{leaky, leaky_slope};
use super::{Load, SourceOperands};
use crate::op::{expect_shape, expect_volume, upstream};
use crate::{Array, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = lrelu(γ · (y − μ) · r + β), with μ and r from [`NormStats`](super::NormStats) of the same y; slope 1 is no activation.
///
/// Operands: y `[N, C, D, H, W]`, its statistics `[N, C, 2]` and, where `affine`, scale γ and shift β, `[C]` each. Result: as y.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormAct {
    /// Of the leaky ReLU.
    pub slope: f32,
    /// Whether there are a scale and a shift.
    pub affine: bool,
}

/// The gradient of [`NormStats`](super::NormStats) and [`NormAct`] together. Only y is needed, not z.
///
/// Operands: the gradient of z, then the operands of [`NormAct`]. Results: the gradient of y and, where `affine`, those of
/// scale and shift. With x̂ = (y − μ) r, u = γ x̂ + β, g = dz · lrelu'(u) and means over a channel's voxels:
///
/// dy = r · (γ g − mean(γ g) − x̂ · mean(γ g x̂)), dγ = Σ g x̂, dβ = Σ g
/// (Ioffe and Szegedy 2015, section 3, for one sample).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormActGrad {
    /// Of the leaky ReLU.
    pub slope: f32,
    /// Whether there are a scale and a shift.
    pub affine: bool,
}

const NAME: &str = "norm_act";
const GRAD: &str = "norm_act_grad";

impl NormAct {
    /// The load that makes what this makes.
    pub fn load(self) -> Load {
        Load::NormAct { slope: self.slope, affine: self.affine }
    }
}

impl Rule for NormAct {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let (source, _) = Load::take_exactly(NAME, &[self.load()], inputs, 0)?;
        expect_volume(NAME, "the operand", source[0].value)?;
        check_norm(NAME, &source[0])?;
        Ok(vec![Signature::like(source[0].value)])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let mut operands = vec![dz];
        operands.extend(&node.inputs);
        let gradients = tape.push(NormActGrad { slope: self.slope, affine: self.affine }, &operands)?;
        tape.add(node.inputs[0], gradients[0])?;
        for (parameter, gradient) in node.inputs.iter().skip(2).zip(gradients.iter().skip(1)) {
            if tape.needs(*parameter) {
                tape.add(*parameter, *gradient)?;
            }
        }
        Ok(())
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn evaluate(&self, inputs: &[&Array], _results: &[Shape]) -> Vec<Array> {
        self.load().take(inputs).map(|(source, _)| source.loaded()).into_iter().collect()
    }
}

impl NormActGrad {
    fn load(self) -> Load {
        Load::NormAct { slope: self.slope, affine: self.affine }
    }
}

impl Rule for NormActGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let operands = inputs.get(1..).unwrap_or_default();
        let (source, _) = Load::take_exactly(GRAD, &[self.load()], operands, 0)?;
        let y = source[0].value;
        expect_volume(GRAD, "the operand", y)?;
        check_norm(GRAD, &source[0])?;
        expect_shape(GRAD, "the gradient", &inputs[0].shape, &y.shape)?;
        let mut results = vec![Signature::like(y)];
        if self.affine {
            let channels = Signature::new(Shape(vec![y.shape.channels()]), Kind::Channels);
            results.extend([channels.clone(), channels]);
        }
        Ok(results)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        vec![(0, 0), (0, 1)]
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let dz = inputs[0];
        let Some((source, _)) = self.load().take(&inputs[1..]) else { return Vec::new() };
        let (y, slope) = (source.value, f64::from(self.slope));
        let (voxels, channels) = (y.shape.voxels(), y.shape.channels());
        let mut dy = Array::zeros(results[0].clone());
        let mut dscale = Array::zeros(Shape(vec![channels]));
        let mut dshift = dscale.clone();
        for plane in 0..y.shape.batch() * channels {
            let norm = Norm::of(&source, plane);
            let places = plane * voxels..(plane + 1) * voxels;
            let gradient = |i: usize| dz.data[i] * leaky_slope(norm.affine(y.data[i]), slope);
            let sum: f64 = places.clone().map(gradient).sum();
            let sum_x: f64 = places.clone().map(|i| gradient(i) * norm.standard(y.data[i])).sum();
            dscale.data[plane % channels] += sum_x;
            dshift.data[plane % channels] += sum;
            for i in places {
                let centred = gradient(i) - (sum + norm.standard(y.data[i]) * sum_x) / voxels as f64;
                dy.data[i] = norm.rstd * norm.scale * centred;
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
    fn of(source: &SourceOperands<&Array>, plane: usize) -> Norm {
        let channel = plane % source.value.shape.channels();
        let (mean, rstd) =
            source.statistics.map_or((0.0, 1.0), |s| (s.data[2 * plane], s.data[2 * plane + 1]));
        let (scale, shift) =
            source.affine.map_or((1.0, 0.0), |(scale, shift)| (scale.data[channel], shift.data[channel]));
        Norm { mean, rstd, scale, shift }
    }

    fn standard(&self, y: f64) -> f64 {
        (y - self.mean) * self.rstd
    }

    fn affine(&self, y: f64) -> f64 {
        self.scale * self.standard(y) + self.shift
    }
}

/// The definition of [`NormAct`].
pub(super) fn normalise(
    y: &Array,
    statistics: &Array,
    affine: Option<(&Array, &Array)>,
    slope: f64,
) -> Array {
    let source = SourceOperands { value: y, statistics: Some(statistics), affine, slope: 1.0 };
    let voxels = y.shape.voxels();
    let norms: Vec<Norm> =
        (0..y.shape.batch() * y.shape.channels()).map(|plane| Norm::of(&source, plane)).collect();
    Array::from_fn(y.shape.clone(), |i| leaky(norms[i / voxels].affine(y.data[i]), slope))
}
