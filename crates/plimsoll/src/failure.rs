//! What a command ends with when it fails: one line that says what is wrong, and one that says what to do.

use std::fmt;
use std::io;
use std::path::Path;

use plimsoll_disk::Substitute;
use plimsoll_disk::outputs::{OutputError, OutputRemedy};
use plimsoll_report::ReportError;
pub use plimsoll_run::one_line;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    hint: String,
    status: u8,
    /// Whether it only says that the job was asked to stop.
    is_stopped: bool,
}

/// The status of a process that failed, where nothing else is said.
const FAILED: u8 = 1;

/// What a command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// From a message of the command line's own, with what to do about it.
    pub fn new(message: impl fmt::Display, hint: impl Into<String>) -> Failure {
        Failure { error: anyhow::anyhow!("{message}"), hint: hint.into(), status: FAILED, is_stopped: false }
    }

    /// From what the system said of a file or a folder.
    pub fn of_path(path: &Path, error: &io::Error) -> Failure {
        let hint = Substitute::of(error).map_or_else(|| way_out_of(error.kind()), Substitute::hint);
        Failure::new(format!("{}: {error}", path.display()), hint)
    }

    /// From a job that was asked to stop, with what it has kept and how to go on.
    pub fn stopped(message: impl fmt::Display, hint: impl Into<String>) -> Failure {
        Failure { is_stopped: true, ..Failure::new(message, hint) }
    }

    /// The same after a signal: with the status of a process that the signal ended, and with its name if the job only says that it was stopped.
    pub fn with_signal(self, name: &str, status: u8) -> Failure {
        let error = match self.is_stopped {
            true => anyhow::anyhow!("{name}: {}", self.error),
            false => self.error,
        };
        Failure { error, status, ..self }
    }

    /// What the process ends with.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Prints it to the standard error stream.
    pub fn print(&self) {
        eprintln!("error: {}\nhint: {}", self.line(), self.hint);
    }

    /// What is wrong, in one line.
    pub fn line(&self) -> String {
        one_line(self.error.as_ref())
    }

    /// What to do about it.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

/// What to do about an error of the system's.
fn way_out_of(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::Interrupted => "give the same command again; nothing half-written is left",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "check who may read and write there, or choose another place"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is where a folder must be: choose another place, or move it away"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on that disk, or choose another one"
        }
        io::ErrorKind::FileTooLarge => "raise the limit of file sizes (`ulimit -f`), or choose another disk",
        _ => "check the path, the disk and who may write there",
    }
}

/// What to do about an error that does not say so itself.
fn way_out(error: &anyhow::Error) -> String {
    let of_prediction = error.chain().find_map(|cause| cause.downcast_ref::<plimsoll_infer::InferError>());
    if let Some(plimsoll_infer::InferError::Interrupted { .. }) = of_prediction {
        return "the same command with --overwrite predicts all images anew".into();
    }
    let said_by_system = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    match said_by_system {
        Some(error) => {
            Substitute::of(error).map_or_else(|| way_out_of(error.kind()), Substitute::hint).into()
        }
        None if error.chain().any(|cause| cause.is::<plimsoll_memory::OverBudget>()) => "raise --ram".into(),
        None => match error.chain().find_map(|cause| cause.downcast_ref::<plimsoll_plan::PlanError>()) {
            Some(_) => {
                "no setting is at fault: report it with the command, the settings and this line".into()
            }
            None => "`plimsoll settings` lists what can be set, and --help what a command takes".into(),
        },
    }
}

/// What to do about something in the place of a file, whichever reader found it.
fn of_substitute(error: &anyhow::Error) -> Option<String> {
    let mut errors = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    errors.find_map(Substitute::of).map(|found| found.hint().into())
}

/// Errors that know what to do about themselves.
macro_rules! with_hint {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                let hint = error.hint();
                let error = anyhow::Error::from(error);
                let hint = of_substitute(&error).or(hint).unwrap_or_else(|| way_out(&error));
                Failure { hint, error, status: FAILED, is_stopped: false }
            }
        })*
    };
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Failure {
        let hint = match error.remedy() {
            OutputRemedy::NewFile(name) => format!("name a file that does not exist yet with {name}"),
            OutputRemedy::NewFileOrMove(name) => {
                format!("name a file that does not exist yet with {name}, or move the existing one away")
            }
            OutputRemedy::OtherEnding(name) => format!("name a file of another ending with {name}"),
            OutputRemedy::Move => "move it away".into(),
            OutputRemedy::FolderElsewhere(name) => {
                format!("name a folder outside of all inputs with {name}")
            }
            OutputRemedy::CheckPath => "check the path, the disk and who may read and write there".into(),
        };
        Failure { error: anyhow::Error::from(error), hint, status: FAILED, is_stopped: false }
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Failure {
        let hint = match &error {
            ReportError::NoRun { .. } => {
                "name the folder that `plimsoll train --out` or `plimsoll sweep` wrote, or a fold of it"
                    .into()
            }
            ReportError::DatasetUnknown { .. } | ReportError::CaseMissing { .. } => {
                format!("{}: --dataset", error.hint())
            }
            ReportError::Slice { .. } => {
                "leave --preview out, and look at the case with `plimsoll inspect`".into()
            }
            ReportError::Shrink { .. } => "leave --volumes out".into(),
            ReportError::TooManyRows { .. } => {
                "choose scores with --metric, classes with --class, or fewer candidates".into()
            }
            _ => error.hint(),
        };
        match error {
            ReportError::File { path, source } => Failure::of_path(&path, &source),
            ReportError::Io(error) => error.into(),
            ReportError::Json(error) => error.into(),
            ReportError::Memory(error) => error.into(),
            ReportError::Map(error) => error.into(),
            ReportError::Metric(error) => error.into(),
            ReportError::Run(error) => error.into(),
            ReportError::Table(error) => error.into(),
            ReportError::Volume(error) => error.into(),
            own => Failure { hint, error: own.into(), status: FAILED, is_stopped: false },
        }
    }
}

/// Errors that do not.
macro_rules! without_hint {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                let error = anyhow::Error::from(error);
                Failure { hint: way_out(&error), error, status: FAILED, is_stopped: false }
            }
        })*
    };
}

with_hint!(
    plimsoll_data::DatasetError,
    plimsoll_data::InspectError,
    plimsoll_data::LoaderError,
    plimsoll_data::SamplerError,
    plimsoll_data::SplitsError,
    plimsoll_data::phantom::PhantomError,
    plimsoll_dicom::DicomError,
    plimsoll_image::DatasetError,
    plimsoll_infer::InferError,
    plimsoll_metrics::MetricError,
    plimsoll_metrics::classification::TableError,
    plimsoll_metrics::comparison::ComparisonError,
    plimsoll_nn::ConfigError,
    plimsoll_postprocess::PostprocessError,
    plimsoll_nn::weights::WeightError,
    plimsoll_run::RunError,
    plimsoll_train::TrainError,
    plimsoll_volume::VolumeError,
    plimsoll_plan::EngineError,
    plimsoll_plan::PlanError,
);
without_hint!(
    std::io::Error,
    serde_json::Error,
    plimsoll_graph::GraphError,
    plimsoll_memory::MapError,
    plimsoll_memory::OverBudget,
);
