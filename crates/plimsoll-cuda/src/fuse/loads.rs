//! Normalisation and activation, fused into the convolutions that read their result.
//!
//! Only the raw result y of a convolution is stored, not the normalised, activated z computed from it: an op that reads
//! z reads y instead and normalises the values it has staged, with the same arithmetic and so with the same bits. z
//! remains if another op reads it.

use std::collections::HashMap;

use plimsoll_graph::{Op, Program, Role, TensorId};
use plimsoll_plan::fusing::{Updates, union};

use super::{FusedNode, FusedOp, context};
use crate::Architecture;
use crate::ops::{FusedConv, FusedTranspose, FusedWeightGrad, NormAct, normalises_channels};

/// Fuses every [`NormAct`] whose result is read by nothing but sources of convolutions on tensor cores.
pub(super) fn fuse<'p>(
    program: &'p Program,
    architecture: Architecture,
    updates: &Updates,
    nodes: Vec<FusedNode<'p>>,
) -> Vec<FusedNode<'p>> {
    let inlined = inlined(program, architecture, updates, &nodes);
    let is_inlined = |node: &FusedNode<'_>| {
        matches!(node.op, FusedOp::NormAct(_)) && inlined.contains_key(&node.outputs[0])
    };
    nodes.iter().filter(|node| !is_inlined(node)).map(|node| inline(node, &inlined)).collect()
}

/// The inlined nodes, by what they make.
type Inlined<'n, 'p> = HashMap<TensorId, (NormAct, &'n FusedNode<'p>)>;

fn inlined<'n, 'p>(
    program: &Program,
    architecture: Architecture,
    updates: &Updates,
    nodes: &'n [FusedNode<'p>],
) -> Inlined<'n, 'p> {
    let candidate = |node: &'n FusedNode<'p>| {
        let FusedOp::NormAct(norm) = node.op else { return None };
        let made = program.tensor(node.outputs[0]);
        let fits = made.role == Role::Intermediate && normalises_channels(made.shape.channels());
        fits.then_some((node.outputs[0], (norm, node)))
    };
    let mut made_by: Inlined<'_, '_> = nodes.iter().filter_map(candidate).collect();
    for node in nodes {
        if !node.inputs.iter().any(|id| made_by.contains_key(id)) {
            continue;
        }
        let sources = sources(program, architecture, node);
        for (place, id) in node.inputs.iter().enumerate() {
            let Some((_, norm)) = made_by.get(id) else { continue };
            if place >= sources || !updates.allow(program, &union([*norm, node]), node.at) {
                made_by.remove(id);
            }
        }
    }
    made_by
}

/// Returns the number of an op's first operands that may be computed while they are read.
fn sources(program: &Program, architecture: Architecture, node: &FusedNode<'_>) -> usize {
    let sources = candidates(node);
    if sources == 0 {
        return 0;
    }
    let work = node.op.kernels().lower(&context(node, program, architecture));
    if work.is_ok_and(|work| work.is_on_tensor_cores()) { sources } else { 0 }
}

/// The same if it is one for tensor cores.
fn candidates(node: &FusedNode<'_>) -> usize {
    match node.op {
        FusedOp::Plain(Op::Conv(conv)) => conv.sources(node.inputs.len()),
        FusedOp::Plain(Op::ConvTranspose(_)) => 1,
        FusedOp::Plain(Op::ConvWeightGrad(_)) => node.inputs.len(),
        _ => 0,
    }
}

fn inline<'p>(node: &FusedNode<'p>, inlined: &Inlined<'_, 'p>) -> FusedNode<'p> {
    let sources = candidates(node).min(node.inputs.len());
    let (mut inputs, mut covered, mut loads) = (Vec::new(), vec![node], Vec::new());
    for id in &node.inputs[..sources] {
        let from = inlined.get(id);
        loads.push(from.map(|(norm, _)| *norm));
        match from {
            Some((_, from)) => {
                inputs.extend(&from.inputs);
                covered.push(from);
            }
            None => inputs.push(*id),
        }
    }
    if covered.len() == 1 {
        return node.clone();
    }
    inputs.extend(&node.inputs[sources..]);
    let op = match node.op {
        FusedOp::Plain(Op::Conv(conv)) => FusedOp::Conv(FusedConv { conv, loads }),
        FusedOp::Plain(Op::ConvTranspose(conv)) => {
            FusedOp::Transpose(FusedTranspose { conv, load: loads[0] })
        }
        FusedOp::Plain(Op::ConvWeightGrad(grad)) => FusedOp::WeightGrad(FusedWeightGrad { grad, loads }),
        _ => return node.clone(),
    };
    FusedNode { op, at: node.at, covers: union(covered), inputs, outputs: node.outputs.clone() }
}
