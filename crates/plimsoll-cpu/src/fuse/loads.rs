//! Normalisation and activation, fused into what reads their result: convolutions, ends of residual blocks, global means and gates.
//!
//! Only the raw result y of a convolution is stored, not the normalised, activated z computed from it: an op that reads
//! z reads y instead and normalises each value as it loads it, with the same arithmetic and so with the same bits. z
//! remains if another op reads it.

use std::collections::HashMap;
use std::ops::Range;

use plimsoll_graph::{DType, Program, Role, TensorId};
use plimsoll_plan::fusing::{Updates, union};

use super::{FusedNode, FusedOp};
use crate::ops::{Load, NormAct, ResidualAct};

/// Fuses every [`NormAct`] whose result only such ops read into them.
pub(super) fn fuse(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let inlined = inlined(program, updates, &nodes);
    let is_inlined =
        |node: &FusedNode| matches!(node.op, FusedOp::NormAct(_)) && inlined.contains_key(&node.outputs[0]);
    let kept = nodes.iter().filter(|node| !is_inlined(node)).cloned();
    kept.map(|node| inline(node, &inlined)).collect()
}

/// The inlined nodes, by what they make.
type Inlined<'a> = HashMap<TensorId, (NormAct, &'a FusedNode)>;

fn inlined<'a>(program: &Program, updates: &Updates, nodes: &'a [FusedNode]) -> Inlined<'a> {
    let mut made_by: Inlined<'a> = nodes
        .iter()
        .filter_map(|node| match node.op {
            FusedOp::NormAct(norm) if program.tensor(node.outputs[0]).role == Role::Intermediate => {
                Some((node.outputs[0], (norm, node)))
            }
            _ => None,
        })
        .collect();
    for node in nodes {
        // Each source is one operand so far.
        let sources = sources(&node.op);
        for (place, id) in node.inputs.iter().enumerate() {
            let Some((_, norm)) = made_by.get(id) else { continue };
            // What is summed is not rounded, as it would be if it were stored: in f32 there is nothing to round.
            let sums = matches!(node.op, FusedOp::ResidualAct(_) | FusedOp::ResidualActGrad(_));
            let rounds = sums && program.tensor(*id).dtype != DType::F32;
            if rounds || !sources.contains(&place) || !updates.allow(program, &union([*norm, node]), node.at)
            {
                made_by.remove(id);
            }
        }
    }
    made_by
}

/// The places of an op's sources among its operands, none of which is read through a load yet.
fn sources(op: &FusedOp) -> Range<usize> {
    match op {
        FusedOp::Conv(conv) => 0..conv.loads.len(),
        FusedOp::Transpose(_) => 0..1,
        FusedOp::WeightGrad(grad) => 0..grad.loads.len() + 1,
        FusedOp::ResidualAct(act) => shortcut(act, 0),
        FusedOp::Squeeze(squeeze) => squeeze.of.source()..squeeze.of.source() + 1,
        FusedOp::GateSum(_) => 0..1,
        FusedOp::ResidualActGrad(grad) => shortcut(&grad.act, 1),
        _ => 0..0,
    }
}

/// The place of a shortcut that is read as it is, of operands from `first` on.
fn shortcut(act: &ResidualAct, first: usize) -> Range<usize> {
    let place = first + act.shortcut_operand();
    if act.shortcut == Load::Plain { place..place + 1 } else { 0..0 }
}

/// The load of a source, by its number among the sources.
fn load_mut(op: &mut FusedOp, source: usize) -> Option<&mut Load> {
    match op {
        FusedOp::Conv(conv) => conv.loads.get_mut(source),
        FusedOp::Transpose(transpose) => Some(&mut transpose.load),
        FusedOp::WeightGrad(grad) => match grad.loads.get_mut(source) {
            Some(load) => Some(load),
            None => Some(&mut grad.result_load),
        },
        FusedOp::ResidualAct(act) => Some(&mut act.shortcut),
        FusedOp::Squeeze(squeeze) => Some(&mut squeeze.load),
        FusedOp::GateSum(sum) => Some(&mut sum.load),
        FusedOp::ResidualActGrad(grad) => Some(&mut grad.act.shortcut),
        _ => None,
    }
}

fn inline(node: FusedNode, inlined: &Inlined<'_>) -> FusedNode {
    let sources = sources(&node.op);
    let mut op = node.op.clone();
    let mut inputs = Vec::with_capacity(node.inputs.len());
    let mut covered = vec![&node];
    for (place, id) in node.inputs.iter().enumerate() {
        let from = inlined.get(id).filter(|_| sources.contains(&place));
        match from.and_then(|from| Some((from, load_mut(&mut op, place - sources.start)?))) {
            Some(((norm, from), load)) => {
                *load = Load::NormAct(*norm);
                inputs.extend(&from.inputs);
                covered.push(from);
            }
            None => inputs.push(*id),
        }
    }
    FusedNode { op, at: node.at, covers: union(covered), inputs, outputs: node.outputs }
}
