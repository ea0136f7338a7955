//! Attention of all voxels to each other, with rotary positions, and its gradient.

use serde::{Deserialize, Serialize};

use crate::op::{expect_like, expect_operands, expect_table, expect_volume, upstream};
use crate::{Array, Cost, GraphError, Node, Rule, Shape, Signature, Tape, TensorId, TensorInfo};

/// Multi-head attention of all voxels of a sample to each other. Queries and keys are rotated by angles that follow from the place of
/// their voxel (Su et al. 2021, arXiv:2104.09864), along three axes as timm's `RotaryEmbeddingCat` does for
/// `dynamic_network_architectures` ([`RotaryPairs`]). The matrix of a sample is no tensor of the program.
///
/// Operands: queries, keys and values, `[N, C, D, H, W]` each, of one dtype, each head's C / heads channels together. Results: o like
/// the queries, and the logarithm of each query's sum of exponentials, an f32 table `[N, heads, D, H, W]`, of which the gradient makes
/// its probabilities again.
///
/// With R the rotation and s = (C / heads)^−½:
///
/// pᵢ = softmaxⱼ(s R(qᵢ)·R(kⱼ)), oᵢ = Σⱼ pᵢⱼ vⱼ
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RotaryAttention {
    /// Heads.
    pub heads: usize,
}

/// The gradient of [`RotaryAttention`].
///
/// Operands: the gradient of o, the logarithms, queries, keys and values. Results: the gradients of queries, keys and values. With
/// δᵢ = Σⱼ pᵢⱼ dpᵢⱼ, dpᵢⱼ = doᵢ·vⱼ and R⁻¹ the rotation back:
///
/// dsᵢⱼ = pᵢⱼ (dpᵢⱼ − δᵢ), dqᵢ = s R⁻¹(Σⱼ dsᵢⱼ R(kⱼ)), dkⱼ = s R⁻¹(Σᵢ dsᵢⱼ R(qᵢ)), dvⱼ = Σᵢ pᵢⱼ doᵢ
///
/// (Dao et al. 2022, arXiv:2205.14135, appendix B.4, without its blocks of keys).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RotaryAttentionGrad {
    /// The forward op.
    pub of: RotaryAttention,
}

/// The most voxels that attend to each other.
pub const MOST_ATTENDING: usize = 1 << 15;

/// The wavelength of the slowest rotation is nearly 2π times this number of voxels.
const BASE: f64 = 10_000.0;

/// Axes of a volume.
const AXES: usize = 3;

/// The pairs of neighbouring channels of a head that are rotated together: the first third by the place along the depth, the second by
/// the place along the height, the last by the place along the width. Within a third, angles per voxel fall from 1 by equal factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryPairs {
    /// Pairs of each axis.
    pub bands: usize,
}

impl RotaryPairs {
    /// The pairs of a head; none if its channels cannot be shared by pairs for three axes.
    pub fn new(head_channels: usize) -> Option<RotaryPairs> {
        let is_whole = head_channels > 0 && head_channels.is_multiple_of(2 * AXES);
        is_whole.then_some(RotaryPairs { bands: head_channels / (2 * AXES) })
    }

    /// The number of pairs.
    pub fn count(&self) -> usize {
        AXES * self.bands
    }

    /// The angle by which a pair of the band is rotated, counted within its axis, at a place along that axis.
    pub fn angle(&self, place: usize, band: usize) -> f64 {
        place as f64 * BASE.powf(-(band as f64) / self.bands as f64)
    }
}

const NAME: &str = "rotary_attention";
const GRAD: &str = "rotary_attention_grad";

impl RotaryAttention {
    /// The factor of keys: 1 / √(channels of a head).
    pub fn scale(&self, head_channels: usize) -> f64 {
        1.0 / (head_channels as f64).sqrt()
    }

    fn expect(&self, op: &'static str, inputs: &[&TensorInfo]) -> Result<(), GraphError> {
        expect_volume(op, "the queries", inputs[0])?;
        expect_like(op, "the keys", inputs[1], inputs[0])?;
        expect_like(op, "the values", inputs[2], inputs[0])?;
        let (channels, voxels) = (inputs[0].shape.channels(), inputs[0].shape.voxels());
        let is_whole = self.heads > 0 && channels.is_multiple_of(self.heads);
        if !is_whole || RotaryPairs::new(channels / self.heads).is_none() {
            let (found, attribute) = (self.heads.to_string(), "heads");
            let expected = format!("{channels} channels cannot be shared by {found} heads of a multiple of six");
            return Err(GraphError::Attribute { op, attribute, found, expected });
        }
        if voxels > MOST_ATTENDING {
            let (operand, found) = ("the queries", inputs[0].shape.clone());
            let expected = format!("at most {MOST_ATTENDING} voxels can attend to each other");
            return Err(GraphError::Shape { op, operand, found, expected });
        }
        Ok(())
    }

    /// Multiply-adds of one product of queries and keys, all heads.
    fn products(&self, shape: &Shape) -> u64 {
        (shape.count() as u64).saturating_mul(shape.voxels() as u64)
    }

    fn logarithms(&self, shape: &Shape) -> Vec<usize> {
        let [d, h, w] = shape.spatial();
        vec![shape.batch(), self.heads, d, h, w]
    }
}

/// A head of a sample.
struct Head<'a> {
    shape: &'a Shape,
    sample: usize,
    first: usize,
    channels: usize,
}

impl<'a> Head<'a> {
    fn all(op: RotaryAttention, shape: &'a Shape) -> impl Iterator<Item = (usize, Head<'a>)> {
        let channels = shape.channels() / op.heads;
        (0..shape.batch()).flat_map(move |sample| {
            (0..op.heads).map(move |head| (head, Head { shape, sample, first: head * channels, channels }))
        })
    }

    fn place(&self, of: &Array, voxel: usize, channel: usize) -> usize {
        of.plane(self.sample, self.first + channel) + voxel
    }

    /// The channels of each voxel, `[voxel][channel]`.
    fn read(&self, of: &Array) -> Vec<Vec<f64>> {
        let voxel = |voxel| (0..self.channels).map(|c| of.data[self.place(of, voxel, c)]).collect();
        (0..self.shape.voxels()).map(voxel).collect()
    }

    fn write(&self, to: &mut Array, values: &[Vec<f64>]) {
        for (voxel, values) in values.iter().enumerate() {
            for (channel, value) in values.iter().enumerate() {
                let place = self.place(to, voxel, channel);
                to.data[place] = *value;
            }
        }
    }

    /// The same, rotated by the angles of its place times `sign`.
    fn rotated(&self, values: &[Vec<f64>], sign: f64) -> Vec<Vec<f64>> {
        let [_, height, width] = self.shape.spatial();
        // Called only where `infer` found pairs.
        let bands = self.channels / (2 * AXES);
        let pairs = RotaryPairs { bands };
        let rotate = |(voxel, values): (usize, &Vec<f64>)| {
            let places = [voxel / (height * width), voxel / width % height, voxel % width];
            let mut rotated = values.clone();
            for pair in 0..pairs.count() {
                let (sin, cos) = (sign * pairs.angle(places[pair / bands], pair % bands)).sin_cos();
                let (a, b) = (values[2 * pair], values[2 * pair + 1]);
                rotated[2 * pair] = a * cos - b * sin;
                rotated[2 * pair + 1] = b * cos + a * sin;
            }
            rotated
        };
        values.iter().enumerate().map(rotate).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(to: &mut [f64], factor: f64, from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

impl Rule for RotaryAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), 3)?;
        self.expect(NAME, inputs)?;
        Ok(vec![Signature::like(inputs[0]), Signature::table(self.logarithms(&inputs[0].shape))])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        if upstream(tape, node, 1).is_some() {
            return Err(GraphError::NoGradient { op: NAME, operand: "its operands, from the logarithms" });
        }
        let Some(d_o) = upstream(tape, node, 0) else { return Ok(()) };
        let operands: Vec<TensorId> = [d_o, node.outputs[1]].into_iter().chain(node.inputs.clone()).collect();
        let gradients = tape.push(RotaryAttentionGrad { of: *self }, &operands)?;
        for (operand, gradient) in node.inputs.iter().zip(gradients) {
            if tape.needs(*operand) {
                tape.add(*operand, gradient)?;
            }
        }
        Ok(())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let flops = self.products(&inputs[0].shape).saturating_mul(4);
        Cost { flops, ..Cost::streaming(inputs, outputs) }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (mut o, mut logs) = (Array::zeros(results[0].clone()), Array::zeros(results[1].clone()));
        for (number, head) in Head::all(*self, &results[0]) {
            let scale = self.scale(head.channels);
            let [q, k] = [0, 1].map(|at| head.rotated(&head.read(inputs[at]), 1.0));
            let v = head.read(inputs[2]);
            let mut attended = vec![vec![0.0; head.channels]; v.len()];
            for (i, q) in q.iter().enumerate() {
                let logits: Vec<f64> = k.iter().map(|k| scale * dot(q, k)).collect();
                let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let log = top + logits.iter().map(|x| (x - top).exp()).sum::<f64>().ln();
                for (logit, v) in logits.iter().zip(&v) {
                    add_scaled(&mut attended[i], (logit - log).exp(), v);
                }
                let place = logs.plane(head.sample, number) + i;
                logs.data[place] = log;
            }
            head.write(&mut o, &attended);
        }
        vec![o, logs]
    }
}

impl Rule for RotaryAttentionGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 5)?;
        self.of.expect(GRAD, &inputs[2..])?;
        expect_like(GRAD, "the gradient", inputs[0], inputs[2])?;
        expect_table(GRAD, "the logarithms", inputs[1], &self.of.logarithms(&inputs[2].shape))?;
        Ok(inputs[2..].iter().map(|of| Signature::like(of)).collect())
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let flops = self.of.products(&inputs[2].shape).saturating_mul(10);
        Cost { flops, ..Cost::streaming(inputs, outputs) }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let logs = inputs[1];
        let mut gradients: Vec<Array> = results.iter().map(|shape| Array::zeros(shape.clone())).collect();
        for (number, head) in Head::all(self.of, &results[0]) {
            let scale = self.of.scale(head.channels);
            let upstream = head.read(inputs[0]);
            let [q, k] = [2, 3].map(|at| head.rotated(&head.read(inputs[at]), 1.0));
            let v = head.read(inputs[4]);
            let zeroes = || vec![vec![0.0; head.channels]; v.len()];
            let (mut dq, mut dk, mut dv) = (zeroes(), zeroes(), zeroes());
            for i in 0..v.len() {
                let log = logs.data[logs.plane(head.sample, number) + i];
                let p: Vec<f64> = k.iter().map(|k| (scale * dot(&q[i], k) - log).exp()).collect();
                let dp: Vec<f64> = v.iter().map(|v| dot(&upstream[i], v)).collect();
                let delta = dot(&p, &dp);
                for j in 0..v.len() {
                    let ds = scale * p[j] * (dp[j] - delta);
                    add_scaled(&mut dv[j], p[j], &upstream[i]);
                    add_scaled(&mut dq[i], ds, &k[j]);
                    add_scaled(&mut dk[j], ds, &q[i]);
                }
            }
            head.write(&mut gradients[0], &head.rotated(&dq, -1.0));
            head.write(&mut gradients[1], &head.rotated(&dk, -1.0));
            head.write(&mut gradients[2], &dv);
        }
        gradients
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `RotaryEmbeddingCat(8, in_pixels=False, feat_shape=[2, 2, 3], ref_feat_shape=[2, 2, 3]).pos_embed` has, for the last voxel, the
    /// sines of 1, 0.01, 1, 0.01, 2, 0.02, each twice.
    #[test]
    fn a_third_of_the_pairs_follows_each_axis() {
        let pairs = RotaryPairs::new(12).unwrap();
        assert_eq!((pairs.bands, pairs.count()), (2, 6));
        let angles: Vec<f64> = [1, 1, 2].iter().flat_map(|at| [0, 1].map(|band| pairs.angle(*at, band))).collect();
        for (angle, expected) in angles.iter().zip([1.0, 0.01, 1.0, 0.01, 2.0, 0.02]) {
            assert!((angle - expected).abs() < 1e-12, "{angle} is not {expected}");
        }
        assert_eq!(RotaryPairs::new(10), None);
        assert_eq!(RotaryPairs::new(0), None);
    }
}
