//! Training folds of a run.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll::{Context, FoldChoice, Monitoring, NewCases, TrainRequest, TrainedPair};
use plimsoll_metrics::Missing;
use plimsoll_report::contents;
use plimsoll_run::{FoldName, RunFolder};
use serde::{Deserialize, Serialize};

use super::arguments::RunArguments;
use super::files::Files;
use super::{JobFailure, parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrainArguments {
    pub run: RunArguments,
    out: PathBuf,
    /// The names of the folds; none for all of the splits.
    folds: Option<Vec<String>>,
    parallel: usize,
    /// Trains a classifier of images for each pair of classes.
    pub one_vs_one: bool,
    warm: bool,
    resume: bool,
    accept_changed_data: bool,
    new_cases: Option<String>,
    splits: Option<PathBuf>,
    skip_validation: bool,
    missing: Missing,
    log_steps: bool,
    tensorboard: bool,
    openmetrics: Option<PathBuf>,
    /// Trains together with the other processes of a launcher.
    ranks: bool,
    /// The longest wait for another rank in seconds.
    patience: Option<f64>,
}

impl TrainArguments {
    pub fn files(&self) -> Files {
        Files::default()
            .read("the data set", [&self.run.dataset])
            .read("the model", &self.run.plans_from)
            .read("the settings", &self.run.config)
            .read("the start", self.run.start.as_ref().map(|start| &start.path))
            .read("the folds", &self.splits)
            .write_into("out", Some(&self.out))
            .write("openmetrics", self.openmetrics.as_deref(), contents::METRICS)
    }

    pub fn request(self) -> Result<TrainRequest, Failure> {
        let device = self.run.machine.device;
        let backend = self.run.machine.open()?;
        Ok(TrainRequest {
            parallel: parallel(self.parallel, self.run.machine.threads()?)?,
            plan: self.run.request(self.resume, backend)?,
            run: RunFolder::new(self.out),
            folds: folds(self.folds)?,
            device,
            warm: self.warm,
            resume: self.resume,
            accept_changed_data: self.accept_changed_data,
            new_cases: self.new_cases.as_deref().map(new_cases).transpose()?,
            splits: self.splits,
            monitoring: Monitoring {
                steps: self.log_steps,
                tensorboard: self.tensorboard,
                openmetrics: self.openmetrics,
            },
            validate: !self.skip_validation,
            missing: self.missing,
            like: None,
            notes: Vec::new(),
        })
    }
}

/// The time without progress after which a rank hangs. A shorter time than a second would name ranks that only wait for a processor.
fn patience(seconds: f64) -> Result<Duration, Failure> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(patience) if patience >= Duration::from_secs(1) => Ok(patience),
        _ => Err(JobFailure::argument(format!("patience is {seconds} s; pass at least 1 s"))),
    }
}

/// The folds with these names; all of the splits if none are named.
fn folds(names: Option<Vec<String>>) -> Result<FoldChoice, Failure> {
    let Some(names) = names else { return Ok(FoldChoice::Every) };
    let named = names.iter().map(|name| name.parse::<FoldName>());
    Ok(FoldChoice::Named(named.collect::<Result<_, _>>().map_err(JobFailure::wrap)?))
}

/// Checks the number of trainings at a time, of which each has a thread at least.
pub(super) fn parallel(parallel: usize, threads: usize) -> Result<usize, Failure> {
    match parallel {
        0 => Err(JobFailure::argument("parallel is 0; pass at least 1")),
        _ if parallel > threads => {
            Err(JobFailure::argument(format!("parallel is {parallel}, but there are {threads} threads")))
        }
        _ => Ok(parallel),
    }
}

fn new_cases(name: &str) -> Result<NewCases, Failure> {
    match name {
        "include" => Ok(NewCases::Include),
        "leave-out" => Ok(NewCases::LeaveOut),
        _ => Err(JobFailure::argument(format!(
            "new_cases is \"{name}\", but must be \"include\" or \"leave-out\""
        ))),
    }
}

/// The classifiers of all pairs of classes.
#[derive(Serialize)]
struct PairsResult {
    pairs: Vec<TrainedPair>,
}

/// Trains and validates folds until all are done, or the job is asked to stop.
pub(super) fn train(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: TrainArguments = parsed(arguments)?;
    let patience = arguments.patience.map(patience).transpose()?;
    match (arguments.ranks, patience) {
        (true, patience) => return super::ranks::train(arguments, patience, context),
        (false, Some(_)) => {
            return Err(JobFailure::argument(
                "patience is the wait for other ranks, but this training has one process",
            ));
        }
        (false, None) => {}
    }
    let context = arguments.files().check(context)?;
    if arguments.one_vs_one {
        let pairs = plimsoll::train_pairs(&arguments.request()?, &context).map_err(JobFailure::wrap)?;
        return written(&PairsResult { pairs });
    }
    written(&plimsoll::train(&arguments.request()?, &context).map_err(JobFailure::wrap)?)
}
