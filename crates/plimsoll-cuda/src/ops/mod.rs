//! What this backend does with each op that it has kernels for: its [`Lower`] in one of these files decides support, scratch and
//! launches together. The structs of parameters are those of `kernels/*.cu`, field by field.

mod conv;
mod elementwise;
mod loss;
mod norm;
mod resample;
mod squeeze;
mod sums;
mod update;

use plimsoll_graph::{Op, Program};

use crate::lower::Lower;

macro_rules! with_kernels {
    ($($name:ident),+ $(,)?) => {
        /// The ops that have kernels, by the names of their variants of [`Op`]. Programs with others are refused.
        pub const WITH_KERNELS: &[&str] = &[$(stringify!($name)),+];

        /// What this backend does with an op; none if it has no kernel.
        pub(crate) fn of(op: &Op) -> Option<&dyn Lower> {
            match op {
                $(Op::$name(op) => Some(op),)+
                _ => None,
            }
        }
    };
}

with_kernels! {
    Accumulate, AdamW, Add, AvgPool, AvgPoolGrad, ChannelSum, CompositeLoss, CompositeLossGrad, Conv, ConvTranspose, ConvWeightGrad,
    DownsampleLabels, Dropout, Ema, Fill, Gate, GateGrad, GlobalMean, GlobalMeanGrad, GradNorm, HardCounts, Join, LeakyRelu,
    LeakyReluGrad, MaxPool, MaxPoolGrad, NormFromRunning, NormStats, Normalise, NormaliseGrad, RunningUpdate, SampleDrop, Sgd,
    Sigmoid, SigmoidGrad, SoftmaxStats, Subpixel, SubpixelGrad, Upsample2, Upsample2Grad, WeightedSum, ZeroClass, ZeroClassGrad,
}

/// Whether there are kernels for all ops of a program. With operands beyond their limits it is refused nevertheless.
pub fn has_kernels(program: &Program) -> bool {
    program.nodes.iter().all(|node| of(&node.op).is_some())
}
