//! Global response normalisation, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{expect_channels, expect_like, expect_operands, expect_volume, upstream};
use crate::{Array, Cost, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorInfo};

/// z = x + γ · x · n + β, where n is the response of a channel of a sample relative to the sample's other channels: with g the
/// Euclidean norm of a channel over its voxels, n = g / (mean of g over the channels + ε) (Woo et al. 2023, "ConvNeXt V2",
/// arXiv:2301.00808; MONAI's `MedNeXtBlock` with `grn=True`).
///
/// Operands: x `[N, C, D, H, W]`, γ and β, `[C]` each. Result: as x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseNorm {
    /// ε, which is added to the mean of the norms.
    pub epsilon: f32,
}

/// The gradient of [`ResponseNorm`].
///
/// Operands: the gradient dz of the result, x and γ. Results: the gradients of x, γ and β. With the sums a = Σ dz · x over the voxels of
/// a channel of a sample, m = mean of g + ε and C channels:
///
/// dx = (1 + γ n) dz + x · (γ a / m − Σ γ a g / (C m²)) / g, dγ = Σ a n, dβ = Σ dz
///
/// The sum in the first is over the channels of the sample, and the second summand is 0 for a channel of zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseNormGrad {
    /// ε, which is added to the mean of the norms.
    pub epsilon: f32,
}

/// The sums of a channel of a sample, and its γ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelSums {
    /// Σ x².
    pub squares: f64,
    /// a = Σ dz · x; 0 where the slope is not needed.
    pub products: f64,
    /// γ.
    pub scale: f64,
}

/// The numbers that the channels of a sample share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleResponse {
    /// m, the mean of the norms plus ε.
    mean: f64,
    /// Σ γ a g / (C m²).
    shared: f64,
}

/// The numbers that the voxels of a channel of a sample are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// n.
    pub relative: f64,
    /// 1 + γ n: the factor of x in z, and of dz in dx.
    pub factor: f64,
    /// The factor of x in dx.
    pub slope: f64,
}

impl SampleResponse {
    /// The numbers that the channels of a sample share.
    pub fn new(channels: impl ExactSizeIterator<Item = ChannelSums>, epsilon: f32) -> SampleResponse {
        let count = channels.len() as f64;
        let (mut norms, mut products) = (0.0, 0.0);
        for ChannelSums { squares, products: a, scale } in channels {
            norms += squares.sqrt();
            products += scale * a * squares.sqrt();
        }
        let mean = norms / count + f64::from(epsilon);
        SampleResponse { mean, shared: products / (count * mean * mean) }
    }

    /// The response of one of the channels.
    pub fn of(&self, channel: ChannelSums) -> Response {
        let ChannelSums { squares, products, scale } = channel;
        let norm = squares.sqrt();
        let relative = norm / self.mean;
        let slope = if norm > 0.0 { (scale * products / self.mean - self.shared) / norm } else { 0.0 };
        Response { relative, factor: 1.0 + scale * relative, slope }
    }
}

const NAME: &str = "response_norm";
const GRAD: &str = "response_norm_grad";

/// The responses of the channels of a sample, with the sums that they follow from; of the gradient if `dz` is given.
fn responses(
    x: &Array,
    dz: Option<&Array>,
    scale: &Array,
    sample: usize,
    epsilon: f32,
) -> Vec<(ChannelSums, Response)> {
    let of_channel = |channel: usize| {
        let first = x.plane(sample, channel);
        let sum = |other: &Array| -> f64 {
            (first..first + x.shape.voxels()).map(|place| x.data[place] * other.data[place]).sum()
        };
        ChannelSums { squares: sum(x), products: dz.map_or(0.0, sum), scale: scale.data[channel] }
    };
    let sums: Vec<ChannelSums> = (0..x.shape.channels()).map(of_channel).collect();
    let shared = SampleResponse::new(sums.iter().copied(), epsilon);
    sums.into_iter().map(|sums| (sums, shared.of(sums))).collect()
}

impl Rule for ResponseNorm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 3)?;
        expect_volume(NAME, "the operand", inputs[0])?;
        let channels = inputs[0].shape.channels();
        expect_channels(NAME, "the scale", inputs[1], channels)?;
        expect_channels(NAME, "the shift", inputs[2], channels)?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        let Some(dz) = upstream(tape, node, 0) else { return Ok(()) };
        let grad = ResponseNormGrad { epsilon: self.epsilon };
        let gradients = tape.push(grad, &[dz, node.inputs[0], node.inputs[1]])?;
        for (operand, gradient) in node.inputs.iter().zip(gradients) {
            if tape.needs(*operand) {
                tape.add(*operand, gradient)?;
            }
        }
        Ok(())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        Cost { flops: 4 * outputs[0].shape.count() as u64, ..Cost::streaming(inputs, outputs) }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (x, scale, shift) = (inputs[0], inputs[1], inputs[2]);
        let mut z = Array::zeros(results[0].clone());
        let voxels = x.shape.voxels();
        for sample in 0..x.shape.batch() {
            let responses = responses(x, None, scale, sample, self.epsilon);
            for (channel, (_, response)) in responses.iter().enumerate() {
                let first = x.plane(sample, channel);
                for place in first..first + voxels {
                    z.data[place] = response.factor * x.data[place] + shift.data[channel];
                }
            }
        }
        vec![z]
    }
}

impl Rule for ResponseNormGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 3)?;
        expect_volume(GRAD, "the gradient", inputs[0])?;
        expect_like(GRAD, "the operand", inputs[1], inputs[0])?;
        let channels = inputs[0].shape.channels();
        expect_channels(GRAD, "the scale", inputs[2], channels)?;
        let of_channels = Signature::new(Shape(vec![channels]), Kind::Channels);
        Ok(vec![Signature::like(inputs[0]), of_channels.clone(), of_channels])
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        Cost { flops: 9 * outputs[0].shape.count() as u64, ..Cost::streaming(inputs, outputs) }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (dz, x, scale) = (inputs[0], inputs[1], inputs[2]);
        let mut dx = Array::zeros(results[0].clone());
        let mut dscale = Array::zeros(results[1].clone());
        let mut dshift = Array::zeros(results[2].clone());
        let voxels = x.shape.voxels();
        for sample in 0..x.shape.batch() {
            let responses = responses(x, Some(dz), scale, sample, self.epsilon);
            for (channel, (sums, response)) in responses.iter().enumerate() {
                dscale.data[channel] += sums.products * response.relative;
                let first = x.plane(sample, channel);
                for place in first..first + voxels {
                    dshift.data[channel] += dz.data[place];
                    dx.data[place] = response.factor * dz.data[place] + response.slope * x.data[place];
                }
            }
        }
        vec![dx, dscale, dshift]
    }
}
