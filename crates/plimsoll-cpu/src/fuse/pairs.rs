//! Pairs of nodes that one kernel computes in one pass, of which what the first makes is never stored.

use plimsoll_graph::ops::{LeakyRelu, LeakyReluGrad, Normalise, NormaliseGrad};
use plimsoll_graph::{Op, Program, TensorId};

use super::{FusedNode, FusedOp, Readers, Updates, union};
use crate::ops::{AddedBoxGrad, AddedCrossGrad, NormAct, NormActGrad};

/// Fuses normalisations with activations, forward and backward, and sums with what is summed.
pub(super) fn fuse(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let nodes = norms(program, updates, nodes);
    sums(program, updates, nodes)
}

/// A normalisation u = normalise(y), its activation z, and the gradients that go through both.
struct NormPair {
    normalise: usize,
    act: usize,
    slope: f32,
    affine: bool,
    /// (Gradient of the activation, gradient of the normalisation).
    back: Vec<(usize, usize)>,
}

impl NormPair {
    /// Of a normalisation of which nothing else is read.
    fn of(program: &Program, nodes: &[FusedNode], readers: &Readers, at: usize) -> Option<NormPair> {
        let FusedOp::Plain(Op::Normalise(Normalise { affine })) = nodes[at].op else { return None };
        let u = nodes[at].outputs[0];
        if program.tensor(u).role != plimsoll_graph::Role::Intermediate {
            return None;
        }
        let (mut act, mut back) = (None, Vec::new());
        for reader in readers.get(u) {
            match &nodes[*reader].op {
                FusedOp::Plain(Op::LeakyRelu(LeakyRelu { slope })) if act.is_none() => {
                    act = Some((*reader, *slope));
                }
                FusedOp::Plain(Op::LeakyReluGrad(LeakyReluGrad { slope }))
                    if nodes[*reader].inputs[0] != u =>
                {
                    back.push((*reader, *slope));
                }
                _ => return None,
            }
        }
        let (act, slope) = act?;
        let back = back.into_iter().map(|(of_act, of_slope)| {
            let of_norm = readers.only(program, nodes[of_act].outputs[0])?;
            let FusedOp::Plain(Op::NormaliseGrad(NormaliseGrad { affine: of_affine })) = nodes[of_norm].op
            else {
                return None;
            };
            let fits = of_slope == slope
                && of_affine == affine
                && nodes[of_norm].inputs[0] == nodes[of_act].outputs[0]
                && nodes[of_norm].inputs[1..] == nodes[at].inputs[..];
            fits.then_some((of_act, of_norm))
        });
        let back = back.collect::<Option<_>>()?;
        Some(NormPair { normalise: at, act, slope, affine, back })
    }
}

fn norms(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let readers = Readers::of(program, &nodes);
    let mut kept: Vec<Option<FusedNode>> = nodes.iter().cloned().map(Some).collect();
    for at in 0..nodes.len() {
        let Some(norm) = NormPair::of(program, &nodes, &readers, at) else { continue };
        let own = &nodes[norm.normalise];
        let mut last = norm.back.iter().map(|(_, of_norm)| *of_norm).chain([norm.act]);
        if !last.all(|last| updates.allow(program, &own.covers, nodes[last].at)) {
            continue;
        }
        let pair = NormAct { slope: norm.slope, affine: norm.affine };
        let (normalise, act) = (&nodes[norm.normalise], &nodes[norm.act]);
        kept[norm.normalise] = None;
        kept[norm.act] = Some(FusedNode {
            op: FusedOp::NormAct(pair),
            at: act.at,
            covers: union([normalise, act]),
            inputs: normalise.inputs.clone(),
            outputs: act.outputs.clone(),
        });
        for (of_act, of_norm) in norm.back {
            let (first, second) = (&nodes[of_act], &nodes[of_norm]);
            kept[of_act] = None;
            kept[of_norm] = Some(FusedNode {
                op: FusedOp::NormActGrad(NormActGrad(pair)),
                at: second.at,
                covers: union([normalise, first, second]),
                inputs: [&first.inputs[..1], &second.inputs[1..]].concat(),
                outputs: second.outputs.clone(),
            });
        }
    }
    // What has no activation is normalised by the same kernels, and may be read by convolutions like one that has.
    for node in kept.iter_mut().flatten() {
        if let FusedOp::Plain(Op::Normalise(Normalise { affine })) = node.op {
            node.op = FusedOp::NormAct(NormAct { slope: 1.0, affine });
        }
    }
    kept.into_iter().flatten().collect()
}

/// Sums whose second operand comes from a kernel that can add what it makes to something, when the first is there already.
fn sums(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let readers = Readers::of(program, &nodes);
    let mut kept: Vec<FusedNode> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.into_iter().enumerate() {
        match Sum::of(program, &readers, &kept, &node, at) {
            Some(sum) if updates.allow(program, &sum.fused.covers, sum.fused.at) => {
                kept[sum.place] = sum.fused;
            }
            _ => kept.push(node),
        }
    }
    kept
}

/// A sum that is computed where its second operand is.
struct Sum {
    /// The place of the node that makes the second operand.
    place: usize,
    fused: FusedNode,
}

impl Sum {
    fn of(
        program: &Program,
        readers: &Readers,
        before: &[FusedNode],
        node: &FusedNode,
        at: usize,
    ) -> Option<Sum> {
        let FusedOp::Plain(Op::Add(_)) = node.op else { return None };
        let [known, new] = node.inputs[..] else { return None };
        if known == new || readers.only(program, new) != Some(at) {
            return None;
        }
        let place = before.iter().rposition(|other| other.outputs == [new])?;
        if before[place..].iter().any(|other| other.outputs.contains(&known)) {
            return None;
        }
        let maker = &before[place];
        let (op, inputs) = added(maker, known)?;
        let covers = union([maker, node]);
        Some(Sum {
            place,
            fused: FusedNode { op, at: maker.at, covers, inputs, outputs: node.outputs.clone() },
        })
    }
}

/// A node that adds what it makes to `known`, with its operands.
fn added(node: &FusedNode, known: TensorId) -> Option<(FusedOp, Vec<TensorId>)> {
    let op = match &node.op {
        FusedOp::Transpose(transpose) if !transpose.added => {
            let mut transpose = transpose.clone();
            transpose.added = true;
            FusedOp::Transpose(transpose)
        }
        FusedOp::Plain(Op::BoxExtremeGrad(grad)) => {
            FusedOp::BoxGrad(AddedBoxGrad { grad: *grad, added: true })
        }
        FusedOp::Plain(Op::CrossErosionGrad(_)) => FusedOp::CrossGrad(AddedCrossGrad { added: true }),
        _ => return None,
    };
    Some((op, node.inputs.iter().copied().chain([known]).collect()))
}
