//! Gated maps that are summed: the gate, the sum and its activation in one pass.
//!
//! A squeeze-and-excitation block ends with lrelu(gate · map + shortcut). Its gradient by the map is gate · gradient plus the
//! gradient of a global mean, which is one number for each channel of a sample and is never stored as a map.

use plimsoll_graph::ops::LeakyRelu;
use plimsoll_graph::{Op, Program, TensorId};
use plimsoll_plan::fusing::{Readers, Updates, union};

use super::{FusedNode, FusedOp};
use crate::ops::{FusedSqueeze, GateSum, Load, Squeeze, Summand};

/// A sum of which one summand is a gated map that nothing else reads.
struct GatedSum {
    /// The places of the fused nodes, the last of which the result is written by.
    covers: Vec<usize>,
    op: GateSum,
    inputs: Vec<TensorId>,
}

impl GatedSum {
    fn find(program: &Program, nodes: &[FusedNode], readers: &Readers, at: usize) -> Option<GatedSum> {
        let FusedOp::Plain(Op::Add(_)) = nodes[at].op else { return None };
        let [first, second] = nodes[at].inputs[..] else { return None };
        let maker = |id: TensorId| {
            let is_inner = readers.only(program, id) == Some(at);
            nodes[..at].iter().rposition(|node| node.outputs == [id]).filter(|_| is_inner)
        };
        let gate = |id| {
            let of_gate = FusedSqueeze { of: Squeeze::Gate, load: Load::Plain };
            maker(id).filter(|place| matches!(nodes[*place].op, FusedOp::Squeeze(op) if op == of_gate))
        };
        let (gate, other) = match (gate(first), gate(second)) {
            (Some(gate), _) => (gate, second),
            (None, Some(gate)) => (gate, first),
            (None, None) => return None,
        };
        let mean =
            maker(other).filter(|place| matches!(nodes[*place].op, FusedOp::Plain(Op::GlobalMeanGrad(_))));
        let (summand, input) = match mean {
            Some(mean) => (Summand::Mean, nodes[mean].inputs[0]),
            None => (Summand::Map, other),
        };
        let act = readers.only(program, nodes[at].outputs[0]).and_then(|reader| match nodes[reader].op {
            FusedOp::Plain(Op::LeakyRelu(LeakyRelu { slope })) => Some((reader, slope)),
            _ => None,
        });
        let covers = [gate].into_iter().chain(mean).chain([at]).chain(act.map(|(place, _)| place));
        let op = GateSum { load: Load::Plain, summand, slope: act.map_or(1.0, |(_, slope)| slope) };
        let inputs = nodes[gate].inputs.iter().copied().chain([input]).collect();
        Some(GatedSum { covers: covers.collect(), op, inputs })
    }
}

/// Fuses every gated map that is summed with what it is added to.
pub(super) fn fuse(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let readers = Readers::new(program, &nodes);
    let mut kept: Vec<Option<FusedNode>> = nodes.iter().cloned().map(Some).collect();
    for at in 0..nodes.len() {
        let Some(sum) = GatedSum::find(program, &nodes, &readers, at) else { continue };
        let covers = union(sum.covers.iter().map(|place| &nodes[*place]));
        let Some(last) = sum.covers.last().copied() else { continue };
        if !updates.allow(program, &covers, nodes[last].at) {
            continue;
        }
        sum.covers.iter().for_each(|place| kept[*place] = None);
        let (at, outputs) = (nodes[last].at, nodes[last].outputs.clone());
        kept[last] =
            Some(FusedNode { op: FusedOp::GateSum(sum.op), at, covers, inputs: sum.inputs, outputs });
    }
    kept.into_iter().flatten().collect()
}
