//! Training runs.
//!
//! [`Settings`] are what a user writes; with the fingerprint of a data set they become a [`RunConfig`], which says all that
//! the result depends on. [`RunPlan`] says what a run of it holds, part by part, and what the least is that would do.
//! [`train`] runs a fold: steps, validation, checkpoints; what was interrupted goes on to the same bits.

mod checkpoint;
mod concessions;
mod config;
mod error;
mod journal;
mod parts;
mod plan_run;
mod rates;
mod record;
mod settings;
mod topology;
mod trainer;

pub use checkpoint::{Checkpoint, CheckpointKind, read_parameters};
pub use concessions::{Concession, plan_run_allowing};
pub use config::{CONFIG_FILE, DatasetSummary, RunConfig};
pub use error::TrainError;
pub use journal::{EpochRecord, LossPart, METRICS_FILE};
pub use parts::{Machine, Part, RunPlan, WayOut, overhead};
pub use plan_run::{PlannedRun, RunPoint, run_curve};
pub use rates::rates;
pub use record::{CacheSummary, RUN_FILE, RunRecord};
pub use settings::{NetworkSettings, Settings};
pub use topology::Topology;
pub use trainer::{Job, Observer, StepReport, train};
