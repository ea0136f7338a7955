//! What happened to a fold, and when: one JSON line for each event.
//!
//! Nothing that a result follows from stands here, so events differ from one run to the next where results do not.

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
        /// Which process.
        #[serde(flatten)]
        by: Holder,
        /// The version of the program.
        version: String,
        /// What it trains.
        specification: Digest,
        /// Steps done before.
        steps: u64,
        /// Steps of the run.
        of: u64,
        /// How the process was called, the program first; empty where that is not known.
        #[serde(default)]
        command: Vec<String>,
        /// The folder of the data set; none where its cases do not lie in one.
        #[serde(default)]
        dataset: Option<PathBuf>,
    },
    /// What is to be held.
    Plan {
        /// The memory line.
        line: Bytes,
        /// What was planned in all.
        planned: Bytes,
        /// The line of the device's memory and what was planned of it; none on the processor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<[Bytes; 2]>,
        /// The predicted time of a step.
        seconds_per_step: f64,
    },
    /// An epoch was done.
    Epoch(EpochCost),
    /// What the process held and took so far: at the end of each epoch, every minute of its steps, and when the cache had to shrink.
    Sample(Box<Sample>),
    /// A checkpoint was written.
    Checkpoint {
        /// Which.
        kind: CheckpointKind,
        /// After so many steps.
        steps: u64,
        /// What that took.
        seconds: f64,
    },
    /// The run was changed when it resumed.
    Change {
        /// Steps done before.
        steps: u64,
        /// What was changed.
        what: String,
        /// Settings of it.
        changes: Vec<SettingChange>,
    },
    /// Something that its user should know.
    Warning {
        /// What.
        what: String,
    },
    /// Decoded volumes were evicted from the cache.
    Eviction {
        /// How many since this was last said.
        volumes: u64,
        /// What the cache may hold now.
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
    /// What kind of event it is, as the file has it.
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

/// What an epoch took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochCost {
    /// From 0.
    pub epoch: u64,
    /// Of the epoch, with validation.
    pub seconds: f64,
    /// Of them, validation.
    pub validation_seconds: f64,
    /// Resident memory at the end of the epoch; none where the system does not say.
    pub resident_bytes: Option<u64>,
    /// The most resident memory since the process began to train; none where the system does not say, or where several folds share the
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
    /// It was told to.
    Signal,
    /// It could not go on.
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
    /// What.
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
    /// If the disk refuses.
    pub fn open(folder: &FoldFolder) -> Result<EventLog, RunError> {
        let path = folder.events();
        let file = Appender::open(&path).map_err(|source| RunError::io(&path, source))?;
        Ok(EventLog { path, file })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn say(&mut self, event: Event) -> Result<(), RunError> {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let line = serde_json::to_vec(&TimedEvent { time, event })
            .map_err(|problem| RunError::Json { path: self.path.clone(), why: problem.to_string() })?;
        self.file.append(&line).map_err(|source| RunError::io(&self.path, source))
    }
}

/// All events of a fold, in order; lines that are none are left out. Passed to `each`, so that a long file is never held.
///
/// # Errors
/// If the file is there but cannot be read.
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
