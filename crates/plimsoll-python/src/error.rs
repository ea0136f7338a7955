//! Failures as Python sees them.

use std::error::Error as StdError;
use std::iter::successors;

use plimsoll_infer::InferError;
use plimsoll_memory::{Bytes, HolderUse, MapError, OverBudget};
use plimsoll_metrics::MetricError;
use plimsoll_morphology::MorphologyError;
use plimsoll_remedy::render;
use plimsoll_run::RunError;

use crate::{JobFailure, Keywords, Kind};

/// The reason why a call failed.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// An argument has a wrong value: `ValueError` in Python.
    Argument {
        /// The argument's name.
        argument: &'static str,
        /// The message, which continues the name of the argument.
        message: String,
    },
    /// A budget has too little memory left: `plimsoll.OverLimit` in Python.
    OverLimit(OverBudget),
    /// A job of the library failed.
    Job(Box<JobFailure>),
    /// Anything else: `plimsoll.Error` in Python.
    Failed {
        /// The message.
        message: String,
        /// A way to continue.
        remedy: Option<String>,
    },
}

impl Failure {
    /// Reports that an argument has a wrong value.
    pub fn argument(argument: &'static str, message: impl Into<String>) -> Failure {
        Failure::Argument { argument, message: message.into() }
    }

    /// The remedy in the words of Python.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Failure::Argument { .. } => None,
            Failure::OverLimit(over) => {
                Some(format!("pass a budget of at least {}", over.limit - over.free + over.needed))
            }
            Failure::Failed { remedy, .. } => remedy.clone(),
            Failure::Job(job) => job.remedy.clone(),
        }
    }

    /// Returns `true` if a job only stopped because it was asked to.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Failure::Job(job) if job.kind == Kind::Stopped)
    }

    /// The holders of a budget that is used up, the largest first: name and bytes.
    pub fn holders(&self) -> Vec<(String, u64)> {
        match self {
            Failure::OverLimit(over) => over
                .top
                .iter()
                .map(|HolderUse { holder, now: Bytes(now), .. }| (holder.clone(), *now))
                .collect(),
            Failure::Argument { .. } | Failure::Failed { .. } | Failure::Job(_) => Vec::new(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Argument { argument, message } => write!(to, "{argument} {message}"),
            Failure::OverLimit(over) => write!(to, "{over}"),
            Failure::Failed { message, .. } => write!(to, "{message}"),
            Failure::Job(job) => write!(to, "{job}"),
        }
    }
}

/// Returns the request that a limit of memory refuses, if that is the cause of an error: one of a budget, or a plan that does not fit.
pub(crate) fn over_limit(error: &(dyn StdError + 'static)) -> Option<OverBudget> {
    if let Some(over) = OverBudget::among_causes(error) {
        return Some(over.clone());
    }
    let plan =
        |holder: String, needed, limit| OverBudget { holder, needed, free: limit, limit, top: Vec::new() };
    successors(Some(error), |&error| error.source()).find_map(|cause| {
        if let Some(InferError::Overhead(over)) = cause.downcast_ref() {
            return Some(over.clone());
        }
        if let Some(InferError::Infeasible { case, needed, limit, .. }) = cause.downcast_ref() {
            return Some(plan(case.clone(), *needed, *limit));
        }
        match cause.downcast_ref()? {
            RunError::Infeasible { needed, limit, .. } => Some(plan("the run".into(), *needed, *limit)),
            RunError::InfeasibleOnDevice { needed, limit, .. } => {
                Some(plan("the run on the device".into(), *needed, *limit))
            }
            _ => None,
        }
    })
}

impl From<MapError> for Failure {
    fn from(error: MapError) -> Failure {
        match error {
            MapError::OverBudget(over) => Failure::OverLimit(over),
            other => Failure::Failed { message: other.to_string(), remedy: None },
        }
    }
}

impl From<MorphologyError> for Failure {
    fn from(error: MorphologyError) -> Failure {
        match error {
            MorphologyError::Memory(error) => error.into(),
            MorphologyError::Spacing { spacing } => Failure::argument(
                "sampling",
                format!("{spacing:?} has an element that is not positive and finite"),
            ),
            MorphologyError::NoThreads => Failure::argument("threads", "is 0"),
            other => {
                let remedy = other.remedy();
                Failure::Failed { message: other.to_string(), remedy }
            }
        }
    }
}

impl From<MetricError> for Failure {
    fn from(error: MetricError) -> Failure {
        match error {
            MetricError::Memory(error) => error.into(),
            MetricError::Morphology(error) => error.into(),
            other => {
                let remedy = other.remedy().map(|text| render(&text, &Keywords));
                Failure::Failed { message: render(&other.to_string(), &Keywords), remedy }
            }
        }
    }
}
