//! Events of jobs, and their observers.

use std::fmt;

use plimsoll_remedy::Remedy;
use plimsoll_run::{EpochCost, EpochRecord, FoldName, StartTable};
use plimsoll_train::PlannedRun;

use crate::folds_at_once::AtOnce;

/// An observer of the events of a job. Closures that take `&Event<'_>` are observers.
///
/// Events come from any thread of the job, which waits for the observer: an observer that needs long delays the job.
pub trait Observer: Send + Sync {
    /// Sees an event.
    fn event(&self, event: &Event<'_>);

    /// Returns a line that the journal of a run must keep, such as a note that output was lost, once.
    fn take_journal_line(&self) -> Option<String> {
        None
    }
}

impl<F: Fn(&Event<'_>) + Send + Sync> Observer for F {
    fn event(&self, event: &Event<'_>) {
        self(event);
    }
}

/// An observer that ignores all events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn event(&self, _: &Event<'_>) {}
}

/// A piece of work of a job, such as evaluating the cases of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// A number that no other work of this process has.
    pub id: u64,
    /// A short description, like `evaluating`.
    pub title: String,
    /// The number of its pieces; none where it is not known.
    pub pieces: Option<u64>,
    /// `true` if other work of the same job runs at the same time.
    pub is_beside_others: bool,
}

/// An event of a job. It is displayed as one line of text.
///
/// Texts mark parameters and jobs: [`plimsoll_remedy::render`] writes them in the words of a front end.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A user should check something; the job goes on.
    Warning {
        /// The warning in one line.
        text: &'a str,
    },
    /// The job made a choice or found a fact that a user may want to know.
    Note {
        /// The note in one line.
        text: &'a str,
    },
    /// Work began.
    WorkBegan {
        /// The work.
        work: &'a Work,
    },
    /// A number of pieces of work is done.
    WorkAdvanced {
        /// The work.
        work: &'a Work,
        /// The number of finished pieces.
        done: u64,
        /// The present piece, or numbers of the last one.
        note: &'a str,
        /// An estimate, where there is one.
        seconds_left: Option<f64>,
    },
    /// A line about work.
    WorkLine {
        /// The work.
        work: &'a Work,
        /// The line.
        text: &'a str,
        /// `true` if it only repeats what the work's progress has shown.
        repeats_progress: bool,
    },
    /// Work ended, finished or not.
    WorkEnded {
        /// The work.
        work: &'a Work,
    },
    /// A run is planned and about to begin.
    Planned {
        /// The planned run.
        planned: &'a PlannedRun,
        /// The memory of all folds, where several train at the same time.
        at_once: Option<&'a AtOnce>,
    },
    /// The run that was planned starts from trained weights.
    Started {
        /// The fate of each tensor.
        table: &'a StartTable,
    },
    /// A part of the job begins that has a title of its own, such as a trial of a sweep.
    Part {
        /// The title.
        title: &'a str,
    },
    /// From now on the job has results that it saves when it is asked to stop.
    ResultsToKeep,
    /// An epoch of a fold is done and recorded.
    Epoch {
        /// The fold.
        fold: FoldName,
        /// The numbers of the epoch.
        record: &'a EpochRecord,
        /// The time and the memory that it took.
        cost: &'a EpochCost,
    },
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Warning { text } => write!(f, "warning: {}", Remedy::from(*text)),
            Event::Note { text } | Event::WorkLine { text, .. } => write!(f, "{}", Remedy::from(*text)),
            Event::WorkBegan { work } => write!(f, "{} …", work.title),
            Event::WorkAdvanced { work, done, note, .. } => match work.pieces {
                Some(pieces) => write!(f, "{} {done}/{pieces} {note}", work.title),
                None => write!(f, "{} {note}", work.title),
            },
            Event::WorkEnded { work } => write!(f, "{}: ended", work.title),
            Event::Planned { planned, .. } => {
                write!(f, "planned: {} of {}", planned.numbers.total_bytes, planned.numbers.ram_budget_bytes)
            }
            Event::Started { table } => write!(f, "start: {table}"),
            Event::Part { title } => f.write_str(title),
            Event::ResultsToKeep => f.write_str("results are saved when the job is stopped"),
            Event::Epoch { fold, record, .. } => write!(f, "fold {fold}: epoch {} is finished", record.epoch),
        }
    }
}
