//! Networks, losses and optimizers, written as programs; weight files in and out.
//!
//! [`UNet`] writes the forward pass of DynUNet and nnU-Net's plain U-Net. [`Training`] makes of it the programs of a run:
//! the step (loss, gradients, update), validation, and [`predict`] for inference. [`weights`] reads and writes parameters
//! under the names that PyTorch's implementations give them.

mod error;
mod init;
mod objective;
mod optimizer;
mod programs;
mod schedule;
mod unet;
pub mod weights;

pub use error::ConfigError;
pub use init::initial_values;
pub use objective::{
    Boundary, ClDice, HausdorffDt, Mode, MorphSkeleton, Objective, Otherwise, SkeletonRecall, Structure,
    SurfaceDistance, TargetKind, TargetMap, Term, Timing, ToplossSimple, Turn, Unit, Variant,
};
pub use optimizer::Optimizer;
pub use programs::{Training, TrainingPrograms, names, predict};
pub use schedule::{Decay, Schedule};
pub use unet::{Family, UNet};
