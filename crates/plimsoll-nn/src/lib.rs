//! Networks, losses and optimizers, written as programs; weight files in and out.
//!
//! A [`Network`] writes its forward pass; [`Architecture`] is what a run needs to know of it. [`Training`] makes of it the
//! programs of a run: the step (loss, gradients, update), validation, and [`predict`] for inference. [`weights`] reads and writes
//! parameters under the names that PyTorch's implementations give them.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod error;
mod groups;
mod init;
mod networks;
mod objective;
mod optimizer;
pub mod or_infinity;
mod plateau;
mod programs;
mod schedule;
pub mod weights;

pub use error::ConfigError;
pub use groups::ParameterGroup;
pub use networks::{
    Architecture, AttentionUnet, Classifies, Constant, Design, DynUNet, EncoderNames, Extents, ForwardMode,
    HdBet, Head, LinkNet, MedNeXt, Merging, MeshActivation, MeshNet, MonaiUNet, Network, NetworkName,
    NetworkSettings, NetworkSize, PlainConvUNet, Primus, ResidualEncoderUNet, SEResNeXt50, SegResNet,
    SegResNetDS, StemPool, StuNet, SwinUnetr, TokenPositions, UNet, UNetNorm, Unetr, UnknownNetwork,
    UpsampleMode, bounds,
};
pub use objective::{
    AppliesTo, Boundary, ClDice, HausdorffDt, MorphSkeleton, Objective, Otherwise, SkeletonRecall,
    SoftTargets, Structure, SurfaceDistance, TargetInput, TargetInputKind, Term, Timing, ToplossSimple, Turn,
    Unit, Variant,
};
pub use optimizer::Optimizer;
pub use plateau::{Goal, Plateau, PlateauState};
pub use programs::{
    Headless, RankPlace, TrainedTensor, Training, TrainingPrograms, WeightPart, WholePrograms, averages,
    explain, names, predict, split_sources, trained_tensors,
};
pub use schedule::{Decay, RateInterval, Schedule};
