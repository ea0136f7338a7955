//! Networks, losses and optimizers, written as programs; weight files in and out.
//!
//! A [`Network`] writes its forward pass; [`Architecture`] is what a run needs to know of it. [`Training`] makes of it the
//! programs of a run: the step (loss, gradients, update), validation, and [`predict`] for inference. [`weights`] reads and writes
//! parameters under the names that PyTorch's implementations give them.

mod error;
mod init;
mod networks;
mod objective;
mod optimizer;
mod programs;
mod schedule;
pub mod weights;

pub use error::ConfigError;
pub use networks::{
    Architecture, Design, DynUNet, Extents, ForwardMode, Network, NetworkName, NetworkSettings,
    PlainConvUNet, UNet, UnknownNetwork,
};
pub use objective::{
    AppliesTo, Boundary, ClDice, HausdorffDt, MorphSkeleton, Objective, Otherwise, SkeletonRecall, Structure,
    SurfaceDistance, TargetInput, TargetInputKind, Term, Timing, ToplossSimple, Turn, Unit, Variant,
};
pub use optimizer::Optimizer;
pub use programs::{Training, TrainingPrograms, names, predict};
pub use schedule::{Decay, Schedule};
