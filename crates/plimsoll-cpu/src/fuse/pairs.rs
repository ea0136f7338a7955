//! Pairs of nodes that one kernel computes in one pass, of which what the first makes is never stored.

use plimsoll_graph::ops::{LeakyRelu, LeakyReluGrad, Normalise, NormaliseGrad, Over};
use plimsoll_graph::{DType, Op, Program, TensorId};
use plimsoll_plan::fusing::{Readers, Updates, union};

use super::{FusedNode, FusedOp};
use crate::ops::{AddedBoxGrad, AddedCrossGrad, AddedPoolGrad, AddedUpsample, NormAct, NormActGrad};

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
    /// (Gradient of the activation, gradient of the normalisation, what that is over).
    back: Vec<(usize, usize, Over)>,
}

impl NormPair {
    /// The pair of a normalisation whose result nothing else reads.
    fn find(program: &Program, nodes: &[FusedNode], readers: &Readers, at: usize) -> Option<NormPair> {
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
            let FusedOp::Plain(Op::NormaliseGrad(NormaliseGrad { over, affine: of_affine })) =
                nodes[of_norm].op
            else {
                return None;
            };
            let fits = of_slope == slope
                && of_affine == affine
                && nodes[of_norm].inputs[0] == nodes[of_act].outputs[0]
                && nodes[of_norm].inputs[1..] == nodes[at].inputs[..];
            fits.then_some((of_act, of_norm, over))
        });
        let back = back.collect::<Option<_>>()?;
        Some(NormPair { normalise: at, act, slope, affine, back })
    }
}

fn norms(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let readers = Readers::new(program, &nodes);
    let mut kept: Vec<Option<FusedNode>> = nodes.iter().cloned().map(Some).collect();
    for at in 0..nodes.len() {
        let Some(norm) = NormPair::find(program, &nodes, &readers, at) else { continue };
        let own = &nodes[norm.normalise];
        let mut last = norm.back.iter().map(|(_, of_norm, _)| *of_norm).chain([norm.act]);
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
        for (of_act, of_norm, over) in norm.back {
            let (first, second) = (&nodes[of_act], &nodes[of_norm]);
            kept[of_act] = None;
            kept[of_norm] = Some(FusedNode {
                op: FusedOp::NormActGrad(NormActGrad { norm: pair, over, added: false }),
                at: second.at,
                covers: union([normalise, first, second]),
                inputs: [&first.inputs[..1], &second.inputs[1..]].concat(),
                outputs: second.outputs.clone(),
            });
        }
    }
    // What has no activation is normalised by the same kernels, and may be read by convolutions like one that has; its gradient may
    // go into a sum.
    for node in kept.iter_mut().flatten() {
        match node.op {
            FusedOp::Plain(Op::Normalise(Normalise { affine })) => {
                node.op = FusedOp::NormAct(NormAct::alone(affine));
            }
            FusedOp::Plain(Op::NormaliseGrad(NormaliseGrad { over, affine })) => {
                let norm = NormAct::alone(affine);
                node.op = FusedOp::NormActGrad(NormActGrad { norm, over, added: false });
            }
            _ => {}
        }
    }
    kept.into_iter().flatten().collect()
}

/// Sums whose second operand comes from a kernel that can add what it makes to something, when the first is there already.
fn sums(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let readers = Readers::new(program, &nodes);
    let mut kept: Vec<FusedNode> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.into_iter().enumerate() {
        match Sum::find(program, &readers, &kept, &node, at) {
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
    fn find(
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
        let place = before.iter().rposition(|other| other.outputs.first() == Some(&new))?;
        if before[place..].iter().any(|other| other.outputs.contains(&known)) {
            return None;
        }
        let maker = &before[place];
        let (op, inputs) = added(program, maker, known)?;
        let covers = union([maker, node]);
        let outputs = [&node.outputs[..], &maker.outputs[1..]].concat();
        Some(Sum { place, fused: FusedNode { op, at: maker.at, covers, inputs, outputs } })
    }
}

/// A node that adds its first result to `known`, with its operands.
fn added(program: &Program, node: &FusedNode, known: TensorId) -> Option<(FusedOp, Vec<TensorId>)> {
    let op = match &node.op {
        // A point to f32 may be a head, whose logits lie in rows.
        FusedOp::Conv(conv)
            if !conv.added
                && (conv.conv.window.taps() > 1 || program.tensor(node.outputs[0]).dtype == DType::Bf16) =>
        {
            let mut conv = conv.clone();
            conv.added = true;
            FusedOp::Conv(conv)
        }
        FusedOp::NormActGrad(grad) if !grad.added => {
            FusedOp::NormActGrad(NormActGrad { added: true, ..*grad })
        }
        FusedOp::Plain(Op::AvgPoolGrad(grad)) => {
            FusedOp::PoolGrad(AddedPoolGrad { grad: *grad, added: true })
        }
        FusedOp::Plain(Op::Upsample2(upsample)) => {
            FusedOp::Upsample(AddedUpsample { upsample: *upsample, added: true })
        }
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
