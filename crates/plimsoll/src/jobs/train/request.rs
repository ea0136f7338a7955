//! The request of a training.

use std::path::{Path, PathBuf};

use plimsoll_metrics::Missing;
use plimsoll_run::{FoldName, Resolved, RunFolder};

use crate::backend::DeviceName;
use crate::jobs::data_changes::NewCases;
use crate::jobs::plan::PlanRequest;
use crate::monitors::Monitoring;

/// Folds to train, with the settings of their run.
#[derive(Clone)]
pub struct TrainRequest {
    /// The data set, the settings and the memory limit.
    pub plan: PlanRequest,
    /// The folder of the run.
    pub run: RunFolder,
    /// The folds to train.
    pub folds: FoldChoice,
    /// The largest number of folds that train at the same time.
    pub parallel: usize,
    /// The device that runs the programs.
    pub device: DeviceName,
    /// Reads cases into the cache before the first step.
    pub warm: bool,
    /// Resumes folds that have begun.
    pub resume: bool,
    /// Accepts data that has changed since the run began.
    pub accept_changed_data: bool,
    /// The treatment of cases that were added to the data set after the run began.
    pub new_cases: Option<NewCases>,
    /// The file of folds; `None` for the folds of the run, or else of the data set.
    pub splits: Option<PathBuf>,
    /// Files and events for dashboards.
    pub monitoring: Monitoring,
    /// Predicts and scores the validation cases of each fold after its training.
    pub validate: bool,
    /// The treatment of missing scores in means.
    pub missing: Missing,
    /// The resolved settings of other runs that this run shares; `None` for a run of its own. A resumed run keeps its own settings.
    pub like: Option<Resolved>,
    /// Facts about this process for the journal of the run.
    pub notes: Vec<String>,
}

/// A choice of folds of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldChoice {
    /// The named folds.
    Named(Vec<FoldName>),
    /// All folds of the splits.
    Every,
}

impl TrainRequest {
    /// A request to train and validate fold 0 of a planned run from random weights, in the folder `run`.
    pub fn new(plan: PlanRequest, run: impl AsRef<Path>) -> TrainRequest {
        TrainRequest {
            plan,
            run: RunFolder::new(run.as_ref()),
            folds: FoldChoice::Named(vec![FoldName::Number(0)]),
            parallel: 1,
            device: DeviceName::Cpu,
            warm: false,
            resume: false,
            accept_changed_data: false,
            new_cases: None,
            splits: None,
            monitoring: Monitoring::default(),
            validate: true,
            missing: Missing::default(),
            like: None,
            notes: Vec::new(),
        }
    }
}
