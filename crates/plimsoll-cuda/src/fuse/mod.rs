//! Which nodes of a program are run as one.
//!
//! Two rewrites, one after the other: [`pairs`] of normalisation and activation, forward and backward, which one kernel computes in one pass;
//! and [`loads`]: where convolutions on tensor cores read such a pair's result, they compute it from what is normalised. Each fused
//! node says which nodes it covers. What it means is their composition, to which the verifier of plans holds it, and
//! the conformance suite its kernels.

mod loads;
mod pairs;

use plimsoll_graph::{NodeId, Op, Program, Role, TensorId};

use crate::Architecture;
use crate::lower::{Context, Lower, Operand};
use crate::ops::{self, FusedConv, FusedTranspose, FusedWeightGrad, NormAct, NormActGrad};

/// What a fused node does.
#[derive(Clone, Debug)]
pub(crate) enum FusedOp<'a> {
    /// What the one node does that it covers.
    Plain(&'a Op),
    /// Normalise, then a leaky ReLU.
    NormAct(NormAct),
    /// Both gradients.
    NormActGrad(NormActGrad),
    /// A convolution, with what its sources are made of.
    Conv(FusedConv<'a>),
    /// A transposed convolution, with what its source is made of.
    Transpose(FusedTranspose<'a>),
    /// A gradient by weights, with what its sources are made of.
    WeightGrad(FusedWeightGrad<'a>),
}

/// Nodes of a program that are run as one.
#[derive(Clone, Debug)]
pub(crate) struct FusedNode<'a> {
    pub(crate) op: FusedOp<'a>,
    /// The node in whose place it is run.
    at: NodeId,
    /// The nodes that it stands for, in ascending order.
    pub(crate) covers: Vec<NodeId>,
    /// What it reads, in the order that the op says.
    pub(crate) inputs: Vec<TensorId>,
    /// What it writes.
    pub(crate) outputs: Vec<TensorId>,
}

impl FusedOp<'_> {
    /// The kind of kernel, as it stands in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FusedOp::Plain(op) => op.rule().name(),
            FusedOp::NormAct(_) => "norm_act",
            FusedOp::NormActGrad(_) => "norm_act_grad",
            FusedOp::Conv(_) => "conv",
            FusedOp::Transpose(_) => "conv_transpose",
            FusedOp::WeightGrad(_) => "conv_weight_grad",
        }
    }

    /// Its kernels.
    pub(crate) fn kernels(&self) -> &dyn Lower {
        match self {
            FusedOp::Plain(op) => ops::of(op),
            FusedOp::NormAct(op) => op,
            FusedOp::NormActGrad(op) => op,
            FusedOp::Conv(op) => op,
            FusedOp::Transpose(op) => op,
            FusedOp::WeightGrad(op) => op,
        }
    }
}

impl FusedNode<'_> {
    /// Its operands, wherever they will lie.
    pub(crate) fn context<'p>(&self, program: &'p Program, architecture: Architecture) -> Context<'p> {
        let operands = |ids: &[TensorId]| -> Vec<Operand<'p>> {
            ids.iter().map(|id| Operand::new(program.tensor(*id), 0)).collect()
        };
        Context {
            name: self.op.name(),
            architecture,
            inputs: operands(&self.inputs),
            outputs: operands(&self.outputs),
            scratch: 0,
        }
    }
}

/// The nodes of a program as they are run. Without `inline`, whatever one node of the program hands to another is stored, but for what pairs
/// hand on.
pub(crate) fn fuse(program: &Program, architecture: Architecture, inline: bool) -> Vec<FusedNode<'_>> {
    let nodes = program.nodes.iter().enumerate().map(|(at, node)| FusedNode {
        op: FusedOp::Plain(&node.op),
        at,
        covers: vec![at],
        inputs: node.inputs.clone(),
        outputs: node.outputs.clone(),
    });
    let updates = Updates::of(program);
    let nodes = pairs::fuse(program, &updates, nodes.collect());
    if inline { loads::fuse(program, architecture, &updates, nodes) } else { nodes }
}

/// The places of the nodes that read each tensor, once for each operand.
struct Readers {
    of: Vec<Vec<usize>>,
}

impl Readers {
    fn of(program: &Program, nodes: &[FusedNode<'_>]) -> Readers {
        let mut of = vec![Vec::new(); program.tensors.len()];
        for (at, node) in nodes.iter().enumerate() {
            node.inputs.iter().for_each(|id| of[id.index()].push(at));
        }
        Readers { of }
    }

    /// Those of a value that nobody outside the program sees.
    fn inside(&self, program: &Program, tensor: TensorId) -> Option<&[usize]> {
        (program.tensor(tensor).role == Role::Intermediate).then(|| &self.of[tensor.index()][..])
    }
}

/// Where a program changes parameters and states.
struct Updates {
    of: Vec<(NodeId, TensorId)>,
}

impl Updates {
    fn of(program: &Program) -> Updates {
        let updates = program.nodes.iter().enumerate().flat_map(|(at, node)| {
            let updated = node.op.rule().updates();
            node.outputs.iter().take(updated.len()).map(move |id| (at, *id))
        });
        Updates { of: updates.collect() }
    }

    /// Whether some nodes may be run as one in the place of the node `at`: nothing that one of them reads changes between its own
    /// place and that.
    fn allow(&self, program: &Program, covers: &[NodeId], at: NodeId) -> bool {
        covers.iter().all(|covered| {
            let between = at.min(*covered)..at.max(*covered);
            let mut changed = self.of.iter().filter(|(update, _)| between.contains(update));
            changed.all(|(_, id)| !program.nodes[*covered].inputs.contains(id))
        })
    }
}

/// The nodes that several fused ones cover together.
fn union<'n, 'p: 'n>(nodes: impl IntoIterator<Item = &'n FusedNode<'p>>) -> Vec<NodeId> {
    let mut covers: Vec<NodeId> = nodes.into_iter().flat_map(|node| node.covers.iter().copied()).collect();
    covers.sort_unstable();
    covers.dedup();
    covers
}
