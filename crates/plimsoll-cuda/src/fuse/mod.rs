//! The fusion of several nodes of a program into one.
//!
//! Two rewrites, one after the other: [`pairs`] of normalisation and activation, forward and backward, which one kernel computes in one pass;
//! and [`loads`]: where convolutions on tensor cores read such a pair's result, they compute it from what is normalised. Each fused
//! node says which nodes it covers. What it means is their composition, to which the verifier of plans holds it, and
//! the conformance suite its kernels.

mod loads;
mod pairs;

use plimsoll_graph::{Op, Program, TensorId};
use plimsoll_plan::fusing::{self, Updates};

use crate::Architecture;
use crate::lower::{Context, Lower, Operand};
use crate::ops::{self, FusedConv, FusedTranspose, FusedWeightGrad, NormAct, NormActGrad};

/// The operation of a fused node.
#[derive(Clone, Debug)]
pub(crate) enum FusedOp<'a> {
    /// The op of the one node it covers.
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
pub(crate) type FusedNode<'a> = fusing::FusedNode<FusedOp<'a>>;

impl FusedOp<'_> {
    /// The kind of kernel, as reports name it.
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
            FusedOp::Plain(op) => ops::lowering(op),
            FusedOp::NormAct(op) => op,
            FusedOp::NormActGrad(op) => op,
            FusedOp::Conv(op) => op,
            FusedOp::Transpose(op) => op,
            FusedOp::WeightGrad(op) => op,
        }
    }
}

/// The operands of a fused node, wherever they will lie.
pub(crate) fn context<'p>(
    node: &FusedNode<'_>,
    program: &'p Program,
    architecture: Architecture,
) -> Context<'p> {
    let operands = |ids: &[TensorId]| -> Vec<Operand<'p>> {
        ids.iter().map(|id| Operand::new(program.tensor(*id), 0)).collect()
    };
    Context {
        name: node.op.name(),
        architecture,
        inputs: operands(&node.inputs),
        outputs: operands(&node.outputs),
        scratch: 0,
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
    let updates = Updates::new(program);
    let nodes = pairs::fuse(program, &updates, nodes.collect());
    if inline { loads::fuse(program, architecture, &updates, nodes) } else { nodes }
}
