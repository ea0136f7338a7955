//! Sweeps of settings.

use std::path::{Path, PathBuf};

use plimsoll::{Context, Monitoring, PlanRequest, Sweep, SweepJob, SweepReport, TrialReport};
use plimsoll_metrics::Missing;
use plimsoll_run::{SweepFolder, SweepRequest, TrialPattern};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::arguments::{Machine, concession};
use super::files::Files;
use super::train::parallel;
use super::{JobFailure, parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepArguments {
    request: RequestArgument,
    dataset: Option<PathBuf>,
    out: PathBuf,
    plan: bool,
    resume: bool,
    only: Vec<String>,
    parallel: usize,
    machine: Machine,
    loader_threads: Option<usize>,
    allow: Vec<String>,
    skip_bad_cases: bool,
    allow_outside: bool,
    warm: bool,
    skip_validation: bool,
    missing: Missing,
    log_steps: bool,
    tensorboard: bool,
}

/// The request of a sweep.
#[derive(Deserialize)]
#[serde(untagged)]
enum RequestArgument {
    /// A file.
    File(PathBuf),
    /// The keys of such a file.
    Keys(Map<String, Value>),
}

#[derive(Serialize)]
struct SweepResult<'a> {
    folder: &'a Path,
    plan: SweepReport,
    /// The trials; none if the sweep was only planned.
    trials: Option<Vec<TrialReport>>,
}

impl SweepArguments {
    fn files(&self) -> Files {
        let file = match &self.request {
            RequestArgument::File(path) => Some(path),
            RequestArgument::Keys(_) => None,
        };
        Files::default()
            .read("the sweep", file)
            .read("the data set", &self.dataset)
            .write_into("out", Some(&self.out))
    }

    fn asked(&self) -> Result<SweepRequest, Failure> {
        let dataset = self.dataset.as_deref();
        match &self.request {
            RequestArgument::File(path) => SweepRequest::read(path, dataset).map_err(JobFailure::wrap),
            RequestArgument::Keys(keys) => {
                let text = toml::to_string(keys)
                    .map_err(|error| JobFailure::argument(format!("request is no sweep: {error}")))?;
                SweepRequest::parse(&text, Path::new("request"), dataset).map_err(JobFailure::wrap)
            }
        }
    }

    fn job(self) -> Result<SweepJob, Failure> {
        let asked = self.asked()?;
        let dataset = asked.dataset.clone().ok_or_else(|| {
            JobFailure::argument(
                "dataset is missing: neither the call nor the request of the sweep names one",
            )
        })?;
        let first = asked.arms.first().ok_or_else(|| JobFailure::argument("request has no arm"))?;
        let settings = first.settings.clone();
        let folder = std::path::absolute(&self.out)
            .map_err(|error| JobFailure::wrap(plimsoll::Error::at_path(&self.out, &error)))?;
        let threads = self.machine.threads()?;
        let backend = if self.plan { self.machine.open_to_plan()? } else { self.machine.open()? };
        let allowed = self.allow.iter().map(|name| concession(name)).collect::<Result<_, _>>()?;
        let only = self.only.iter().map(|pattern| pattern.parse::<TrialPattern>());
        let folder = SweepFolder::new(folder);
        Ok(SweepJob {
            only: only
                .collect::<Result<_, _>>()
                .map_err(|text| JobFailure::argument(format!("only: {text}")))?,
            plan: PlanRequest {
                dataset,
                settings,
                ram: self.machine.ram,
                threads,
                loader_threads: self.loader_threads,
                skip_bad_cases: self.skip_bad_cases,
                backend,
                allowed,
                plans_from: None,
                start: None,
                allow_outside: self.allow_outside,
            },
            asked,
            device: self.machine.device,
            parallel: parallel(self.parallel, threads)?,
            warm: self.warm,
            monitoring: Monitoring {
                steps: self.log_steps,
                tensorboard: self.tensorboard,
                openmetrics: None,
            },
            validate: !self.skip_validation,
            missing: self.missing,
            // A sweep that has begun can be planned, too.
            resume: self.resume || (self.plan && folder.is_begun()),
            folder,
        })
    }
}

/// Plans a sweep, and trains its trials unless only the plan is requested. Failed trials are part of the result.
pub(super) fn sweep(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: SweepArguments = parsed(arguments)?;
    let context = arguments.files().check(context)?;
    let is_planned_only = arguments.plan;
    let job = arguments.job()?;
    let mut sweep = Sweep::open(&job, &context).map_err(JobFailure::wrap)?;
    let plan = sweep.report();
    let folder = job.folder.path();
    if is_planned_only {
        return written(&SweepResult { folder, plan, trials: None });
    }
    sweep.expect_all_fit().map_err(JobFailure::wrap)?;
    sweep.record().map_err(JobFailure::wrap)?;
    let trials = sweep.run(&context).map_err(JobFailure::wrap)?;
    written(&SweepResult { folder, plan, trials: Some(trials) })
}
