//! Attention of tokens within windows, and its gradient.

mod windows;

use serde::{Deserialize, Serialize};

pub use windows::{RelativePositions, WindowToken, AttentionWindows};

use super::dropout::{NOISE, Noise, expect_probability, philox, scale, threshold};
use crate::op::{expect_channels, expect_like, expect_operands, expect_table, expect_volume, upstream};
use crate::{Array, Cost, GraphError, Kind, Node, Rule, Shape, Signature, Tape, TensorId, TensorInfo};

/// Multi-head attention of the tokens of each window to each other, with a learned bias for each relative position (Liu et al.
/// 2021, arXiv:2103.14030; MONAI's `WindowAttention` with the padding and the shifts around it). The matrix of a window is no
/// tensor of the program.
///
/// Operands: queries, keys and values `[N, 3C, D, H, W]`, one after the other along the channels, each head's C / heads channels
/// together; a table of biases `[rows, heads]` with a row for each relative position ([`RelativePositions`]); where `padded_bias`,
/// `[3C]`; where `dropout` is not 0, a [`Noise`] `[5]`. Results: o `[N, C, D, H, W]`, of the operand's dtype, and the logarithm
/// of each query's sum of exponentials, an f32 table `[N, heads, D, H, W]`, of which the gradient makes its probabilities again.
///
/// With queries i and keys j of one window ([`AttentionWindows`]), s = (C / heads)^−½:
///
/// pᵢ = softmaxⱼ(s qᵢ·kⱼ + table\[row(i, j)\] + m), oᵢ = Σⱼ pᵢⱼ vⱼ
///
/// where m is −100 for tokens of different regions, else 0. Tokens of the padding are keys and values like any other; theirs are
/// what the layer that makes queries, keys and values makes of zeroes: its bias. With dropout, each pᵢⱼ is dropped as elements
/// of [`Dropout`](super::Dropout) are, after the softmax.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowAttention {
    /// Heads.
    pub heads: usize,
    /// Extent of a window.
    pub window: [usize; 3],
    /// The shift of windows; along axes with a shift of 0, tokens are not separated into regions.
    pub shift: [usize; 3],
    /// The window whose relative positions the table has.
    pub table_window: [usize; 3],
    /// `true` if tokens of the padding have the biases of an operand, rather than zeroes.
    pub padded_bias: bool,
    /// The probability with which an element of the attention matrix is dropped.
    pub dropout: f32,
    /// Tells its dropout from the others of a program.
    pub layer: u32,
}

/// The gradient of [`WindowAttention`].
///
/// Operands: the gradient of o, the logarithms, then the operands of [`WindowAttention`]. Results: the gradients of queries, keys
/// and values together, of the table and, where `padded_bias`, what tokens of the padding add to the gradient of the bias. With
/// δᵢ = Σⱼ pᵢⱼ dpᵢⱼ and dpᵢⱼ = doᵢ·vⱼ:
///
/// dsᵢⱼ = pᵢⱼ (dpᵢⱼ − δᵢ), dqᵢ = s Σⱼ dsᵢⱼ kⱼ, dkⱼ = s Σᵢ dsᵢⱼ qᵢ, dvⱼ = Σᵢ pᵢⱼ doᵢ, dtable\[r\] = Σ dsᵢⱼ over row(i, j) = r
///
/// (Dao et al. 2022, arXiv:2205.14135, appendix B.4, without its blocks of keys).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowAttentionGrad {
    /// The forward op.
    pub of: WindowAttention,
}

/// The summand of logits of tokens of different regions.
pub const OTHER_REGION: f32 = -100.0;

/// The most tokens of a window; a matrix of theirs has 2²⁴ elements.
pub const MOST_WINDOW_TOKENS: usize = 4096;

const NAME: &str = "window_attention";
const GRAD: &str = "window_attention_grad";

impl WindowAttention {
    /// The indices into the table.
    pub fn positions(&self) -> RelativePositions {
        RelativePositions::new(self.table_window)
    }

    /// The windows of a grid.
    pub fn windows(&self, extent: [usize; 3]) -> AttentionWindows {
        AttentionWindows::new(extent, self.window, self.shift)
    }

    /// The factor of keys: 1 / √(channels of a head).
    pub fn scale(&self, head_channels: usize) -> f64 {
        1.0 / (head_channels as f64).sqrt()
    }

    /// An element of the matrix is dropped if its random number is below this.
    pub fn threshold(&self) -> u32 {
        threshold(self.dropout)
    }

    /// The factor of kept elements.
    pub fn kept_scale(&self) -> f32 {
        scale(self.dropout)
    }

    /// The counter of four keys, the keys of group ⌊key / 4⌋, and a query of a head's window of a sample.
    pub fn counter(
        &self,
        sample: u32,
        [head, window, query, group]: [usize; 4],
        windows: &AttentionWindows,
    ) -> [u32; 4] {
        let row = query * windows.tokens().div_ceil(4) + group;
        [row as u32, (head * windows.count() + window) as u32, sample, self.layer]
    }

    /// The number of operands of the forward op.
    pub fn operands(&self) -> usize {
        2 + usize::from(self.padded_bias) + usize::from(self.dropout > 0.0)
    }

    fn expect(&self, op: &'static str, inputs: &[&TensorInfo]) -> Result<(), GraphError> {
        let wrong = |attribute, found: String, expected: String| {
            Err(GraphError::Attribute { op, attribute, found, expected })
        };
        expect_probability(op, "dropout", self.dropout)?;
        for (attribute, extents) in [("window", self.window), ("table_window", self.table_window)] {
            let tokens = extents.iter().fold(1, |all: usize, extent| all.saturating_mul(*extent));
            if !(1..=MOST_WINDOW_TOKENS).contains(&tokens) {
                let expected = format!("it must have 1 to {MOST_WINDOW_TOKENS} tokens");
                return wrong(attribute, format!("{extents:?}"), expected);
            }
        }
        if (0..3).any(|axis| self.shift[axis] >= self.window[axis]) {
            let expected = format!("it must be less than the window {:?}", self.window);
            return wrong("shift", format!("{:?}", self.shift), expected);
        }
        if self.window.iter().product::<usize>() > self.table_window.iter().product() {
            let expected = format!("the table is one for windows of {:?}", self.table_window);
            return wrong("window", format!("{:?}", self.window), expected);
        }
        expect_volume(op, "queries, keys and values", inputs[0])?;
        let channels = inputs[0].shape.channels();
        if self.heads == 0 || !channels.is_multiple_of(self.heads.saturating_mul(3)) {
            let expected = format!("three times {} heads cannot share {channels} channels", self.heads);
            return wrong("heads", self.heads.to_string(), expected);
        }
        expect_table(op, "the table", inputs[1], &[self.positions().rows(), self.heads])?;
        if self.padded_bias {
            expect_channels(op, "the bias", inputs[2], channels)?;
        }
        if self.dropout > 0.0 {
            expect_table(op, "the noise", inputs[self.operands() - 1], &[NOISE])?;
        }
        Ok(())
    }

    /// Multiply-adds of one product of queries and keys, all heads.
    fn products(&self, shape: &Shape) -> u64 {
        (shape.count() as u64 / 3).saturating_mul(self.window.iter().product::<usize>() as u64)
    }
}

/// The shape of the logarithms of attention to some queries, keys and values.
fn logarithms(qkv: &Shape, heads: usize) -> Vec<usize> {
    let [d, h, w] = qkv.spatial();
    vec![qkv.batch(), heads, d, h, w]
}

/// Operands of the forward op as arrays.
struct Operands<'a> {
    op: WindowAttention,
    qkv: &'a Array,
    table: &'a Array,
    bias: Option<&'a Array>,
    noise: Option<Noise>,
    channels: usize,
    head_channels: usize,
}

/// One query with all keys of its window.
struct Row<'a> {
    sample: usize,
    head: usize,
    query: usize,
    tokens: &'a [WindowToken],
    /// The voxel of the query.
    voxel: usize,
    p: Vec<f64>,
    /// The factors of dropout for each of `p`.
    factors: Vec<f64>,
    /// The logarithm of the sum of exponentials.
    log: f64,
}

/// A third of the channels.
#[derive(Clone, Copy)]
enum Part {
    Query,
    Key,
    Value,
}

impl<'a> Operands<'a> {
    fn new(op: WindowAttention, inputs: &[&'a Array]) -> Operands<'a> {
        let channels = inputs[0].shape.channels() / 3;
        Operands {
            op,
            qkv: inputs[0],
            table: inputs[1],
            bias: op.padded_bias.then(|| inputs[2]),
            noise: (op.dropout > 0.0).then(|| Noise::from_array(inputs[op.operands() - 1])),
            channels,
            head_channels: channels / op.heads,
        }
    }

    fn channel(&self, part: Part, head: usize, d: usize) -> usize {
        part as usize * self.channels + head * self.head_channels + d
    }

    /// A channel of a token: where it is in the volume, or in the bias for a token of the padding.
    fn value(&self, sample: usize, token: WindowToken, channel: usize) -> f64 {
        match token.voxel {
            Some(voxel) => self.qkv.data[self.qkv.plane(sample, channel) + voxel],
            None => self.bias.map_or(0.0, |bias| bias.data[channel]),
        }
    }

    fn for_each_row(&self, mut visit: impl FnMut(&Row<'_>)) {
        let windows = self.op.windows(self.qkv.shape.spatial());
        let positions = self.op.positions();
        let scale = self.op.scale(self.head_channels);
        for sample in 0..self.qkv.shape.batch() {
            for window in 0..windows.count() {
                let tokens: Vec<WindowToken> = windows.tokens_in(window).collect();
                for (head, query) in
                    (0..self.op.heads).flat_map(|head| (0..tokens.len()).map(move |q| (head, q)))
                {
                    let Some(voxel) = tokens[query].voxel else { continue };
                    let logit = |key: usize| {
                        let value = |token: usize, part: Part, d: usize| {
                            self.value(sample, tokens[token], self.channel(part, head, d))
                        };
                        let product: f64 = (0..self.head_channels)
                            .map(|d| value(query, Part::Query, d) * value(key, Part::Key, d))
                            .sum();
                        let bias = self.table.data[positions.row(query, key) * self.op.heads + head];
                        let other = tokens[query].region != tokens[key].region;
                        scale * product + bias + if other { f64::from(OTHER_REGION) } else { 0.0 }
                    };
                    let logits: Vec<f64> = (0..tokens.len()).map(logit).collect();
                    let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let log = top + logits.iter().map(|x| (x - top).exp()).sum::<f64>().ln();
                    let factor = |key: usize| self.factor(sample, [head, window, query, key], &windows);
                    visit(&Row {
                        sample,
                        head,
                        query,
                        tokens: &tokens,
                        voxel,
                        p: logits.iter().map(|x| (x - log).exp()).collect(),
                        factors: (0..tokens.len()).map(factor).collect(),
                        log,
                    });
                }
            }
        }
    }

    fn factor(&self, sample: usize, [head, window, query, key]: [usize; 4], windows: &AttentionWindows) -> f64 {
        let Some(noise) = self.noise else { return 1.0 };
        let sample = noise.first_sample.wrapping_add(sample as u32);
        let counter = self.op.counter(sample, [head, window, query, key / 4], windows);
        let random = philox(counter.map(|word| [word]), noise.key)[key % 4][0];
        if random < self.op.threshold() { 0.0 } else { f64::from(self.op.kept_scale()) }
    }
}

impl Rule for WindowAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(NAME, inputs.len(), self.operands())?;
        self.expect(NAME, inputs)?;
        let shape = &inputs[0].shape;
        let o = Shape::volume(shape.batch(), shape.channels() / 3, shape.spatial());
        Ok(vec![Signature::volume(o, inputs[0].dtype), Signature::table(logarithms(shape, self.heads))])
    }

    fn gradient(&self, tape: &mut Tape<'_>, node: &Node) -> Result<(), GraphError> {
        if upstream(tape, node, 1).is_some() {
            return Err(GraphError::NoGradient { op: NAME, operand: "its operands, from the logarithms" });
        }
        let Some(d_o) = upstream(tape, node, 0) else { return Ok(()) };
        let operands: Vec<TensorId> = [d_o, node.outputs[1]].into_iter().chain(node.inputs.clone()).collect();
        let gradients = tape.push(WindowAttentionGrad { of: *self }, &operands)?;
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
        let operands = Operands::new(*self, inputs);
        let (mut o, mut logs) = (Array::zeros(results[0].clone()), Array::zeros(results[1].clone()));
        operands.for_each_row(|row| {
            for d in 0..operands.head_channels {
                let channel = operands.channel(Part::Value, row.head, d);
                let value = |key: usize| operands.value(row.sample, row.tokens[key], channel);
                let sum = (0..row.p.len()).map(|key| row.p[key] * row.factors[key] * value(key)).sum();
                let to = o.plane(row.sample, row.head * operands.head_channels + d) + row.voxel;
                o.data[to] = sum;
            }
            let to = logs.plane(row.sample, row.head) + row.voxel;
            logs.data[to] = row.log;
        });
        vec![o, logs]
    }
}

impl Rule for WindowAttentionGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 2 + self.of.operands())?;
        self.of.expect(GRAD, &inputs[2..])?;
        let qkv = inputs[2];
        let o = Shape::volume(qkv.shape.batch(), qkv.shape.channels() / 3, qkv.shape.spatial());
        expect_like(GRAD, "the gradient", inputs[0], &TensorInfo { shape: o, ..qkv.clone() })?;
        expect_table(GRAD, "the logarithms", inputs[1], &logarithms(&qkv.shape, self.of.heads))?;
        let mut results = vec![Signature::like(qkv), Signature::like(inputs[3])];
        if self.of.padded_bias {
            results.push(Signature::new(Shape(vec![qkv.shape.channels()]), Kind::Channels));
        }
        Ok(results)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let flops = self.of.products(&inputs[2].shape).saturating_mul(10);
        Cost { flops, ..Cost::streaming(inputs, outputs) }
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let operands = Operands::new(self.of, &inputs[2..]);
        let (d_o, positions) = (inputs[0], self.of.positions());
        let scale = self.of.scale(operands.head_channels);
        let mut dqkv = Array::zeros(results[0].clone());
        let mut dtable = Array::zeros(results[1].clone());
        let mut dbias = Array::zeros(Shape(vec![3 * operands.channels]));
        operands.for_each_row(|row| {
            let upstream =
                |d: usize| d_o.data[d_o.plane(row.sample, row.head * operands.head_channels + d) + row.voxel];
            let value = |token: usize, part: Part, d: usize| {
                operands.value(row.sample, row.tokens[token], operands.channel(part, row.head, d))
            };
            let channels = 0..operands.head_channels;
            let dp = |key: usize| -> f64 {
                let products = channels.clone().map(|d| upstream(d) * value(key, Part::Value, d));
                row.factors[key] * products.sum::<f64>()
            };
            let dp: Vec<f64> = (0..row.p.len()).map(dp).collect();
            let delta: f64 = row.p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
            for (key, dp) in dp.iter().enumerate() {
                let ds = row.p[key] * (dp - delta);
                dtable.data[positions.row(row.query, key) * self.of.heads + row.head] += ds;
                for d in channels.clone() {
                    let mut add = |token: usize, part: Part, more: f64| {
                        let channel = operands.channel(part, row.head, d);
                        match row.tokens[token].voxel {
                            Some(voxel) => {
                                let to = dqkv.plane(row.sample, channel) + voxel;
                                dqkv.data[to] += more;
                            }
                            None => dbias.data[channel] += more,
                        }
                    };
                    add(row.query, Part::Query, scale * ds * value(key, Part::Key, d));
                    add(key, Part::Key, scale * ds * value(row.query, Part::Query, d));
                    add(key, Part::Value, row.p[key] * row.factors[key] * upstream(d));
                }
            }
        });
        match self.of.padded_bias {
            true => vec![dqkv, dtable, dbias],
            false => vec![dqkv, dtable],
        }
    }
}
