//! The lowering of each op on this backend: its [`Lower`] in one of these files decides support, scratch and launches
//! together. The structs of parameters match `kernels/*.cu` field by field.

mod attention;
mod conv;
mod distance;
mod elementwise;
mod gates;
mod loss;
mod morphology;
mod norm;
mod overlap;
mod regions;
mod resample;
mod response;
mod rotary;
mod shape_loss;
mod squeeze;
mod structure;
mod sums;
mod tokens;
mod update;

pub(crate) use conv::{FusedConv, FusedTranspose, FusedWeightGrad, normalises_channels, tiles, tiles_digest};
pub(crate) use norm::{NormAct, NormActGrad};
use plimsoll_graph::Op;

use crate::lower::Lower;

macro_rules! lowered {
    ($($name:ident),+) => {
        /// The lowering of an op.
        pub(crate) fn lowering(op: &Op) -> &dyn Lower {
            match op { $(Op::$name(op) => op),+ }
        }
    };
}

// An op without a lowering does not compile.
plimsoll_graph::for_each_op!(lowered);
