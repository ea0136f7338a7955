//! What this backend does with each op. An op stands in one place: its [`Lower`] in one of these files decides layout,
//! support, scratch, cost and kernels together. An op without one does not compile.

mod conv;
mod elementwise;
pub(crate) mod head;
mod loss;
mod morphology;
mod norm;
mod source;
mod structure;
mod update;

pub(crate) use conv::{FusedConv, FusedTranspose, FusedWeightGrad};
pub(crate) use morphology::{AddedBoxGrad, AddedCrossGrad};
pub(crate) use norm::{NormAct, NormActGrad};
pub(crate) use source::Load;

use plimsoll_graph::Op;

use crate::lower::Lower;

macro_rules! lowerings {
    ($($name:ident),+) => {
        /// What this backend does with an op.
        pub(crate) fn of(op: &Op) -> &dyn Lower {
            match op { $(Op::$name(op) => op),+ }
        }
    };
}

plimsoll_graph::for_each_op!(lowerings);
