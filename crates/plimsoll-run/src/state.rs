//! The state of a fold, from its folder.

use std::collections::VecDeque;

use plimsoll_memory::Bytes;
use serde::Serialize;

use crate::{
    EpochRecord, Event, FoldFolder, FoldName, Holder, RunError, Specification, StopReason, Task, TimedEvent,
};
use crate::{each_epoch, each_event, holder};

/// Epochs whose times the time left is estimated from.
const RECENT: usize = 5;

/// The activity of a fold.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum FoldState {
    /// By a process that runs now.
    Running {
        /// Which.
        by: Holder,
    },
    /// No process trains it: the last one ended in order.
    Ended {
        /// Why.
        why: StopReason,
        /// More about it.
        detail: String,
    },
    /// No process trains it: the last one ended without an error message.
    Died {
        /// The last process.
        by: Option<Holder>,
        /// The number of processes that the kernel has killed for memory in its control group since it began; `None` if the kernel does
        /// not report it.
        oom_kills: Option<u64>,
    },
}

impl FoldState {
    /// In a few words.
    pub fn describe(&self) -> String {
        match self {
            FoldState::Running { by } => format!("running: {by}"),
            FoldState::Ended { why, detail } if detail.is_empty() => why.to_string(),
            FoldState::Ended { why, detail } => format!("{why}: {detail}"),
            FoldState::Died { by, oom_kills } => {
                let by = by.as_ref().map_or("its process".into(), ToString::to_string);
                match oom_kills {
                    Some(kills @ 1..) => format!(
                        "killed: {by} ended without an error message; the kernel has killed {kills} process(es) of its control group for \
                         memory since"
                    ),
                    _ => format!("died: {by} ended without an error message"),
                }
            }
        }
    }
}

/// The state and the progress of a fold.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Which.
    pub fold: FoldName,
    /// The activity of the fold.
    #[serde(flatten)]
    pub state: FoldState,
    /// The last epoch that is done.
    pub epoch: Option<EpochRecord>,
    /// Epochs that are done.
    pub epochs_done: u64,
    /// Epochs of the run.
    pub epochs: u64,
    /// The names of the regions that it learns, in the order of the Dice of each in `epoch`; empty where it learns classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    /// The planned memory of the last process.
    pub planned: Option<Bytes>,
    /// Its limit.
    pub limit: Option<Bytes>,
    /// The resident memory at the last sample.
    pub resident: Option<Bytes>,
    /// Time left by the last epochs; none before the first, or if the run has ended.
    pub seconds_left: Option<f64>,
    /// The last event: when, and what.
    pub last_event: Option<(String, String)>,
    /// The last warning.
    pub last_warning: Option<String>,
}

impl Status {
    /// Reads the state of a fold.
    ///
    /// # Errors
    /// Returns an error if its files exist but cannot be read.
    pub fn read(folder: &FoldFolder) -> Result<Status, RunError> {
        let asked = AskedOf::read(folder)?;
        let mut account = Account::default();
        each_event(folder, |timed| account.event(&timed))?;
        each_epoch(folder, |record| account.epoch(record))?;
        Ok(account.status(folder, &asked))
    }

    /// The Dice of each region in the last epoch, by name; `None` without regions or epochs.
    pub fn regions_in_words(&self) -> Option<String> {
        let scores = &self.epoch.as_ref().filter(|_| !self.regions.is_empty())?.pseudo_dice;
        let number = |score: &Option<f64>| score.map_or("–".into(), |score| format!("{score:.4}"));
        let named = self.regions.iter().zip(scores).map(|(name, score)| format!("{name} {}", number(score)));
        Some(format!("pseudo-Dice of regions: {}", named.collect::<Vec<_>>().join(", ")))
    }
}

/// The parts of a run's specification that its progress is measured against.
#[derive(Clone, Debug)]
pub struct AskedOf {
    /// Epochs.
    pub epochs: u64,
    /// The names of the regions that it learns, if it does.
    pub regions: Vec<String>,
}

impl AskedOf {
    /// Reads it of a fold.
    ///
    /// # Errors
    /// Returns an error if the specification is not there, or cannot be read.
    pub fn read(folder: &FoldFolder) -> Result<AskedOf, RunError> {
        let config = Specification::read(folder)?.config;
        let regions = match &config.task {
            Task::Segmentation(task) => task.dataset.labels.regions().to_vec(),
            Task::Classification(_) => Vec::new(),
        };
        let regions = regions.into_iter().map(|region| region.name).collect();
        Ok(AskedOf { epochs: config.epochs, regions })
    }
}

/// The state of a fold, updated line by line.
#[derive(Clone, Debug, Default)]
pub struct Account {
    epoch: Option<EpochRecord>,
    plan: Option<(Bytes, Bytes)>,
    /// The end of the last process, if it ended in order.
    ended: Option<(StopReason, String)>,
    /// Seconds of the last epochs.
    times: VecDeque<f64>,
    resident: Option<Bytes>,
    last_event: Option<(String, String)>,
    last_warning: Option<String>,
}

impl Account {
    /// Adds an event.
    pub fn event(&mut self, timed: &TimedEvent) {
        match &timed.event {
            Event::Start { .. } => self.ended = None,
            Event::Plan { limit, planned, .. } => self.plan = Some((*limit, *planned)),
            Event::Epoch(cost) => {
                if self.times.len() == RECENT {
                    self.times.pop_front();
                }
                self.times.push_back(cost.seconds);
                self.resident = cost.resident_bytes.map(Bytes);
            }
            Event::Sample(sample) => {
                self.resident = sample.resident_bytes.or(self.resident);
                // A sample is no progress.
                return;
            }
            Event::Warning { what } => self.last_warning = Some(what.clone()),
            Event::Stop { why, detail, .. } => self.ended = Some((*why, detail.clone())),
            Event::Change { .. } | Event::Checkpoint { .. } | Event::Eviction { .. } => {}
        }
        self.last_event = Some((timed.time.clone(), timed.event.kind().into()));
    }

    /// Adds the numbers of an epoch.
    pub fn epoch(&mut self, record: EpochRecord) {
        self.epoch = Some(record);
    }

    /// The numbers of the last epoch.
    pub fn last_epoch(&self) -> Option<&EpochRecord> {
        self.epoch.as_ref()
    }

    /// Forgets epochs: they are read from the beginning again.
    pub fn forget_epochs(&mut self) {
        self.epoch = None;
    }

    /// The state of a fold with this specification.
    pub fn status(&self, folder: &FoldFolder, asked: &AskedOf) -> Status {
        let epochs = asked.epochs;
        let state = match (holder(folder), &self.ended) {
            (Some((by, true)), _) => FoldState::Running { by },
            (_, Some((why, detail))) => FoldState::Ended { why: *why, detail: detail.clone() },
            (found, None) => {
                let by = found.map(|(by, _)| by);
                let oom_kills = by.as_ref().and_then(Holder::kills_since);
                FoldState::Died { by, oom_kills }
            }
        };
        let done = self.epoch.as_ref().map_or(0, |epoch| epoch.epoch.saturating_add(1));
        let over = matches!(state, FoldState::Ended { why: StopReason::Finished | StopReason::Early, .. });
        let mean = self.times.iter().sum::<f64>() / self.times.len() as f64;
        let seconds_left =
            (!self.times.is_empty() && !over).then(|| mean * epochs.saturating_sub(done) as f64);
        Status {
            fold: folder.name(),
            state,
            epochs_done: done,
            epoch: self.epoch.clone(),
            epochs,
            regions: asked.regions.clone(),
            planned: self.plan.map(|(_, planned)| planned),
            limit: self.plan.map(|(limit, _)| limit),
            resident: self.resident,
            seconds_left,
            last_event: self.last_event.clone(),
            last_warning: self.last_warning.clone(),
        }
    }
}
