//! Folding normalisation and activation into the convolutions that read their result.
//!
//! Of a convolution's raw result y and the normalised, activated z made of it, only y is held: whoever reads z in a
//! convolution reads y instead and normalises on the way in, with the same arithmetic and so with the same bits. z remains
//! where something else reads it.

use std::collections::HashMap;

use plimsoll_graph::ops::{Load, NormAct};
use plimsoll_graph::{Node, Op, Program, Role, TensorId};

use crate::fold_heads::fold_heads;

/// The program with every [`NormAct`] whose result only convolutions read folded into them, and heads into losses.
pub fn fold(program: &Program) -> Program {
    let mut folded = program.clone();
    let made_by = foldable(program);
    folded.nodes.retain(|node| !matches!(node.op, Op::NormAct(_)) || !made_by.contains_key(&node.outputs[0]));
    for node in &mut folded.nodes {
        fold_node(node, &made_by);
    }
    fold_heads(folded)
}

/// The folded nodes, by what they make.
fn foldable(program: &Program) -> HashMap<TensorId, (NormAct, Vec<TensorId>)> {
    let mut made_by: HashMap<_, _> = program
        .nodes
        .iter()
        .filter_map(|node| match &node.op {
            Op::NormAct(op) if program.tensor(node.outputs[0]).role == Role::Intermediate => {
                Some((node.outputs[0], (*op, node.inputs.clone())))
            }
            _ => None,
        })
        .collect();
    for node in &program.nodes {
        let loadable = loads(&node.op).len();
        // Convolutions have their sources first. With plain loads, a source is one operand.
        for (place, id) in node.inputs.iter().enumerate() {
            if place >= loadable {
                made_by.remove(id);
            }
        }
    }
    made_by
}

/// The loads of an op, in the order of the sources, where each is plain so far.
fn loads(op: &Op) -> Vec<Load> {
    let all = match op {
        Op::Conv(conv) => conv.loads.clone(),
        Op::ConvTranspose(conv) => vec![conv.load],
        Op::ConvWeightGrad(conv) => {
            let mut loads = conv.loads.clone();
            loads.push(conv.result_load);
            loads
        }
        _ => Vec::new(),
    };
    if all.iter().all(|load| *load == Load::Plain) { all } else { Vec::new() }
}

fn fold_node(node: &mut Node, made_by: &HashMap<TensorId, (NormAct, Vec<TensorId>)>) {
    let mut loads = loads(&node.op);
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for (place, id) in node.inputs.iter().enumerate() {
        match (made_by.get(id), loads.get_mut(place)) {
            (Some((norm, operands)), Some(load)) => {
                *load = norm.load();
                inputs.extend(operands);
            }
            _ => inputs.push(*id),
        }
    }
    node.inputs = inputs;
    match &mut node.op {
        Op::Conv(conv) if !loads.is_empty() => conv.loads = loads,
        Op::ConvTranspose(conv) if !loads.is_empty() => conv.load = loads[0],
        Op::ConvWeightGrad(conv) => {
            if let Some(result) = loads.pop() {
                (conv.loads, conv.result_load) = (loads, result);
            }
        }
        _ => {}
    }
}
