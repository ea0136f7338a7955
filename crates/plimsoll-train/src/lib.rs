//! Training runs.
//!
//! [`plan_run_allowing`] states the memory of a run part by part, and the smallest limit that suffices. [`train`] runs a fold: steps,
//! validation, checkpoints. An interrupted fold resumes to the same bits.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod candidate;
mod concessions;
mod curve;
mod data;
mod error;
mod exchange;
mod fit;
mod gradient_sums;
mod link;
mod patch_size;
mod plan_run;
mod planning;
mod products;
mod ranks;
mod rates;
mod ring;
mod run_programs;
mod scaling;
mod stream;
mod targets;
mod trainer;

pub use candidate::SPARING;
pub use concessions::Concession;
pub use curve::{CurveProgress, RunPoint, run_curve};
pub use data::{DataFacts, RunData, ScratchFacts, UntrainedClass};
pub use error::TrainError;
pub use link::{Link, LinkError};
pub use patch_size::{largest_patch, patch_costs};
pub use plan_run::{PlannedRun, plan_run_allowing};
pub use planning::{Planning, PlanningStep};
pub use products::fastest_products;
pub use ranks::RankedRun;
pub use rates::measured;
pub use run_programs::RunPrograms;
pub use scaling::{FoldsAtOnce, RankCost, RankScaling, StepExchange, StepSeconds};
pub use trainer::{Job, Observer, Siblings, StepReport, train, train_rank};
