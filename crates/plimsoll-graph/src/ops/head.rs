//! Heads whose logits are never held: a tile of them is made, used and forgotten.
//!
//! Programs are written with a convolution that makes logits, [`SoftmaxStats`], [`HardCounts`] and [`CompositeLossGrad`]. Where
//! nothing else reads the logits, the planner folds the convolution into these. Logits of many classes would take more
//! memory than the map that they are made of, and making them again costs next to nothing beside the network.

use serde::{Deserialize, Serialize};

use super::{
    ChannelSum, CompositeLossGrad, Conv, ConvTranspose, ConvWeightGrad, HardCounts, Load, Loss, SoftmaxStats,
};
use crate::op::{expect_shape, expect_volume};
use crate::{
    Array, Cost, GraphError, Kind, Recompute, Role, Rule, Shape, Side, Signature, TensorInfo, Window,
};

/// A convolution 1×1×1 from one map to logits. Operands: the map with what its load takes, weights, and where `bias`, a bias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// How the map is read.
    pub load: Load,
    /// Whether a bias is added.
    pub bias: bool,
}

/// [`SoftmaxStats`] of a head's logits. Operands: those of the head, labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadStats {
    /// The head.
    pub head: Head,
    /// The sums.
    pub stats: SoftmaxStats,
}

/// [`HardCounts`] of a head's logits. Operands: those of the head, labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadCounts {
    /// The head.
    pub head: Head,
    /// The counts.
    pub counts: HardCounts,
}

/// The gradients of a loss of a head's logits. Operands: those of the head, labels, the sums, the gradient of the loss, and where
/// `accumulate`, a volume like the map, to which its gradient is added. Results: the gradients of the map (as read), of the
/// weights and, where there is one, of the bias.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadGrad {
    /// The head.
    pub head: Head,
    /// The loss.
    pub loss: Loss,
    /// Whether the map's gradient is added to a volume that is given.
    pub accumulate: bool,
}

impl Head {
    /// The head of a convolution, if it is one.
    pub fn of(conv: &Conv) -> Option<Head> {
        let [load] = conv.loads[..] else { return None };
        let head = Head { load, bias: conv.bias };
        (*conv == head.conv()).then_some(head)
    }

    /// The convolution that makes its logits.
    pub fn conv(&self) -> Conv {
        Conv { loads: vec![self.load], ..Conv::new(Window::point(), 1, self.bias, Side::Image) }
    }

    /// How many operands it takes.
    pub fn operands(&self) -> usize {
        self.load.operands() + 1 + usize::from(self.bias)
    }

    /// The logits' description.
    fn infer(&self, op: &'static str, inputs: &[&TensorInfo]) -> Result<TensorInfo, GraphError> {
        let Some(own) = inputs.get(..self.operands()) else {
            let expected = format!("{} and more", self.operands());
            return Err(GraphError::OperandCount { op, expected, found: inputs.len() });
        };
        let Signature { shape, dtype, kind } = self.conv().infer(own)?.remove(0);
        Ok(TensorInfo { name: "logits".into(), shape, dtype, role: Role::Intermediate, kind })
    }

    fn logits(&self, inputs: &[&Array]) -> Array {
        let own = &inputs[..self.operands()];
        let (map, weights) = (&own[0].shape, &own[self.load.operands()].shape);
        let shape = Shape::volume(map.batch(), weights.dim(0), map.spatial());
        self.conv().evaluate(own, &[shape]).remove(0)
    }

    fn cost(&self, passes: u64, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        let (map, weights) = (inputs[0], inputs[self.load.operands()]);
        let flops = 2 * map.shape.count() as u64 * weights.shape.dim(0) as u64;
        Cost { flops: passes * flops, ..Cost::streaming(inputs, outputs) }
    }
}

const STATS: &str = "head_stats";
const COUNTS: &str = "head_counts";
const GRAD: &str = "head_grad";

impl Rule for HeadStats {
    fn name(&self) -> &'static str {
        STATS
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let logits = self.head.infer(STATS, inputs)?;
        let mut operands = vec![&logits];
        operands.extend(&inputs[self.head.operands()..]);
        self.stats.infer(&operands)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        self.head.cost(1, inputs, outputs)
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        self.stats.evaluate(&[&self.head.logits(inputs), inputs[self.head.operands()]], results)
    }
}

impl Rule for HeadCounts {
    fn name(&self) -> &'static str {
        COUNTS
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let logits = self.head.infer(COUNTS, inputs)?;
        let mut operands = vec![&logits];
        operands.extend(&inputs[self.head.operands()..]);
        self.counts.infer(&operands)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        self.head.cost(1, inputs, outputs)
    }

    fn recompute(&self) -> Recompute {
        Recompute::Never
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        self.counts.evaluate(&[&self.head.logits(inputs), inputs[self.head.operands()]], results)
    }
}

impl HeadGrad {
    /// The convolution's gradients that it stands for: of the map and of the weights, as written with plain loads of the
    /// gradient of the logits.
    pub fn convolutions(&self, channels: usize, output: [usize; 3]) -> (ConvTranspose, ConvWeightGrad) {
        let transposed = ConvTranspose {
            load: Load::Plain,
            first_channel: 0,
            channels,
            output,
            to: Side::Features,
            bias: false,
            accumulate: self.accumulate,
            window: Window::point(),
            groups: 1,
        };
        let weights = ConvWeightGrad {
            window: Window::point(),
            groups: 1,
            loads: vec![self.head.load],
            result_load: Load::Plain,
            from: Side::Features,
            to: Side::Image,
        };
        (transposed, weights)
    }
}

impl Rule for HeadGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        let logits = self.head.infer(GRAD, inputs)?;
        let own = self.head.operands();
        let expected = own + 3 + usize::from(self.accumulate);
        if inputs.len() != expected {
            let (expected, found) = (expected.to_string(), inputs.len());
            return Err(GraphError::OperandCount { op: GRAD, expected, found });
        }
        let loss = CompositeLossGrad { loss: self.loss.clone() };
        loss.infer(&[&logits, inputs[own], inputs[own + 1], inputs[own + 2]])?;
        expect_volume(GRAD, "the map", inputs[0])?;
        if self.accumulate {
            expect_shape(GRAD, "what the gradient is added to", &inputs[own + 3].shape, &inputs[0].shape)?;
        }
        let weights = inputs[self.head.load.operands()];
        let mut results = vec![Signature::like(inputs[0]), Signature::like(weights)];
        if self.head.bias {
            results.push(Signature::new(Shape(vec![weights.shape.dim(0)]), Kind::Channels));
        }
        Ok(results)
    }

    fn cost(&self, inputs: &[&TensorInfo], outputs: &[&TensorInfo]) -> Cost {
        self.head.cost(3, inputs, outputs)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        if self.accumulate { vec![(0, self.head.operands() + 3)] } else { Vec::new() }
    }

    fn recompute(&self) -> Recompute {
        Recompute::Dear
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (own, weights) = (self.head.operands(), self.head.load.operands());
        let logits = self.head.logits(inputs);
        let loss = CompositeLossGrad { loss: self.loss.clone() };
        let operands = [&logits, inputs[own], inputs[own + 1], inputs[own + 2]];
        let gradient = loss.evaluate(&operands, std::slice::from_ref(&logits.shape)).remove(0);
        let (transposed, of_weights) = self.convolutions(results[0].channels(), results[0].spatial());
        let mut operands = vec![&gradient, inputs[weights]];
        operands.extend(inputs.get(own + 3));
        let mut all = transposed.evaluate(&operands, &results[..1]);
        let mut operands = inputs[..weights].to_vec();
        operands.push(&gradient);
        all.extend(of_weights.evaluate(&operands, &results[1..2]));
        if self.head.bias {
            all.extend(ChannelSum.evaluate(&[&gradient], &results[2..]));
        }
        all
    }
}
