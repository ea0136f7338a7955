//! The fusion of several nodes of a program into one.
//!
//! Five rewrites, one after the other: ends of [`residual`] blocks; [`pairs`] of nodes that one kernel computes in one pass; sums of
//! maps with [`gates`]; [`loads`]: maps that are cheap to compute are computed by the convolutions that read them; [`heads`] whose
//! logits exist in tiles only. Each fused node says
//! which nodes it covers. What it means is their composition, to which the verifier of plans holds it, and the conformance
//! suite its kernels.

mod gates;
mod heads;
mod loads;
mod pairs;
mod residual;

use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_graph::{Op, Program};
use plimsoll_plan::fusing::{self, Updates};

use crate::lower::Lower;
use crate::ops::head::{HeadCounts, HeadGrad, HeadStats};
use crate::ops::{
    self, AddedBoxGrad, AddedCrossGrad, AddedPoolGrad, AddedUpsample, FusedConv, FusedSqueeze,
    FusedTranspose, FusedWeightGrad, GateSum, Load, NormAct, NormActGrad, ResidualAct, ResidualActGrad,
    Squeeze,
};

/// The operation of a fused node.
#[derive(Clone, Debug)]
pub(crate) enum FusedOp {
    /// The op of the one node it covers.
    Plain(Op),
    /// Normalise, then a leaky ReLU.
    NormAct(NormAct),
    /// Both gradients, and the sum that they go into.
    NormActGrad(NormActGrad),
    /// The sum of two maps, normalised or not, then a leaky ReLU.
    ResidualAct(ResidualAct),
    /// All gradients of that.
    ResidualActGrad(ResidualActGrad),
    /// A convolution, with what its sources are made of, and the sum that its result goes into.
    Conv(FusedConv),
    /// A transposed convolution, with what its source is made of, and the sum that its result goes into.
    Transpose(FusedTranspose),
    /// A gradient by weights, with what its sources are made of.
    WeightGrad(FusedWeightGrad),
    /// The gradient of a box extreme, and the sum that it goes into.
    BoxGrad(AddedBoxGrad),
    /// The gradient of a cross erosion, and the sum that it goes into.
    CrossGrad(AddedCrossGrad),
    /// The gradient of means over windows, and the sum that it goes into.
    PoolGrad(AddedPoolGrad),
    /// Linear interpolation, and the sum that it goes into.
    Upsample(AddedUpsample),
    /// A global mean, a gate or the gradient of its factors, with what its volume is made of.
    Squeeze(FusedSqueeze),
    /// A gated map plus another summand, then a leaky ReLU.
    GateSum(GateSum),
    /// A head, and sums of its logits.
    HeadStats(HeadStats),
    /// A head, and counts of its logits.
    HeadCounts(HeadCounts),
    /// A head, the gradient of its logits, and all that is made of that.
    HeadGrad(HeadGrad),
}

/// Nodes of a program that are run as one.
pub(crate) type FusedNode = fusing::FusedNode<FusedOp>;

impl FusedOp {
    /// A node by itself.
    fn new(op: &Op, inputs: usize) -> FusedOp {
        match op {
            Op::Conv(conv) => FusedOp::Conv(FusedConv {
                conv: Conv::clone(conv),
                loads: vec![Load::Plain; conv.sources(inputs)],
                added: false,
            }),
            Op::ConvTranspose(conv) => FusedOp::Transpose(FusedTranspose {
                conv: ConvTranspose::clone(conv),
                load: Load::Plain,
                added: false,
            }),
            Op::ConvWeightGrad(grad) => FusedOp::WeightGrad(FusedWeightGrad {
                grad: ConvWeightGrad::clone(grad),
                loads: vec![Load::Plain; inputs - 1],
                result_load: Load::Plain,
            }),
            Op::GlobalMean(_) => FusedOp::Squeeze(FusedSqueeze { of: Squeeze::Mean, load: Load::Plain }),
            Op::Gate(_) => FusedOp::Squeeze(FusedSqueeze { of: Squeeze::Gate, load: Load::Plain }),
            Op::GateGrad(_) => FusedOp::Squeeze(FusedSqueeze { of: Squeeze::GateGrad, load: Load::Plain }),
            op => FusedOp::Plain(op.clone()),
        }
    }

    /// The kind of kernel, as reports name it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FusedOp::Plain(op) => op.rule().name(),
            FusedOp::NormAct(_) => "norm_act",
            FusedOp::NormActGrad(_) => "norm_act_grad",
            FusedOp::ResidualAct(_) => "residual_act",
            FusedOp::ResidualActGrad(_) => "residual_act_grad",
            FusedOp::Conv(_) => "conv",
            FusedOp::Transpose(_) => "conv_transpose",
            FusedOp::WeightGrad(_) => "conv_weight_grad",
            FusedOp::BoxGrad(_) => "box_extreme_grad",
            FusedOp::CrossGrad(_) => "cross_erosion_grad",
            FusedOp::PoolGrad(_) => "avg_pool_grad",
            FusedOp::Upsample(_) => "upsample2",
            FusedOp::Squeeze(FusedSqueeze { of, .. }) => match of {
                Squeeze::Mean => "global_mean",
                Squeeze::Gate => "gate",
                Squeeze::GateGrad => "gate_grad",
            },
            FusedOp::GateSum(_) => "gate_sum",
            FusedOp::HeadStats(_) => "head_stats",
            FusedOp::HeadCounts(_) => "head_counts",
            FusedOp::HeadGrad(_) => "head_grad",
        }
    }

    /// The lowering of the op.
    pub(crate) fn lowering(&self) -> &dyn Lower {
        match self {
            FusedOp::Plain(op) => ops::lowering(op),
            FusedOp::NormAct(op) => op,
            FusedOp::NormActGrad(op) => op,
            FusedOp::ResidualAct(op) => op,
            FusedOp::ResidualActGrad(op) => op,
            FusedOp::Conv(op) => op,
            FusedOp::Transpose(op) => op,
            FusedOp::WeightGrad(op) => op,
            FusedOp::BoxGrad(op) => op,
            FusedOp::CrossGrad(op) => op,
            FusedOp::PoolGrad(op) => op,
            FusedOp::Upsample(op) => op,
            FusedOp::Squeeze(op) => op,
            FusedOp::GateSum(op) => op,
            FusedOp::HeadStats(op) => op,
            FusedOp::HeadCounts(op) => op,
            FusedOp::HeadGrad(op) => op,
        }
    }
}

/// The nodes of a program as they are run. Without `inline`, whatever one node of the program hands to another is stored, but
/// for what residual blocks, pairs and sums of gated maps hand on.
pub(crate) fn fuse(program: &Program, inline: bool) -> Vec<FusedNode> {
    let nodes = program.nodes.iter().enumerate().map(|(at, node)| FusedNode {
        op: FusedOp::new(&node.op, node.inputs.len()),
        at,
        covers: vec![at],
        inputs: node.inputs.clone(),
        outputs: node.outputs.clone(),
    });
    let updates = Updates::new(program);
    let nodes = residual::fuse(program, &updates, nodes.collect());
    let nodes = pairs::fuse(program, &updates, nodes);
    let nodes = gates::fuse(program, &updates, nodes);
    match inline {
        true => heads::fuse(program, &updates, loads::fuse(program, &updates, nodes)),
        false => nodes,
    }
}
