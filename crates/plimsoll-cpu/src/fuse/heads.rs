//! Fusing heads with what reads their logits, where nothing else does.
//!
//! Logits of many classes would take more memory than the map that they are computed from, and recomputing them costs next to
//! nothing beside the network: so a tile of them is computed, used and overwritten.

use plimsoll_graph::ops::{ConvTranspose, Loss};
use plimsoll_graph::{Op, Program, Role, TensorId, Window};
use plimsoll_plan::fusing::{Readers, Updates, union};

use super::{FusedNode, FusedOp};
use crate::layout::rule::VolumeRule;
use crate::lower::{Lower, NodeOperands};
use crate::ops::head::{Head, HeadCounts, HeadGrad, HeadStats};

/// Fuses every head whose logits only sums, counts and the loss's gradient read.
pub(super) fn fuse(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let readers = Readers::new(program, &nodes);
    let mut kept: Vec<Option<FusedNode>> = nodes.iter().cloned().map(Some).collect();
    for at in 0..nodes.len() {
        if let Some(fan) = Fan::find(program, &nodes, &readers, at)
            && fan.is_allowed(program, updates, &nodes)
        {
            fan.fuse(&nodes, &mut kept);
        }
    }
    kept.into_iter().flatten().collect()
}

/// A head, and all that reads its logits.
struct Fan {
    at: usize,
    head: Head,
    sums: Vec<usize>,
    back: Option<Back>,
}

/// The gradient of the logits, and all that reads it.
struct Back {
    gradient: usize,
    loss: Loss,
    map: usize,
    weights: usize,
    bias: Option<usize>,
}

/// The head that a node is: a convolution 1×1×1 of one map to f32.
fn head_of(program: &Program, node: &FusedNode) -> Option<Head> {
    let FusedOp::Conv(fused) = &node.op else { return None };
    let [load] = fused.loads[..] else { return None };
    let is_point = fused.conv.window == Window::point() && fused.conv.groups == 1;
    let of = NodeOperands { program, node: program.nodes.get(node.at)? };
    let to_rows = matches!(fused.conv.volumes(&of), VolumeRule::Conv { point: true, .. });
    (is_point && to_rows).then_some(Head { load, bias: fused.conv.bias })
}

impl Fan {
    fn find(program: &Program, nodes: &[FusedNode], readers: &Readers, at: usize) -> Option<Fan> {
        let head = head_of(program, &nodes[at])?;
        let logits = nodes[at].outputs[0];
        if program.tensor(logits).role != Role::Intermediate {
            return None;
        }
        let (mut sums, mut gradients) = (Vec::new(), Vec::new());
        for reader in readers.get(logits) {
            match &nodes[*reader].op {
                FusedOp::Plain(Op::SoftmaxStats(_) | Op::HardCounts(_)) => sums.push(*reader),
                FusedOp::Plain(Op::CompositeLossGrad(_)) => gradients.push(*reader),
                _ => return None,
            }
        }
        let back = match gradients[..] {
            [] => None,
            [gradient] => Some(Back::find(program, nodes, readers, gradient, &head, &nodes[at])?),
            _ => return None,
        };
        (!sums.is_empty() || back.is_some()).then_some(Fan { at, head, sums, back })
    }

    /// Returns `true` if all nodes still read the same values if they run as one.
    fn is_allowed(&self, program: &Program, updates: &Updates, nodes: &[FusedNode]) -> bool {
        let head = &nodes[self.at];
        let sums = self.sums.iter().map(|sum| (union([head, &nodes[*sum]]), *sum));
        let back = self.back.iter().map(|back| {
            let all = back.all().chain([back.gradient]).map(|at| &nodes[at]);
            (union(all.chain([head])), back.first())
        });
        sums.chain(back).all(|(covers, at)| updates.allow(program, &covers, nodes[at].at))
    }

    fn fuse(&self, nodes: &[FusedNode], kept: &mut [Option<FusedNode>]) {
        let own = &nodes[self.at];
        let with = |rest: &[TensorId]| own.inputs.iter().chain(rest).copied().collect::<Vec<TensorId>>();
        kept[self.at] = None;
        for reader in &self.sums {
            let node = &nodes[*reader];
            let op = match &node.op {
                FusedOp::Plain(Op::SoftmaxStats(stats)) => {
                    FusedOp::HeadStats(HeadStats { head: self.head, stats: stats.clone() })
                }
                FusedOp::Plain(Op::HardCounts(counts)) => {
                    FusedOp::HeadCounts(HeadCounts { head: self.head, counts: *counts })
                }
                other => other.clone(),
            };
            let (covers, inputs) = (union([own, node]), with(&node.inputs[1..]));
            kept[*reader] =
                Some(FusedNode { op, at: node.at, covers, inputs, outputs: node.outputs.clone() });
        }
        let Some(back) = &self.back else { return };
        let mut inputs = with(&nodes[back.gradient].inputs[1..]);
        let added = back.added_to(nodes);
        inputs.extend(added);
        let all: Vec<usize> = back.all().collect();
        let outputs = all.iter().map(|at| nodes[*at].outputs[0]).collect();
        let fused = all.iter().chain([&back.gradient, &self.at]).map(|at| &nodes[*at]);
        let covers = union(fused);
        // The three stand together; what the last of them waits for is there when the first begins.
        let first = back.first();
        let at = nodes[first].at;
        for at in all.into_iter().chain([back.gradient]) {
            kept[at] = None;
        }
        let op = HeadGrad { head: self.head, loss: back.loss.clone(), added: added.is_some() };
        kept[first] = Some(FusedNode { op: FusedOp::HeadGrad(op), at, covers, inputs, outputs });
    }
}

impl Back {
    fn find(
        program: &Program,
        nodes: &[FusedNode],
        readers: &Readers,
        gradient: usize,
        head: &Head,
        conv: &FusedNode,
    ) -> Option<Back> {
        let FusedOp::Plain(Op::CompositeLossGrad(op)) = &nodes[gradient].op else { return None };
        let made = nodes[gradient].outputs[0];
        if program.tensor(made).role != Role::Intermediate {
            return None;
        }
        let weights_place = head.load.operands();
        let (mut map, mut weights, mut bias) = (None, None, None);
        let read = program.tensor(conv.inputs[0]);
        // All of it, stored as it is.
        let is_gradient_of_map = |back: &ConvTranspose| {
            back.window == Window::point()
                && !back.bias
                && (back.channels, back.dtype) == (read.shape.channels(), read.dtype)
        };
        for reader in readers.get(made) {
            let node = &nodes[*reader];
            match &node.op {
                FusedOp::Transpose(transpose)
                    if map.is_none()
                        && node.inputs[1] == conv.inputs[weights_place]
                        && is_gradient_of_map(&transpose.conv) =>
                {
                    map = Some(*reader);
                }
                FusedOp::WeightGrad(grad)
                    if weights.is_none()
                        && grad.loads == [head.load]
                        && (grad.grad.window, grad.grad.groups) == (Window::point(), 1)
                        && node.inputs[..weights_place] == conv.inputs[..weights_place] =>
                {
                    weights = Some(*reader);
                }
                FusedOp::Plain(Op::ChannelSum(_)) if head.bias && bias.is_none() => bias = Some(*reader),
                _ => return None,
            }
        }
        let back = Back { gradient, loss: op.loss.clone(), map: map?, weights: weights?, bias };
        // What the gradient is added to must be there when the first of the three begins.
        let first = back.first();
        let last = back.all().fold(0, usize::max);
        let added_to = back.added_to(nodes);
        let made_between =
            nodes[first..last].iter().any(|node| added_to.is_some_and(|id| node.outputs.contains(&id)));
        (back.bias.is_some() == head.bias && !made_between).then_some(back)
    }

    /// The gradients by the map, the weights and the bias, in this order.
    fn all(&self) -> impl Iterator<Item = usize> {
        [Some(self.map), Some(self.weights), self.bias].into_iter().flatten()
    }

    /// The place of the first of these.
    fn first(&self) -> usize {
        self.all().fold(self.map, usize::min)
    }

    /// The tensor that the gradient of the map is added to.
    fn added_to(&self, nodes: &[FusedNode]) -> Option<TensorId> {
        match &nodes[self.map].op {
            FusedOp::Transpose(transpose) if transpose.added => nodes[self.map].inputs.last().copied(),
            _ => None,
        }
    }
}
