//! The events of a fold with their times: one JSON line for each event.
//!
//! No result follows from an event, so events may differ between runs with equal results.

use std::path::PathBuf;
use std::time::SystemTime;

use plimsoll_disk::Appender;
use plimsoll_memory::{Bytes, Digest};
use serde::{Deserialize, Serialize};

use crate::{CheckpointKind, FoldFolder, Holder, LONGEST_LINE, RunError, Sample, SettingChange, each_line};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A process began or went on.
    Start {
        /// The process.
        #[serde(flatten)]
        by: Holder,
        /// The version of the program.
        version: String,
        /// The identity of the specification.
        specification: Digest,
        /// Steps done before.
        steps: u64,
        /// Steps of the run.
        of: u64,
        /// The command line of the process, the program first; empty if it is not known.
        #[serde(default)]
        command: Vec<String>,
        /// The folder of the data set, or the table of its pictures; `None` if it is not known.
        #[serde(default)]
        dataset: Option<PathBuf>,
    },
    /// The planned memory.
    Plan {
        /// The memory limit.
        limit: Bytes,
        /// The total of the planned memory.
        planned: Bytes,
        /// The limit of the device's memory and what was planned of it; none on the processor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<[Bytes; 2]>,
        /// The predicted time of a step.
        seconds_per_step: f64,
    },
    /// An epoch was done.
    Epoch(EpochCost),
    /// The memory and the time of the process so far: at the end of each epoch, every minute of its steps, and when the cache had to
    /// shrink.
    Sample(Box<Sample>),
    /// A checkpoint was written.
    Checkpoint {
        /// Which.
        kind: CheckpointKind,
        /// The number of finished steps.
        steps: u64,
        /// The time that it took.
        seconds: f64,
    },
    /// The run was changed when it resumed.
    Change {
        /// Steps done before.
        steps: u64,
        /// A description of the change.
        what: String,
        /// Settings of it.
        changes: Vec<SettingChange>,
    },
    /// Something that its user should know.
    Warning {
        /// The text.
        what: String,
    },
    /// Decoded volumes were evicted from the cache.
    Eviction {
        /// The number of volumes since the last such event.
        volumes: u64,
        /// The new limit of the cache.
        cache: Bytes,
    },
    /// A process ended in order.
    Stop {
        /// Why.
        why: StopReason,
        /// Steps done.
        steps: u64,
        /// More about it.
        detail: String,
    },
}

impl Event {
    /// The name of the event's kind in the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Start { .. } => "start",
            Event::Plan { .. } => "plan",
            Event::Epoch(_) => "epoch",
            Event::Sample(_) => "sample",
            Event::Checkpoint { .. } => "checkpoint",
            Event::Change { .. } => "change",
            Event::Warning { .. } => "warning",
            Event::Eviction { .. } => "eviction",
            Event::Stop { .. } => "stop",
        }
    }
}

/// The time and the memory of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochCost {
    /// From 0.
    pub epoch: u64,
    /// The time of the epoch, validation included.
    pub seconds: f64,
    /// The time of the validation alone.
    pub validation_seconds: f64,
    /// Resident memory at the end of the epoch; `None` if the system does not report it.
    pub resident_bytes: Option<u64>,
    /// The highest resident memory since the process began to train; `None` if the system does not report it, or several folds share the
    /// process.
    #[serde(default)]
    pub peak_resident_bytes: Option<u64>,
    /// The memory limit of the run; none in files of earlier versions.
    #[serde(default)]
    pub ram_budget_bytes: Option<u64>,
}

/// Why a process ended in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// All epochs are done.
    Finished,
    /// The score has not risen for as long as was allowed.
    Early,
    /// It received a signal.
    Signal,
    /// An error ended it.
    Error,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StopReason::Finished => "finished",
            StopReason::Early => "stopped early",
            StopReason::Signal => "stopped by a signal",
            StopReason::Error => "stopped by an error",
        })
    }
}

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedEvent {
    /// When, by RFC 3339.
    pub time: String,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// The events of a fold, to be written.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: Appender,
}

impl EventLog {
    /// Opens or makes the file of a fold; a line that a killed process did not finish is cut off.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn open(folder: &FoldFolder) -> Result<EventLog, RunError> {
        let path = folder.events();
        let file = Appender::open(&path).map_err(|source| RunError::io(&path, source))?;
        Ok(EventLog { path, file })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// Returns an error if the disk refuses.
    pub fn say(&mut self, event: Event) -> Result<(), RunError> {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let line = serde_json::to_vec(&TimedEvent { time, event })
            .map_err(|problem| RunError::Json { path: self.path.clone(), why: problem.to_string() })?;
        self.file.append(&line).map_err(|source| RunError::io(&self.path, source))
    }
}

/// Passes all events of a fold to `each`, in order, so that a long file is never in memory. Invalid lines are left out.
///
/// # Errors
/// Returns an error if the file exists but cannot be read.
pub fn each_event(folder: &FoldFolder, mut each: impl FnMut(TimedEvent)) -> Result<(), RunError> {
    let path = folder.events();
    each_line(&path, LONGEST_LINE, |line, _| {
        if let Ok(event) = serde_json::from_slice(line) {
            each(event);
        }
        true
    })
    .map_err(|source| RunError::io(&path, source))
}
