//! The files of a fold, read as they grow.

use std::collections::VecDeque;
use std::path::Path;

use plimsoll_run::{
    Account, AskedOf, EpochCost, EpochRecord, Event, FoldFolder, LONGEST_LINE, RunError, Sample, Status,
    TimedEvent, each_line_behind,
};
use serde::Serialize;

use crate::Curve;

/// The number of recent events that are kept.
const KEPT_EVENTS: usize = 50;

/// The names of the two scores of volumes.
pub const SCORES_OF_VOLUMES: [&str; 2] = ["pseudo-Dice", "moving average"];

/// The names of the two scores of images.
pub const SCORES_OF_IMAGES: [&str; 2] = ["balanced accuracy", "quadratic kappa"];

/// The numbers of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The mean over its steps.
    pub train_loss: Option<f64>,
    /// The mean over the validated samples.
    pub validation_loss: Option<f64>,
    /// The two scores, in the order of their names.
    pub scores: [Option<f64>; 2],
}

/// An event in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoggedEvent {
    /// When, by RFC 3339.
    pub time: String,
    /// The description of the event.
    pub what: String,
}

/// A fold whose files are read as they grow.
#[derive(Debug)]
pub struct FoldFollower {
    folder: FoldFolder,
    /// The bytes of the event file that were read: whole lines.
    events_read: u64,
    metrics_read: u64,
    /// None before its specification is read.
    asked: Option<AskedOf>,
    /// Steps of the run.
    steps: u64,
    account: Account,
    points: Curve<Point>,
    costs: Curve<EpochCost>,
    sample: Option<Sample>,
    events: VecDeque<LoggedEvent>,
    classifies: bool,
}

impl FoldFollower {
    /// Follows a fold that has begun. Nothing is read yet.
    pub fn new(folder: FoldFolder) -> FoldFollower {
        FoldFollower {
            folder,
            events_read: 0,
            metrics_read: 0,
            asked: None,
            steps: 0,
            account: Account::default(),
            points: Curve::default(),
            costs: Curve::default(),
            sample: None,
            events: VecDeque::new(),
            classifies: false,
        }
    }

    /// The folder of the fold.
    pub fn folder(&self) -> &FoldFolder {
        &self.folder
    }

    /// Reads what was written since the last time, and says how the fold stands.
    ///
    /// # Errors
    /// If files are there but cannot be read, or the specification is not there.
    pub fn update(&mut self) -> Result<Status, RunError> {
        let is_anew = self.read_events()?;
        let asked = match self.asked.take().filter(|_| !is_anew) {
            Some(known) => known,
            None => {
                // A resumed process has cut off the epochs that it repeats, and may compute more of them.
                let asked = AskedOf::read(&self.folder)?;
                self.forget_epochs();
                asked
            }
        };
        if !self.read_epochs()? {
            // What was read before is not what stands there now.
            self.forget_epochs();
            self.read_epochs()?;
        }
        let status = self.account.status(&self.folder, &asked);
        self.asked = Some(asked);
        Ok(status)
    }

    /// Reads new events. Returns `true` if epochs may have been cut off.
    fn read_events(&mut self) -> Result<bool, RunError> {
        let path = self.folder.events();
        let mut is_anew = false;
        if length(&path)? < self.events_read {
            // Another file stands there now: nothing of the one before is kept.
            *self = FoldFollower::new(self.folder.clone());
            is_anew = true;
        }
        let mut read = self.events_read;
        each_line_behind(&path, read, LONGEST_LINE, |line, end| {
            // A line that is being written is read when it is whole; a piece of one that is too long is none.
            if !line.ends_with(b"\n") && (line.len() as u64) < LONGEST_LINE {
                return false;
            }
            read = end;
            if let Ok(timed) = serde_json::from_slice::<TimedEvent>(line) {
                // Going back to a checkpoint because of bad numbers is a warning.
                is_anew |= matches!(timed.event, Event::Start { .. } | Event::Warning { .. });
                self.take(timed);
            }
            true
        })
        .map_err(|source| RunError::Io { path, source })?;
        self.events_read = read;
        Ok(is_anew)
    }

    fn take(&mut self, timed: TimedEvent) {
        self.account.event(&timed);
        let what = in_words(&timed.event);
        match timed.event {
            Event::Start { of, .. } => self.steps = of,
            Event::Epoch(cost) => self.costs.push(cost.epoch, cost),
            Event::Sample(sample) => self.sample = Some(*sample),
            _ => {}
        }
        if let Some(what) = what {
            if self.events.len() == KEPT_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(LoggedEvent { time: timed.time, what });
        }
    }

    /// Reads new epochs. Returns `true` if they continue the known ones.
    fn read_epochs(&mut self) -> Result<bool, RunError> {
        let path = self.folder.metrics();
        if length(&path)? < self.metrics_read {
            return Ok(false);
        }
        let mut read = self.metrics_read;
        let mut follows = true;
        each_line_behind(&path, read, LONGEST_LINE, |line, end| {
            let Some(line) = line.strip_suffix(b"\n") else { return false };
            let record = serde_json::from_slice::<EpochRecord>(line).ok();
            let last = self.account.last_epoch().map(|last| last.epoch);
            let Some(record) = record.filter(|record| last.is_none_or(|last| record.epoch > last)) else {
                follows = false;
                return false;
            };
            read = end;
            self.classifies = record.classification.is_some();
            self.points.push(record.epoch, point(&record));
            self.account.epoch(record);
            true
        })
        .map_err(|source| RunError::Io { path, source })?;
        self.metrics_read = read;
        Ok(follows)
    }

    fn forget_epochs(&mut self) {
        self.metrics_read = 0;
        self.points.clear();
        self.account.forget_epochs();
    }

    /// Steps of the run.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The numbers of each epoch.
    pub fn points(&self) -> &[(u64, Point)] {
        self.points.points()
    }

    /// The costs of each epoch.
    pub fn costs(&self) -> &[(u64, EpochCost)] {
        self.costs.points()
    }

    /// The last moment that was written down.
    pub fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// The last events, the newest at the end: some tens, without epochs.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &LoggedEvent> {
        self.events.iter()
    }

    /// The names of the two scores.
    pub fn score_names(&self) -> [&'static str; 2] {
        if self.classifies { SCORES_OF_IMAGES } else { SCORES_OF_VOLUMES }
    }
}

fn length(path: &Path) -> Result<u64, RunError> {
    match plimsoll_disk::metadata(path) {
        Ok(found) => Ok(found.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(RunError::Io { path: path.into(), source }),
    }
}

fn point(record: &EpochRecord) -> Point {
    let scores = match &record.classification {
        Some(scores) => [Some(scores.balanced_accuracy), scores.kappa],
        None => [record.mean_pseudo_dice, record.ema_pseudo_dice],
    };
    Point { train_loss: record.train_loss, validation_loss: record.validation_loss, scores }
}

/// An event for people; none of epochs and samples, which are drawn, and of checkpoints after each epoch.
fn in_words(event: &Event) -> Option<String> {
    match event {
        Event::Start { by, steps, of, .. } => Some(format!("{by}: from step {steps} of {of}")),
        Event::Plan { limit, planned, device, .. } => {
            let device = device.map_or(String::new(), |[limit, planned]| {
                format!("; of the device's memory {planned} of {limit}")
            });
            Some(format!("planned: {planned} of the limit of {limit}{device}"))
        }
        Event::Epoch(_) | Event::Sample(_) | Event::Checkpoint { .. } => None,
        Event::Change { steps, what, .. } => Some(format!("changed from step {steps} on: {what}")),
        Event::Warning { what } => Some(format!("warning: {what}")),
        Event::Eviction { volumes, cache } => Some(format!(
            "{volumes} volume(s) evicted: others need memory, and the cache may hold {cache} now"
        )),
        Event::Stop { why, steps, detail } if detail.is_empty() => Some(format!("{why} after step {steps}")),
        Event::Stop { why, steps, detail } => Some(format!("{why} after step {steps}: {detail}")),
    }
}
