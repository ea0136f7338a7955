//! Errors of jobs, with a remedy for each.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::iter::successors;
use std::path::{Path, PathBuf};

use plimsoll_disk::Substitute;
use plimsoll_disk::outputs::{OutputError, OutputRemedy};
use plimsoll_remedy::Remedy;
use plimsoll_report::ReportError;
use plimsoll_run::one_line;

/// The result of a job.
pub type Outcome<T = ()> = Result<T, Error>;

/// An error of a job: its cause, and a remedy.
#[derive(Debug)]
pub struct Error {
    cause: Box<Cause>,
    remedy: Remedy,
}

impl Error {
    /// A request that a job refuses, with a remedy.
    pub fn new(message: impl fmt::Display, remedy: impl Into<Remedy>) -> Error {
        Error::with_cause(Cause::Refused { message: message.to_string() }, remedy)
    }

    /// The system's error about a file or a folder.
    pub fn at_path(path: &Path, error: &io::Error) -> Error {
        let hint = Substitute::find(error).map_or_else(|| way_out_of(error.kind()), Substitute::remedy);
        let cause = Cause::File { path: path.into(), reason: error.to_string(), kind: error.kind() };
        Error::with_cause(cause, hint)
    }

    /// A stopped job: the results that it has saved, and the way to continue.
    pub fn stopped(message: impl fmt::Display, remedy: impl Into<Remedy>) -> Error {
        Error::with_cause(Cause::Stopped { message: message.to_string() }, remedy)
    }

    /// A fault in a field of a record that this program writes.
    pub(crate) fn in_record(path: &Path, field: String, reason: String, remedy: impl Into<Remedy>) -> Error {
        Error::with_cause(Cause::Record { path: path.into(), field, reason }, remedy)
    }

    fn with_cause(cause: Cause, remedy: impl Into<Remedy>) -> Error {
        Error { cause: Box::new(cause), remedy: remedy.into() }
    }

    /// The cause.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns whether the job only stopped because it was asked to.
    pub fn is_stopped(&self) -> bool {
        matches!(*self.cause, Cause::Stopped { .. })
    }

    /// The error with all its causes in one line, in which parameters are marked: see [`plimsoll_remedy::render`].
    pub fn line(&self) -> String {
        one_line(&*self.cause)
    }

    /// The remedy.
    pub fn remedy(&self) -> &Remedy {
        &self.remedy
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of parameters in backquotes, which belong to no front end.
        Remedy::from(self.line()).fmt(f)
    }
}

impl StdError for Error {}

/// An error and all its causes, the outermost first.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// The cause of an error: the error of the crate whose subject it is, or of the job itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The job refuses the request.
    #[error("{message}")]
    Refused {
        /// The reason, in one line.
        message: String,
    },
    /// The job was asked to stop.
    #[error("{message}")]
    Stopped {
        /// The results that are kept.
        message: String,
    },
    /// A file or a folder cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        reason: String,
        /// The kind of the reason.
        kind: io::ErrorKind,
    },
    /// A record that this program writes was changed or damaged.
    #[error("{} is a damaged record of predictions: `{field}` {reason}", path.display())]
    Record {
        /// The file of the record.
        path: PathBuf,
        /// The field, like `cases[2].windows`.
        field: String,
        /// The fault of the field.
        reason: String,
    },
    /// A device for programs.
    #[error("{message}")]
    Device {
        /// The error of the driver, in one line.
        message: String,
    },
    /// An output would replace an input, or cannot be written.
    #[error("{0}")]
    Output(#[source] OutputError),
    /// A page or a picture.
    #[error("{0}")]
    Report(#[source] ReportError),
    /// A data set of volumes.
    #[error("{0}")]
    Dataset(#[source] plimsoll_data::DatasetError),
    /// The inspection of a data set.
    #[error("{0}")]
    Inspect(#[source] plimsoll_data::InspectError),
    /// Loading batches.
    #[error("{0}")]
    Loader(#[source] plimsoll_data::LoaderError),
    /// Sampling patches.
    #[error("{0}")]
    Sampler(#[source] plimsoll_data::SamplerError),
    /// The folds of a data set.
    #[error("{0}")]
    Splits(#[source] plimsoll_data::SplitsError),
    /// A data set that is made up.
    #[error("{0}")]
    Phantom(#[source] plimsoll_data::phantom::PhantomError),
    /// A DICOM file.
    #[error("{0}")]
    Dicom(#[source] plimsoll_dicom::DicomError),
    /// A data set of pictures.
    #[error("{0}")]
    Images(#[source] plimsoll_data::pictures::DatasetError),
    /// A prediction.
    #[error("{0}")]
    Infer(#[source] plimsoll_infer::InferError),
    /// A segmentation by prompts.
    #[error("{0}")]
    Interactive(#[source] plimsoll_infer::InteractiveError),
    /// Scores.
    #[error("{0}")]
    Metric(#[source] plimsoll_metrics::MetricError),
    /// A table of probabilities.
    #[error("{0}")]
    Table(#[source] plimsoll_metrics::classification::TableError),
    /// A comparison of models.
    #[error("{0}")]
    Comparison(#[source] plimsoll_metrics::comparison::ComparisonError),
    /// The settings of a network or a loss.
    #[error("{0}")]
    Config(#[source] plimsoll_nn::ConfigError),
    /// Steps on label maps.
    #[error("{0}")]
    Postprocess(#[source] plimsoll_postprocess::PostprocessError),
    /// A file of weights.
    #[error("{0}")]
    Weights(#[source] plimsoll_nn::weights::WeightError),
    /// A model.
    #[error("{0}")]
    Model(#[source] plimsoll_models::ModelError),
    /// A run on disk.
    #[error("{0}")]
    Run(#[source] plimsoll_run::RunError),
    /// Training.
    #[error("{0}")]
    Train(#[source] plimsoll_train::TrainError),
    /// A file of a volume.
    #[error("{0}")]
    Volume(#[source] plimsoll_volume::VolumeError),
    /// Running a program.
    #[error("{0}")]
    Engine(#[source] plimsoll_plan::EngineError),
    /// Planning a program.
    #[error("{0}")]
    Plan(#[source] plimsoll_plan::PlanError),
    /// A system call.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// JSON.
    #[error("{0}")]
    Json(#[source] serde_json::Error),
    /// A tensor program.
    #[error("{0}")]
    Graph(#[source] plimsoll_graph::GraphError),
    /// Mapped memory.
    #[error("{0}")]
    Map(#[source] plimsoll_memory::MapError),
    /// The memory limit.
    #[error("{0}")]
    Memory(#[source] plimsoll_memory::OverBudget),
}

/// The remedy of an error of the system.
fn way_out_of(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::Interrupted => "give the same command again; nothing half-written is left",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "check the permissions, or choose another folder"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is in the place of a folder: choose another folder, or move the file"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on that disk, or choose another one"
        }
        io::ErrorKind::FileTooLarge => "raise the limit of file sizes (`ulimit -f`), or choose another disk",
        _ => "check the path, the disk and the permissions",
    }
}

/// The remedy of an error that does not name one.
fn way_out(error: &(dyn StdError + 'static)) -> String {
    let of_prediction = chain(error).find_map(|cause| cause.downcast_ref::<plimsoll_infer::InferError>());
    if let Some(plimsoll_infer::InferError::Interrupted { .. }) = of_prediction {
        return "the same command with ‹overwrite› predicts all images again".into();
    }
    let said_by_system = chain(error).find_map(|cause| cause.downcast_ref::<io::Error>());
    match said_by_system {
        Some(error) => {
            Substitute::find(error).map_or_else(|| way_out_of(error.kind()), Substitute::remedy).into()
        }
        None => match chain(error).find_map(|cause| cause.downcast_ref::<plimsoll_memory::OverBudget>()) {
            Some(refused) => refused.remedy(),
            None if chain(error).any(|cause| cause.is::<plimsoll_plan::PlanError>()) => {
                "this is a bug: report it with the command, the settings and this message".into()
            }
            None => "‹job settings› lists the settings".into(),
        },
    }
}

/// The remedy of something else in the place of a file, whichever reader found it.
fn substitute_remedy(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut errors = chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    errors.find_map(Substitute::find).map(|found| found.remedy().into())
}

impl From<OutputError> for Error {
    fn from(error: OutputError) -> Error {
        let hint = match error.remedy() {
            OutputRemedy::NewFile(name) => format!("name a file that does not exist yet with {name}"),
            OutputRemedy::NewFileOrMove(name) => {
                format!("name a file that does not exist yet with {name}, or move the existing one")
            }
            OutputRemedy::OtherEnding(name) => format!("name a file of another ending with {name}"),
            OutputRemedy::Move => "move it".into(),
            OutputRemedy::FolderElsewhere(name) => {
                format!("name a folder outside of all inputs with {name}")
            }
            OutputRemedy::CheckPath => "check the path, the disk and the permissions".into(),
        };
        Error::with_cause(Cause::Output(error), hint)
    }
}

impl From<ReportError> for Error {
    fn from(error: ReportError) -> Error {
        let hint = match &error {
            ReportError::NoRun { .. } => {
                "name the folder that ‹job train +out› or ‹job sweep› wrote, or a fold of it".into()
            }
            ReportError::DatasetUnknown { .. } | ReportError::CaseMissing { .. } => {
                format!("{}: ‹dataset›", error.remedy())
            }
            ReportError::Slice { .. } => "leave ‹preview› out, and check the case with ‹job inspect›".into(),
            ReportError::Shrink { .. } => "leave ‹volumes› out".into(),
            ReportError::TooManyRows { .. } => {
                "choose scores with ‹metric›, classes with ‹class›, or fewer candidates".into()
            }
            _ => error.remedy(),
        };
        match error {
            ReportError::File { path, source } => Error::at_path(&path, &source),
            ReportError::Io(error) => error.into(),
            ReportError::Json(error) => error.into(),
            ReportError::Memory(error) => error.into(),
            ReportError::Map(error) => error.into(),
            ReportError::Metric(error) => error.into(),
            ReportError::Run(error) => error.into(),
            ReportError::Table(error) => error.into(),
            ReportError::Volume(error) => error.into(),
            own => Error::with_cause(Cause::Report(own), hint),
        }
    }
}

impl From<plimsoll_infer::InteractiveError> for Error {
    fn from(error: plimsoll_infer::InteractiveError) -> Error {
        let hint = error.remedy();
        match error {
            plimsoll_infer::InteractiveError::Infer(error) => error.into(),
            plimsoll_infer::InteractiveError::Volume(error) => error.into(),
            plimsoll_infer::InteractiveError::Stopped => Error::stopped(
                "the prediction was stopped; nothing was written",
                "give the same command again",
            ),
            own => {
                let hint = hint.unwrap_or_else(|| way_out(&own));
                Error::with_cause(Cause::Interactive(own), hint)
            }
        }
    }
}

impl From<plimsoll_ranks::RanksError> for Error {
    fn from(error: plimsoll_ranks::RanksError) -> Error {
        plimsoll_train::TrainError::Ranks(error).into()
    }
}

/// Errors that know their remedy.
macro_rules! with_hint {
    ($($variant:ident($error:ty)),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                let hint = substitute_remedy(&error).or(error.remedy()).unwrap_or_else(|| way_out(&error));
                Error::with_cause(Cause::$variant(error), hint)
            }
        })*
    };
}

/// Errors whose remedy follows from their kind.
macro_rules! without_hint {
    ($($variant:ident($error:ty)),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                let hint = way_out(&error);
                Error::with_cause(Cause::$variant(error), hint)
            }
        })*
    };
}

with_hint!(
    Dataset(plimsoll_data::DatasetError),
    Inspect(plimsoll_data::InspectError),
    Loader(plimsoll_data::LoaderError),
    Sampler(plimsoll_data::SamplerError),
    Splits(plimsoll_data::SplitsError),
    Phantom(plimsoll_data::phantom::PhantomError),
    Dicom(plimsoll_dicom::DicomError),
    Images(plimsoll_data::pictures::DatasetError),
    Infer(plimsoll_infer::InferError),
    Metric(plimsoll_metrics::MetricError),
    Table(plimsoll_metrics::classification::TableError),
    Comparison(plimsoll_metrics::comparison::ComparisonError),
    Config(plimsoll_nn::ConfigError),
    Postprocess(plimsoll_postprocess::PostprocessError),
    Weights(plimsoll_nn::weights::WeightError),
    Model(plimsoll_models::ModelError),
    Run(plimsoll_run::RunError),
    Train(plimsoll_train::TrainError),
    Volume(plimsoll_volume::VolumeError),
    Engine(plimsoll_plan::EngineError),
    Plan(plimsoll_plan::PlanError),
);
without_hint!(
    Io(io::Error),
    Json(serde_json::Error),
    Graph(plimsoll_graph::GraphError),
    Map(plimsoll_memory::MapError),
    Memory(plimsoll_memory::OverBudget),
);
