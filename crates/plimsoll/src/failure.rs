//! What a command ends with when it fails: one line that says what is wrong, and one that says what to do.

use std::fmt;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    hint: Option<String>,
}

/// What a command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// From a message of the command line's own.
    pub fn new(message: impl fmt::Display) -> Failure {
        Failure { error: anyhow::anyhow!("{message}"), hint: None }
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
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
        eprintln!("error: {}", line.replace('\n', " "));
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
    }
}

/// Errors that know what to do about themselves.
macro_rules! with_hint {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                let hint = error.hint();
                Failure { error: error.into(), hint }
            }
        })*
    };
}

/// Errors that do not.
macro_rules! without_hint {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure { error: error.into(), hint: None }
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
    plimsoll_cpu::EngineError,
);
