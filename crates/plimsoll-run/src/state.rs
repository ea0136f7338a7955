//! How a fold stands, from its folder.

use plimsoll_memory::Bytes;
use serde::Serialize;

use crate::{EpochRecord, Event, FoldFolder, FoldName, Holder, RunError, Specification, StopReason};
use crate::{each_epoch, each_event, holder};

/// Epochs whose times the time left is estimated from.
const RECENT: usize = 5;

/// Whether a fold is being trained.
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
    /// No process trains it: the last one ended without a word.
    Died {
        /// Which it was.
        by: Option<Holder>,
        /// How many processes the kernel has killed for memory in that control group since it began; none where it does not say.
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
                        "killed: {by} ended without a word; the kernel has killed {kills} process(es) of its control group for \
                         memory since"
                    ),
                    _ => format!("died: {by} ended without a word"),
                }
            }
        }
    }
}

/// How a fold stands.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Which.
    pub fold: FoldName,
    /// Whether it is being trained.
    #[serde(flatten)]
    pub state: FoldState,
    /// The last epoch that is done.
    pub epoch: Option<EpochRecord>,
    /// Epochs that are done.
    pub epochs_done: u64,
    /// Epochs of the run.
    pub epochs: u64,
    /// What was planned to be held by the last process.
    pub planned: Option<Bytes>,
    /// Its line.
    pub line: Option<Bytes>,
    /// What was resident at the end of the last epoch.
    pub resident: Option<Bytes>,
    /// Time left by the last epochs; none before the first, or if the run has ended.
    pub seconds_left: Option<f64>,
    /// The last event: when, and what.
    pub last_event: Option<(String, String)>,
    /// The last warning.
    pub last_warning: Option<String>,
}

impl Status {
    /// Reads how a fold stands.
    ///
    /// # Errors
    /// If its files are there but cannot be read.
    pub fn of(folder: &FoldFolder) -> Result<Status, RunError> {
        let specification = Specification::read(folder)?;
        let epochs = specification.config.epochs;
        let (mut plan, mut ended, mut times) = (None, None, Vec::new());
        let (mut last_event, mut last_warning, mut resident) = (None, None, None);
        each_event(folder, |timed| {
            last_event = serde_json::to_value(&timed.event)
                .ok()
                .and_then(|event| Some((timed.time.clone(), event.get("event")?.as_str()?.to_string())));
            match timed.event {
                Event::Start { .. } => ended = None,
                Event::Plan { line, planned, .. } => plan = Some((line, planned)),
                Event::Epoch(cost) => {
                    if times.len() == RECENT {
                        times.remove(0);
                    }
                    times.push(cost.seconds);
                    resident = Some(Bytes(cost.resident_bytes));
                }
                Event::Warning { what } => last_warning = Some(what),
                Event::Stop { why, detail, .. } => ended = Some((why, detail)),
                Event::Checkpoint { .. } | Event::Eviction { .. } => {}
            }
        })?;
        let mut epoch: Option<EpochRecord> = None;
        each_epoch(folder, |record| epoch = Some(record))?;
        let state = match (holder(folder), ended) {
            (Some((by, true)), _) => FoldState::Running { by },
            (_, Some((why, detail))) => FoldState::Ended { why, detail },
            (found, None) => {
                let by = found.map(|(by, _)| by);
                let oom_kills = by.as_ref().and_then(Holder::kills_since);
                FoldState::Died { by, oom_kills }
            }
        };
        let done = epoch.as_ref().map_or(0, |epoch| epoch.epoch.saturating_add(1));
        let over = matches!(state, FoldState::Ended { why: StopReason::Finished | StopReason::Early, .. });
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let seconds_left = (!times.is_empty() && !over).then(|| mean * epochs.saturating_sub(done) as f64);
        Ok(Status {
            fold: folder.name(),
            state,
            epochs_done: done,
            epoch,
            epochs,
            planned: plan.map(|(_, planned)| planned),
            line: plan.map(|(line, _)| line),
            resident,
            seconds_left,
            last_event,
            last_warning,
        })
    }
}
