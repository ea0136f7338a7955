//! The lowering of each op on this backend. An op has one place: its [`Lower`] in one of these files decides layout,
//! support, scratch, cost and kernels together. An op without one does not compile.

mod attention;
mod conv;
mod elementwise;
mod forward;
mod gated;
mod gates;
pub(crate) mod head;
mod loss;
mod max_pool;
mod morphology;
mod norm;
mod positions;
mod regions;
mod resample;
mod residual;
mod response;
mod rotary;
mod running;
mod source;
mod squeeze;
mod structure;
mod tokens;
mod update;
mod zero_class;

pub(crate) use conv::{FusedConv, FusedTranspose, FusedWeightGrad};
pub(crate) use morphology::{AddedBoxGrad, AddedCrossGrad};
pub(crate) use norm::{NormAct, NormActGrad};
pub(crate) use resample::{AddedPoolGrad, AddedUpsample};
pub(crate) use residual::{ResidualAct, ResidualActGrad};
pub(crate) use source::Load;
pub(crate) use squeeze::{FusedSqueeze, GateSum, Squeeze, Summand};

use plimsoll_graph::Op;

use crate::lower::Lower;

macro_rules! lowerings {
    ($($name:ident),+) => {
        /// The lowering of an op.
        pub(crate) fn lowering(op: &Op) -> &dyn Lower {
            match op { $(Op::$name(op) => op),+ }
        }
    };
}

plimsoll_graph::for_each_op!(lowerings);
