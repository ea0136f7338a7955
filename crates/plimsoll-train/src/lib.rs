//! Training runs.
//!
//! [`Settings`] are what a user writes; with the fingerprint of a data set they become a [`RunConfig`], which says all that
//! the result depends on. [`RunPlan`] says what a run of it holds, part by part, and what the least is that would do.
//! [`train`] runs a fold: steps, validation, checkpoints; what was interrupted goes on to the same bits.

mod candidate;
mod checkpoint;
mod concessions;
mod config;
mod curve;
mod error;
mod fit;
mod journal;
mod parts;
mod plan_run;
mod rates;
mod record;
mod run_programs;
mod settings;
mod targets;
mod topology;
mod trainer;
mod way_out;

pub use checkpoint::{Checkpoint, CheckpointKind, read_parameters};
pub use concessions::Concession;
pub use config::{CONFIG_FILE, DatasetSummary, RunConfig};
pub use curve::{RunPoint, run_curve};
pub use error::TrainError;
pub use journal::{EpochRecord, LossPart, METRICS_FILE};
pub use parts::{Machine, Part, RunPlan, overhead};
pub use plan_run::{PlannedRun, plan_run_allowing};
pub use rates::measured;
pub use record::{CacheSummary, RUN_FILE, RunRecord};
pub use run_programs::RunPrograms;
pub use settings::Settings;
pub use topology::Topology;
pub use trainer::{Job, Observer, StepReport, train};
pub use way_out::WayOut;
