//! Failures of jobs.

use std::error::Error as StdError;
use std::fmt;
use std::iter::successors;

use plimsoll::{Cause, Error};
use plimsoll_infer::InferError;
use plimsoll_memory::{HolderUse, MapError, OverBudget};
use plimsoll_remedy::render;
use plimsoll_run::RunError;
use plimsoll_train::TrainError;

use crate::{Failure, Keywords};

/// The failure of a job, in the words of Python.
#[derive(Debug, PartialEq)]
pub struct JobFailure {
    /// The message in one line.
    pub message: String,
    /// A way to continue.
    pub remedy: Option<String>,
    /// The kind, from which the exception follows.
    pub kind: Kind,
}

/// The kind of a failure of a job.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// An argument has a wrong value: `ValueError` in Python.
    Argument,
    /// The job was stopped, and can be resumed: `plimsoll.Error`.
    Stopped,
    /// A limit of memory is too low: `plimsoll.OverLimit`.
    OverLimit {
        /// The bytes that are needed.
        needed: u64,
        /// The bytes that are available.
        available: u64,
        /// The limit in bytes.
        limit: u64,
        /// The largest holders and their bytes, the largest first.
        holders: Vec<(String, u64)>,
    },
    /// Anything else: `plimsoll.Error`.
    Failed,
}

impl JobFailure {
    /// Reports that an argument has a wrong value. The message names it.
    pub fn argument(message: impl Into<String>) -> Failure {
        JobFailure { message: message.into(), remedy: None, kind: Kind::Argument }.into()
    }

    /// Reports a failure of the job itself.
    pub fn failed(message: impl Into<String>, remedy: Option<String>) -> Failure {
        JobFailure { message: message.into(), remedy, kind: Kind::Failed }.into()
    }

    /// Returns the failure for an error of the library.
    pub fn wrap(error: impl Into<Error>) -> Failure {
        let error = error.into();
        let kind = if error.is_stopped() {
            Kind::Stopped
        } else {
            exceeded_limit(error.cause()).unwrap_or(Kind::Failed)
        };
        JobFailure {
            message: render(&error.line(), &Keywords),
            remedy: Some(error.remedy().render(&Keywords)).filter(|remedy| !remedy.is_empty()),
            kind,
        }
        .into()
    }
}

impl From<JobFailure> for Failure {
    fn from(failure: JobFailure) -> Failure {
        Failure::Job(Box::new(failure))
    }
}

impl fmt::Display for JobFailure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)
    }
}

/// The exceeded limit of memory, if it is the cause of an error.
fn exceeded_limit(cause: &Cause) -> Option<Kind> {
    // Transparent causes have the source of the error that they wrap, which would be passed over.
    let error: &(dyn StdError + 'static) = match cause {
        Cause::Memory(error) | Cause::Map(MapError::OverBudget(error)) => error,
        Cause::Infer(
            InferError::OverBudget(error)
            | InferError::Overhead(error)
            | InferError::Memory(MapError::OverBudget(error)),
        ) => error,
        Cause::Run(error) | Cause::Train(TrainError::Run(error)) => error,
        Cause::Train(error) => error,
        Cause::Inspect(error) => error,
        Cause::Loader(error) => error,
        Cause::Metric(error) => error,
        other => other,
    };
    let chain = || successors(Some(error), |&error: &&(dyn StdError + 'static)| error.source());
    if let Some(over) = chain().find_map(|cause| cause.downcast_ref::<OverBudget>()) {
        let holders = over.top.iter().map(|HolderUse { holder, now, .. }| (holder.clone(), now.0)).collect();
        let (needed, available, limit) = (over.needed.0, over.free.0, over.limit.0);
        return Some(Kind::OverLimit { needed, available, limit, holders });
    }
    match chain().find_map(|cause| cause.downcast_ref::<RunError>())? {
        RunError::Infeasible { needed, limit, .. } | RunError::InfeasibleOnDevice { needed, limit, .. } => {
            let (needed, limit) = (needed.0, limit.0);
            Some(Kind::OverLimit { needed, available: limit, limit, holders: Vec::new() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::{Budget, Bytes};

    use super::*;

    #[test]
    fn limits_that_are_too_low_keep_their_numbers() {
        let over = Budget::new(Bytes(10)).reserve("a volume", Bytes(12)).unwrap_err();
        let infeasible = RunError::Infeasible {
            needed: Bytes(12),
            limit: Bytes(10),
            parts: String::new(),
            ways_out: Vec::new(),
        };
        for failure in [JobFailure::wrap(over), JobFailure::wrap(infeasible)] {
            let Failure::Job(job) = failure else { panic!("a failure of a job") };
            let Kind::OverLimit { needed: 12, available: 10, limit: 10, .. } = job.kind else {
                panic!("{job:?}")
            };
        }
        let other = JobFailure::wrap(plimsoll::Error::new("no such thing", "raise ‹ram=2MiB›"));
        let Failure::Job(job) = other else { panic!("a failure of a job") };
        assert_eq!((job.kind, job.remedy.as_deref()), (Kind::Failed, Some("raise ram=\"2MiB\"")));
    }
}
