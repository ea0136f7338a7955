//! A sweep: some choices of settings, each trained with some seeds on some folds.
//!
//! [`SweepRequest`] is what its user asks for, in a file; [`Trials`] are what follows from it, in the [`SweepFolder`].

mod folder;
mod grid;
mod request;
mod trial;

pub use folder::{Arm, Resolved, SweepFolder, Trials};
pub use request::{ArmRequest, SweepRequest};
pub use trial::{Trial, TrialFailure, TrialPattern};
