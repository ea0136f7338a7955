//! Folding heads into what reads their logits, where nothing else does.

use plimsoll_graph::ops::{Head, HeadCounts, HeadGrad, HeadStats, Loss};
use plimsoll_graph::{Node, NodeId, Op, Program, Role, TensorId};

/// The program with every head folded whose logits only sums, counts and the loss's gradient read.
pub(crate) fn fold_heads(program: Program) -> Program {
    let heads: Vec<NodeId> =
        (0..program.nodes.len()).filter(|node| matches!(program.nodes[*node].op, Op::Conv(_))).collect();
    let mut slots: Vec<Option<Node>> = program.nodes.iter().cloned().map(Some).collect();
    for at in heads {
        if let Some(readers) = Readers::of(&program, at) {
            readers.fold(&program, &mut slots);
        }
    }
    Program { nodes: slots.into_iter().flatten().collect(), ..program }
}

/// A head, and all that reads its logits.
struct Readers {
    at: NodeId,
    head: Head,
    sums: Vec<NodeId>,
    losses: Vec<NodeId>,
    back: Option<Back>,
}

/// The gradient of the logits, and all that reads it.
struct Back {
    gradient: NodeId,
    loss: Loss,
    map: NodeId,
    weights: NodeId,
    bias: Option<NodeId>,
}

fn readers(program: &Program, id: TensorId) -> impl Iterator<Item = NodeId> + '_ {
    (0..program.nodes.len()).filter(move |node| program.nodes[*node].inputs.contains(&id))
}

impl Readers {
    fn of(program: &Program, at: NodeId) -> Option<Readers> {
        let Op::Conv(conv) = &program.nodes[at].op else { return None };
        let head = Head::of(conv)?;
        let logits = program.nodes[at].outputs[0];
        if program.tensor(logits).role != Role::Intermediate {
            return None;
        }
        let (mut sums, mut losses, mut gradients) = (Vec::new(), Vec::new(), Vec::new());
        for reader in readers(program, logits) {
            match &program.nodes[reader].op {
                Op::SoftmaxStats(_) | Op::HardCounts(_) => sums.push(reader),
                Op::CompositeLoss(_) => losses.push(reader),
                Op::CompositeLossGrad(_) => gradients.push(reader),
                _ => return None,
            }
        }
        let back = match gradients[..] {
            [] => None,
            [gradient] => Some(Back::of(program, gradient, &head, &program.nodes[at])?),
            _ => return None,
        };
        Some(Readers { at, head, sums, losses, back })
    }

    fn fold(&self, program: &Program, slots: &mut [Option<Node>]) {
        let own = &program.nodes[self.at].inputs;
        let with = |rest: &[TensorId]| own.iter().chain(rest).copied().collect::<Vec<TensorId>>();
        slots[self.at] = None;
        for reader in &self.sums {
            let Node { op, inputs, outputs } = program.nodes[*reader].clone();
            let op = match op {
                Op::SoftmaxStats(stats) => HeadStats { head: self.head, stats }.into(),
                Op::HardCounts(counts) => HeadCounts { head: self.head, counts }.into(),
                other => other,
            };
            slots[*reader] = Some(Node { op, inputs: with(&inputs[1..]), outputs });
        }
        for loss in &self.losses {
            // Its gradient, for which it names the logits, is folded as well.
            if let Some(loss) = &mut slots[*loss] {
                loss.inputs.truncate(1);
            }
        }
        let Some(back) = &self.back else { return };
        let node = |at: NodeId| &program.nodes[at];
        let Op::ConvTranspose(transposed) = &node(back.map).op else { return };
        let accumulate = transposed.accumulate;
        let mut inputs = with(&node(back.gradient).inputs[1..]);
        if accumulate {
            inputs.extend(node(back.map).inputs.last());
        }
        let all = [Some(back.map), Some(back.weights), back.bias];
        let outputs = all.into_iter().flatten().map(|at| node(at).outputs[0]).collect();
        for at in all.into_iter().flatten().chain([back.gradient]) {
            slots[at] = None;
        }
        let op = HeadGrad { head: self.head, loss: back.loss.clone(), accumulate }.into();
        // The three stand together; what the last of them waits for is there when the first begins.
        let first = all.into_iter().flatten().min().unwrap_or(back.gradient);
        slots[first] = Some(Node { op, inputs, outputs });
    }
}

impl Back {
    fn of(program: &Program, gradient: NodeId, head: &Head, conv: &Node) -> Option<Back> {
        let Op::CompositeLossGrad(op) = &program.nodes[gradient].op else { return None };
        let made = program.nodes[gradient].outputs[0];
        let weights_place = head.load.operands();
        let (mut map, mut weights, mut bias) = (None, None, None);
        for reader in readers(program, made) {
            let node = &program.nodes[reader];
            match &node.op {
                Op::ConvTranspose(_) if node.inputs[1] == conv.inputs[weights_place] => map = Some(reader),
                Op::ConvWeightGrad(grad)
                    if grad.loads == [head.load]
                        && node.inputs[..weights_place] == conv.inputs[..weights_place] =>
                {
                    weights = Some(reader);
                }
                Op::ChannelSum(_) if head.bias => bias = Some(reader),
                _ => return None,
            }
        }
        let back = Back { gradient, loss: op.loss.clone(), map: map?, weights: weights?, bias };
        let added_to = match &program.nodes[back.map].op {
            Op::ConvTranspose(op) if op.accumulate => program.nodes[back.map].inputs.last().copied(),
            _ => None,
        };
        // What the gradient is added to must be there when the first of the three begins.
        let all = [Some(back.map), Some(back.weights), back.bias];
        let first = all.into_iter().flatten().min()?;
        let last = all.into_iter().flatten().max()?;
        let made_between = program.nodes[first..last]
            .iter()
            .any(|node| added_to.is_some_and(|id| node.outputs.contains(&id)));
        (back.bias.is_some() == head.bias && !made_between).then_some(back)
    }
}
