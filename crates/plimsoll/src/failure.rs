//! What a command ends with when it fails: one line that says what is wrong, and one that says what to do.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    hint: String,
}

/// What a command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// From a message of the command line's own, with what to do about it.
    pub fn new(message: impl fmt::Display, hint: impl Into<String>) -> Failure {
        Failure { error: anyhow::anyhow!("{message}"), hint: hint.into() }
    }

    /// From what the system said of a file or a folder.
    pub fn of_path(path: &Path, error: &io::Error) -> Failure {
        Failure::new(format!("{}: {error}", path.display()), way_out_of(error.kind()))
    }

    /// Prints it to the standard error stream.
    pub fn print(&self) {
        // The causes stand in one line, unless a cause only says again what is said already.
        let mut line = self.error.to_string();
        for cause in self.error.chain().skip(1) {
            let cause = cause.to_string();
            if !line.contains(&cause) {
                line = format!("{line}: {cause}");
            }
        }
        eprintln!("error: {}\nhint: {}", line.replace('\n', " "), self.hint);
    }
}

/// What to do about an error of the system's.
fn way_out_of(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "check who may read and write there, or choose another place"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is where a folder must be: choose another place, or move it away"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on that disk, or choose another one"
        }
        _ => "check the path, the disk and who may write there",
    }
}

/// What to do about an error that does not say so itself.
fn way_out(error: &anyhow::Error) -> String {
    let said_by_system = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    match said_by_system {
        Some(error) => way_out_of(error.kind()).into(),
        None if error.chain().any(|cause| cause.is::<plimsoll_memory::OverBudget>()) => "raise --ram".into(),
        None => "docs/settings.md says what can be set, and --help what a command takes".into(),
    }
}

/// Errors that know what to do about themselves.
macro_rules! with_hint {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                let hint = error.hint();
                let error = anyhow::Error::from(error);
                Failure { hint: hint.unwrap_or_else(|| way_out(&error)), error }
            }
        })*
    };
}

/// Errors that do not.
macro_rules! without_hint {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                let error = anyhow::Error::from(error);
                Failure { hint: way_out(&error), error }
            }
        })*
    };
}

with_hint!(
    plimsoll_data::DatasetError,
    plimsoll_data::InspectError,
    plimsoll_data::SplitsError,
    plimsoll_data::phantom::PhantomError,
    plimsoll_infer::InferError,
    plimsoll_metrics::MetricError,
    plimsoll_metrics::classification::TableError,
    plimsoll_nn::ConfigError,
    plimsoll_nn::weights::WeightError,
    plimsoll_train::TrainError,
    plimsoll_volume::VolumeError,
);
without_hint!(
    std::io::Error,
    serde_json::Error,
    plimsoll_graph::GraphError,
    plimsoll_plan::PlanError,
    plimsoll_memory::MapError,
    plimsoll_memory::OverBudget,
    plimsoll_plan::EngineError,
);
