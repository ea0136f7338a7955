//! Failures of jobs.

use std::fmt;

use plimsoll::Error;
use plimsoll_memory::{HolderUse, OverBudget};
use plimsoll_remedy::render;

use crate::error::over_limit;
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

impl From<OverBudget> for Kind {
    fn from(over: OverBudget) -> Kind {
        let holders = over.top.into_iter().map(|HolderUse { holder, now, .. }| (holder, now.0)).collect();
        Kind::OverLimit { needed: over.needed.0, available: over.free.0, limit: over.limit.0, holders }
    }
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
            over_limit(error.cause()).map_or(Kind::Failed, Kind::from)
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

#[cfg(test)]
mod tests {
    use plimsoll_data::InspectError;
    use plimsoll_memory::{Budget, Bytes};
    use plimsoll_run::RunError;
    use plimsoll_train::TrainError;

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
        let case = InspectError::Case { case: "a".into(), problem: over.clone().into() };
        let failures = [
            JobFailure::wrap(over.clone()),
            JobFailure::wrap(case),
            JobFailure::wrap(TrainError::Run(RunError::Memory(over.into()))),
            JobFailure::wrap(infeasible),
        ];
        for failure in failures {
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
