//! Normalisation of each token over its channels, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{expect_channels, expect_like, expect_operands, expect_volume, upstream};
use crate::{Array, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = γ · (x − μ) / √(σ² + ε) + β, with mean and variance (divided by their number) over the channels of each voxel, which is a
/// token: layer normalisation (Ba et al. 2016, arXiv:1607.06450; `torch.nn.LayerNorm` of the last axis, channels last).
///
/// Operands: x `[N, C, D, H, W]` and, where `affine`, scale γ and shift β, `[C]` each. Result: as x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenNorm {
    /// Added to the variance.
    pub epsilon: f32,
    /// `true` if there are a scale and a shift.
    pub affine: bool,
}

/// The gradient of [`TokenNorm`].
///
/// Operands: the gradient g of the result, x and, where `affine`, the scale γ. Results: the gradient of x and, where `affine`,
/// the gradients of scale and shift. With x̂ = (x − μ) r, r = 1/√(σ² + ε) and means over a token's channels:
///
/// dx = r · (γ g − mean(γ g) − x̂ · mean(γ g x̂)), dγ = Σ g x̂, dβ = Σ g
///
/// Mean and variance are computed again from x, which has to be there anyway: two numbers for each token would be one more
/// thing to keep, and save a pass over channels that are in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenNormGrad {
    /// Added to the variance.
    pub epsilon: f32,
    /// `true` if there are a scale and a shift.
    pub affine: bool,
}

const NAME: &str = "token_norm";
const GRAD: &str = "token_norm_grad";

/// One token of an array.
struct Token {
    /// The place of its first channel; the others follow at a distance of all voxels.
    first: usize,
    voxels: usize,
    mean: f64,
    rstd: f64,
}

impl Token {
    fn all(x: &Array, epsilon: f32) -> impl Iterator<Item = Token> + '_ {
        let (channels, voxels) = (x.shape.channels(), x.shape.voxels());
        (0..x.shape.batch() * voxels).map(move |token| {
            let first = token / voxels * channels * voxels + token % voxels;
            let values = || (0..channels).map(|channel| x.data[first + channel * voxels]);
            let mean = values().sum::<f64>() / channels as f64;
            let variance = values().map(|x| (x - mean).powi(2)).sum::<f64>() / channels as f64;
            Token { first, voxels, mean, rstd: 1.0 / (variance + f64::from(epsilon)).sqrt() }
        })
    }

    fn place(&self, channel: usize) -> usize {
        self.first + channel * self.voxels
    }

    fn standard(&self, x: f64) -> f64 {
        (x - self.mean) * self.rstd
    }
}

impl Rule for TokenNorm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), if self.affine { 3 } else { 1 })?;
        expect_volume(NAME, "the operand", inputs[0])?;
        if self.affine {
            let channels = inputs[0].shape.channels();
            expect_channels(NAME, "the scale", inputs[1], channels)?;
            expect_channels(NAME, "the shift", inputs[2], channels)?;
        }
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let TokenNorm { epsilon, affine } = *self;
        // Neither x nor the scale's gradient needs the shift.
        let operands: Vec<_> = [dz].into_iter().chain(node.inputs.iter().copied().take(2)).collect();
        let gradients = tape.push(TokenNormGrad { epsilon, affine }, &operands)?;
        for (operand, gradient) in node.inputs.iter().zip(gradients) {
            if tape.needs(*operand) {
                tape.add(*operand, gradient)?;
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let x = inputs[0];
        let mut z = Array::zeros(results[0].clone());
        for token in Token::all(x, self.epsilon) {
            for channel in 0..x.shape.channels() {
                let place = token.place(channel);
                let standard = token.standard(x.data[place]);
                z.data[place] = match inputs {
                    [_, scale, shift] => scale.data[channel] * standard + shift.data[channel],
                    _ => standard,
                };
            }
        }
        vec![z]
    }
}

impl Rule for TokenNormGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), if self.affine { 3 } else { 2 })?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        expect_like(GRAD, "the operand", inputs[1], inputs[0])?;
        let mut results = vec![Signature::like(inputs[0])];
        if self.affine {
            let channels = inputs[0].shape.channels();
            expect_channels(GRAD, "the scale", inputs[2], channels)?;
            let of_channels = Signature::new(Shape(vec![channels]), Kind::Channels);
            results.extend([of_channels.clone(), of_channels]);
        }
        Ok(results)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (dz, x) = (inputs[0], inputs[1]);
        let channels = x.shape.channels();
        let mut dx = Array::zeros(results[0].clone());
        let mut dscale = Array::zeros(Shape(vec![channels]));
        let mut dshift = dscale.clone();
        let scale = |channel: usize| inputs.get(2).map_or(1.0, |scale| scale.data[channel]);
        for token in Token::all(x, self.epsilon) {
            let (mut sum, mut sum_x) = (0.0, 0.0);
            for channel in 0..channels {
                let place = token.place(channel);
                let standard = token.standard(x.data[place]);
                sum += scale(channel) * dz.data[place];
                sum_x += scale(channel) * dz.data[place] * standard;
                dscale.data[channel] += dz.data[place] * standard;
                dshift.data[channel] += dz.data[place];
            }
            for channel in 0..channels {
                let place = token.place(channel);
                let mean = (sum + token.standard(x.data[place]) * sum_x) / channels as f64;
                dx.data[place] = token.rstd * (scale(channel) * dz.data[place] - mean);
            }
        }
        match self.affine {
            true => vec![dx, dscale, dshift],
            false => vec![dx],
        }
    }
}
