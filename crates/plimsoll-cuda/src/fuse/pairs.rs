//! Normalisations and their activations, forward and backward: the values between the two are never stored.

use plimsoll_graph::ops::{LeakyRelu, LeakyReluGrad, Normalise, NormaliseGrad, Over};
use plimsoll_graph::{Op, Program};
use plimsoll_plan::fusing::{Readers, Updates, union};

use super::{FusedNode, FusedOp};
use crate::ops::{NormAct, NormActGrad};

/// A normalisation u = normalise(y), its activation z, and the gradients that go through both.
struct Pair {
    normalise: usize,
    act: usize,
    norm: NormAct,
    back: Vec<Back>,
}

/// The places of the gradients of an activation and of its normalisation.
struct Back {
    act: usize,
    norm: usize,
    over: Over,
}

impl Pair {
    /// The pair of a normalisation whose result nothing else reads.
    fn find(program: &Program, nodes: &[FusedNode<'_>], readers: &Readers, at: usize) -> Option<Pair> {
        let FusedOp::Plain(Op::Normalise(Normalise { affine })) = nodes[at].op else { return None };
        let u = nodes[at].outputs[0];
        let (mut act, mut back) = (None, Vec::new());
        for reader in readers.inside(program, u)? {
            match nodes[*reader].op {
                FusedOp::Plain(Op::LeakyRelu(LeakyRelu { slope })) if act.is_none() => {
                    act = Some((*reader, *slope))
                }
                // Its first operand is the gradient.
                FusedOp::Plain(Op::LeakyReluGrad(LeakyReluGrad { slope }))
                    if nodes[*reader].inputs[0] != u =>
                {
                    back.push((*reader, *slope));
                }
                _ => return None,
            }
        }
        let (act, slope) = act?;
        let through = |(of_act, of_slope): (usize, f32)| {
            let du = nodes[of_act].outputs[0];
            let of_norm = readers.only(program, du)?;
            let FusedOp::Plain(Op::NormaliseGrad(NormaliseGrad { over, affine: of_affine })) =
                nodes[of_norm].op
            else {
                return None;
            };
            let inputs = &nodes[of_norm].inputs;
            let fits = inputs[0] == du && inputs[1..] == nodes[at].inputs[..];
            (fits && of_slope == slope && of_affine == affine).then_some(Back {
                act: of_act,
                norm: of_norm,
                over: *over,
            })
        };
        let back = back.into_iter().map(through).collect::<Option<_>>()?;
        Some(Pair { normalise: at, act, norm: NormAct { slope, affine: *affine }, back })
    }
}

/// Fuses all pairs of which nothing in between is read.
pub(super) fn fuse<'p>(
    program: &'p Program,
    updates: &Updates,
    nodes: Vec<FusedNode<'p>>,
) -> Vec<FusedNode<'p>> {
    let readers = Readers::new(program, &nodes);
    let mut kept: Vec<Option<FusedNode<'_>>> = nodes.iter().cloned().map(Some).collect();
    for at in 0..nodes.len() {
        let Some(pair) = Pair::find(program, &nodes, &readers, at) else { continue };
        let (normalise, act) = (&nodes[pair.normalise], &nodes[pair.act]);
        let mut places = pair.back.iter().map(|back| back.norm).chain([pair.act]);
        if !places.all(|place| updates.allow(program, &normalise.covers, nodes[place].at)) {
            continue;
        }
        kept[pair.normalise] = None;
        kept[pair.act] = Some(FusedNode {
            op: FusedOp::NormAct(pair.norm),
            at: act.at,
            covers: union([normalise, act]),
            inputs: normalise.inputs.clone(),
            outputs: act.outputs.clone(),
        });
        for back in pair.back {
            let (first, second) = (&nodes[back.act], &nodes[back.norm]);
            kept[back.act] = None;
            kept[back.norm] = Some(FusedNode {
                op: FusedOp::NormActGrad(NormActGrad { norm: pair.norm, over: back.over }),
                at: second.at,
                covers: union([normalise, first, second]),
                inputs: [&first.inputs[..1], &second.inputs[1..]].concat(),
                outputs: second.outputs.clone(),
            });
        }
    }
    kept.into_iter().flatten().collect()
}
