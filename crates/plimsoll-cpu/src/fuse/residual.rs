//! Ends of residual blocks: a normalised map and a shortcut, normalised or not, are summed and activated in one pass.
//!
//! The sum is never stored, nor what is normalised for it alone. The gradient tells on which side of the kink a sum is from the maps
//! that it is made of, which are there anyway, so it needs neither the sum nor the activated map.

use plimsoll_graph::ops::{LeakyRelu, LeakyReluGrad, Normalise, NormaliseGrad, Over};
use plimsoll_graph::{Op, Program, Role, TensorId};
use plimsoll_plan::fusing::{Readers, Updates, union};

use super::{FusedNode, FusedOp};
use crate::ops::{Load, NormAct, ResidualAct, ResidualActGrad};

/// A normalisation of which nothing but the sum reads the result.
#[derive(Clone, Copy)]
struct Norm {
    at: usize,
    affine: bool,
}

impl Norm {
    fn find(
        program: &Program,
        nodes: &[FusedNode],
        readers: &Readers,
        of: TensorId,
        sum: usize,
    ) -> Option<Norm> {
        let at = nodes.iter().position(|node| node.outputs == [of])?;
        let FusedOp::Plain(Op::Normalise(Normalise { affine })) = nodes[at].op else { return None };
        (readers.only(program, of) == Some(sum)).then_some(Norm { at, affine })
    }

    /// The place of its gradient, of which the upstream is `gradient`, and what it is over.
    fn gradient(&self, nodes: &[FusedNode], readers: &Readers, gradient: TensorId) -> Option<(usize, Over)> {
        let own = &nodes[self.at].inputs;
        readers.get(gradient).iter().find_map(|at| match nodes[*at].op {
            FusedOp::Plain(Op::NormaliseGrad(NormaliseGrad { over, affine }))
                if affine == self.affine
                    && nodes[*at].inputs[0] == gradient
                    && nodes[*at].inputs[1..] == own[..] =>
            {
                Some((*at, over))
            }
            _ => None,
        })
    }
}

/// The gradient of an end.
struct Back {
    /// The gradient of the activation.
    act: usize,
    main: (usize, Over),
    shortcut: Option<(usize, Over)>,
}

/// A sum of a normalised map and a shortcut, its activation, and the gradients that go through both.
struct End {
    sum: usize,
    act: usize,
    slope: f32,
    main: Norm,
    /// The shortcut: its normalisation for the sum, or the tensor itself.
    shortcut: Result<Norm, TensorId>,
    back: Vec<Back>,
}

impl End {
    fn find(program: &Program, nodes: &[FusedNode], readers: &Readers, sum: usize) -> Option<End> {
        let FusedOp::Plain(Op::Add(_)) = nodes[sum].op else { return None };
        let [first, second] = nodes[sum].inputs[..] else { return None };
        let summed = nodes[sum].outputs[0];
        if first == second || program.tensor(summed).role != Role::Intermediate {
            return None;
        }
        let norm = |id| Norm::find(program, nodes, readers, id, sum);
        let (main, shortcut) = match (norm(first), norm(second)) {
            (Some(main), other) => (main, other.ok_or(second)),
            (None, Some(main)) => (main, Err(first)),
            (None, None) => return None,
        };
        let (mut act, mut grads) = (None, Vec::new());
        for reader in readers.get(summed) {
            match nodes[*reader].op {
                FusedOp::Plain(Op::LeakyRelu(LeakyRelu { slope })) if act.is_none() => {
                    act = Some((*reader, slope));
                }
                FusedOp::Plain(Op::LeakyReluGrad(LeakyReluGrad { slope }))
                    if nodes[*reader].inputs[0] != summed =>
                {
                    grads.push((*reader, slope));
                }
                _ => return None,
            }
        }
        let (act, slope) = act?;
        let mut end = End { sum, act, slope, main, shortcut, back: Vec::new() };
        for (at, of_slope) in grads {
            end.back.push(end.gradient(program, nodes, readers, at).filter(|_| of_slope == slope)?);
        }
        Some(end)
    }

    /// The gradients that go through the gradient of the activation at a place.
    fn gradient(
        &self,
        program: &Program,
        nodes: &[FusedNode],
        readers: &Readers,
        act: usize,
    ) -> Option<Back> {
        let gradient = nodes[act].outputs[0];
        let main = self.main.gradient(nodes, readers, gradient)?;
        let shortcut = match &self.shortcut {
            Err(_) => None,
            Ok(norm) => {
                // The gradient of the sum is not stored: nothing else may read it.
                let is_inner = program.tensor(gradient).role == Role::Intermediate;
                let shortcut = norm.gradient(nodes, readers, gradient)?;
                if !is_inner || readers.get(gradient).len() != 2 || shortcut.0 == main.0 {
                    return None;
                }
                Some(shortcut)
            }
        };
        Some(Back { act, main, shortcut })
    }

    /// The nodes that are computed before the activation.
    fn before<'a>(&self, nodes: &'a [FusedNode]) -> impl Iterator<Item = &'a FusedNode> + use<'a> {
        let shortcut = self.shortcut.as_ref().ok().map(|norm| norm.at);
        [self.main.at, self.sum].into_iter().chain(shortcut).map(|at| &nodes[at])
    }

    /// Returns `true` if all nodes still read the same values if they run as one.
    fn is_allowed(&self, program: &Program, updates: &Updates, nodes: &[FusedNode]) -> bool {
        let forward = union(self.before(nodes).chain([&nodes[self.act]]));
        let mut back = self.back.iter();
        updates.allow(program, &forward, nodes[self.act].at)
            && back.all(|back| updates.allow(program, &back.covers(self, nodes), nodes[back.act].at))
    }

    fn op(&self) -> ResidualAct {
        let shortcut = match &self.shortcut {
            Ok(norm) => Load::NormAct(NormAct::alone(norm.affine)),
            Err(_) => Load::Plain,
        };
        ResidualAct { slope: self.slope, main: NormAct::alone(self.main.affine), shortcut }
    }

    fn inputs(&self, nodes: &[FusedNode]) -> Vec<TensorId> {
        let of_shortcut = match &self.shortcut {
            Ok(norm) => &nodes[norm.at].inputs[..],
            Err(id) => std::slice::from_ref(id),
        };
        [&nodes[self.main.at].inputs[..], of_shortcut].concat()
    }

    fn fuse(&self, nodes: &[FusedNode], kept: &mut [Option<FusedNode>]) {
        let act = &nodes[self.act];
        let shortcut = self.shortcut.as_ref().ok().map(|norm| norm.at);
        [self.main.at, self.sum].into_iter().chain(shortcut).for_each(|at| kept[at] = None);
        kept[self.act] = Some(FusedNode {
            op: FusedOp::ResidualAct(self.op()),
            at: act.at,
            covers: union(self.before(nodes).chain([act])),
            inputs: self.inputs(nodes),
            outputs: act.outputs.clone(),
        });
        for back in &self.back {
            let of_shortcut = match back.shortcut {
                Some((at, _)) => &nodes[at].outputs,
                None => &nodes[back.act].outputs,
            };
            back.own().for_each(|at| kept[at] = None);
            kept[back.act] = Some(FusedNode {
                op: FusedOp::ResidualActGrad(ResidualActGrad {
                    act: self.op(),
                    over: back.main.1,
                    shortcut_over: back.shortcut.map(|(_, over)| over),
                }),
                at: nodes[back.act].at,
                covers: back.covers(self, nodes),
                inputs: [&nodes[back.act].inputs[..1], &self.inputs(nodes)].concat(),
                outputs: [&nodes[back.main.0].outputs[..], of_shortcut].concat(),
            });
        }
    }
}

impl Back {
    /// The places of its own nodes.
    fn own(&self) -> impl Iterator<Item = usize> + use<> {
        [self.act, self.main.0].into_iter().chain(self.shortcut.map(|(at, _)| at))
    }

    fn covers(&self, end: &End, nodes: &[FusedNode]) -> Vec<usize> {
        union(end.before(nodes).chain(self.own().map(|at| &nodes[at])))
    }
}

/// Fuses every end whose inner values nothing else reads.
pub(super) fn fuse(program: &Program, updates: &Updates, nodes: Vec<FusedNode>) -> Vec<FusedNode> {
    let readers = Readers::new(program, &nodes);
    let mut kept: Vec<Option<FusedNode>> = nodes.iter().cloned().map(Some).collect();
    for at in 0..nodes.len() {
        let end = End::find(program, &nodes, &readers, at);
        if let Some(end) = end.filter(|end| end.is_allowed(program, updates, &nodes)) {
            end.fuse(&nodes, &mut kept);
        }
    }
    kept.into_iter().flatten().collect()
}
