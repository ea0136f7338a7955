//! Normalisation and activation, fused into the convolutions that read their result.
//!
//! Of a convolution's raw result y and the normalised, activated z computed from it, only y is held: whoever reads z in a
//! convolution reads y instead and normalises on the way in, with the same arithmetic and so with the same bits. z remains
//! where something else reads it.

use std::collections::HashMap;

use plimsoll_graph::{Program, Role, TensorId};

use super::{FusedNode, FusedOp, Updates, union};
use crate::ops::{Load, NormAct};

/// Fuses every [`NormAct`] whose result only convolutions read into them.
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
        // Convolutions have their sources first, each one operand so far.
        let sources = loads(&node.op).len();
        for (place, id) in node.inputs.iter().enumerate() {
            let Some((_, norm)) = made_by.get(id) else { continue };
            if place >= sources || !updates.allow(program, &union([*norm, node]), node.at) {
                made_by.remove(id);
            }
        }
    }
    made_by
}

/// The loads of an op, in the order of its sources.
fn loads(op: &FusedOp) -> Vec<Load> {
    match op {
        FusedOp::Conv(conv) => conv.loads.clone(),
        FusedOp::Transpose(transpose) => vec![transpose.load],
        FusedOp::WeightGrad(grad) => grad.loads.iter().copied().chain([grad.result_load]).collect(),
        _ => Vec::new(),
    }
}

fn inline(node: FusedNode, inlined: &Inlined<'_>) -> FusedNode {
    let mut loads = loads(&node.op);
    let mut inputs = Vec::with_capacity(node.inputs.len());
    let mut covered = vec![&node];
    for (place, id) in node.inputs.iter().enumerate() {
        match (inlined.get(id), loads.get_mut(place)) {
            (Some((norm, from)), Some(load)) => {
                *load = Load::NormAct(*norm);
                inputs.extend(&from.inputs);
                covered.push(from);
            }
            _ => inputs.push(*id),
        }
    }
    let covers = union(covered);
    let (mut op, at) = (node.op, node.at);
    match &mut op {
        FusedOp::Conv(conv) => conv.loads = loads,
        FusedOp::Transpose(transpose) => loads.iter().for_each(|load| transpose.load = *load),
        FusedOp::WeightGrad(grad) => {
            if let Some((result, sources)) = loads.split_last() {
                (grad.loads, grad.result_load) = (sources.to_vec(), *result);
            }
        }
        _ => {}
    }
    FusedNode { op, at, covers, inputs, outputs: node.outputs }
}
