//! The history of a fold, from its events.

use std::path::PathBuf;

use plimsoll_memory::Bytes;
use plimsoll_run::{EpochCost, Event, FoldFolder, TimedEvent, each_event};

use super::samples::Samples;
use crate::error::Outcome;

/// The most lines of a fold that a page lists; of more it says how many there are.
const LISTED: usize = 100;

/// Something worth telling.
pub struct Notice {
    pub time: String,
    pub kind: &'static str,
    pub what: String,
}

/// A process that trained a fold.
#[derive(Default)]
pub struct Process {
    pub host: String,
    pub version: String,
    pub command: Vec<String>,
    pub dataset: Option<PathBuf>,
}

/// All that happened.
#[derive(Default)]
pub struct History {
    /// The time at which it began.
    pub began: Option<String>,
    /// The last process.
    pub process: Option<Process>,
    /// Processes after the first.
    pub restarts: u64,
    pub warnings: u64,
    pub told: Vec<Notice>,
    /// The number of lines that are not listed.
    pub left_out: u64,
    pub checkpoint_seconds: f64,
    pub evicted_volumes: u64,
    pub epochs: Vec<EpochCost>,
    /// The memory over time.
    pub samples: Samples,
    /// The limit and what was planned of it by the last process.
    pub plan: Option<[Bytes; 2]>,
    /// `true` if the last process that was seen has not said that it ended.
    is_open: bool,
}

impl History {
    /// Reads the events of a fold.
    pub fn read(folder: &FoldFolder) -> Outcome<History> {
        let mut history = History::default();
        each_event(folder, |event| history.add(event))?;
        Ok(history)
    }

    /// Seconds of epochs and, of them, of validation; those that were done again after going back count, too.
    pub fn seconds(&self) -> [f64; 2] {
        let sum = |of: fn(&EpochCost) -> f64| self.epochs.iter().map(of).sum();
        [sum(|cost| cost.seconds), sum(|cost| cost.validation_seconds)]
    }

    fn tell(&mut self, time: &str, kind: &'static str, what: String) {
        match self.told.len() < LISTED {
            true => self.told.push(Notice { time: time.into(), kind, what }),
            false => self.left_out += 1,
        }
    }

    fn add(&mut self, TimedEvent { time, event }: TimedEvent) {
        match event {
            Event::Start { by, version, steps, of, command, dataset, .. } => {
                if self.is_open {
                    let what = "the process before ended without an error message: it was killed, or the machine stopped";
                    self.tell(&time, "died", what.into());
                }
                if self.began.is_some() {
                    self.restarts += 1;
                    self.tell(&time, "resumed", format!("from step {steps} of {of}, by {by}"));
                }
                self.began.get_or_insert(time);
                self.process = Some(Process { host: by.host, version, command, dataset });
                self.is_open = true;
            }
            Event::Plan { limit, planned, .. } => self.plan = Some([limit, planned]),
            Event::Epoch(cost) => self.epochs.push(cost),
            Event::Checkpoint { seconds, .. } => self.checkpoint_seconds += seconds,
            Event::Change { steps, what, .. } => {
                self.tell(&time, "changed", format!("from step {steps} on: {what}"));
            }
            Event::Warning { what } => {
                self.warnings += 1;
                self.tell(&time, "warning", what);
            }
            Event::Sample(sample) => self.samples.add(*sample),
            Event::Eviction { volumes, .. } => self.evicted_volumes += volumes,
            Event::Stop { why, steps, detail } => {
                self.is_open = false;
                let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
                self.tell(&time, "ended", format!("{why} after step {steps}{detail}"));
            }
        }
    }
}
