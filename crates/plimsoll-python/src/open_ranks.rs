//! The communication with the other ranks of a launcher.
//!
//! A process initialises MPI once, but a script may train several times, each time in a job of its own. The communicator therefore stays open from the
//! first training to the end of the script, and so does the watch of the ranks over each other.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, process, thread};

use plimsoll::rank_watch;
use plimsoll_ranks::{Communicator, Launch, MpiOptions, RanksError, Watch, open_mpi};
use plimsoll_remedy::{Remedy, render};

use crate::jobs::JobFailure;
use crate::{Failure, Keywords};

/// The status of a process whose communicator is aborted.
const FAILED: i32 = 1;

/// The time that a launcher is given to forward an error: it drops what it has not yet forwarded when a process aborts.
const FORWARDING: Duration = Duration::from_millis(500);

/// The communicator of this process.
struct OpenRanks {
    communicator: Box<dyn Communicator + Send>,
    patience: Duration,
    process: u32,
    /// `true` while a task runs, and once one has failed: the other ranks may wait for this one. Between tasks a script may do what it likes.
    is_awaited: Arc<AtomicBool>,
}

static OPEN: Mutex<Option<OpenRanks>> = Mutex::new(None);

/// Runs a task with the communicator of this process and its patience. The first call opens the communicator with one of `libraries`, or one that the
/// system finds, and sets the patience. Ranks watch over each other while they run tasks.
///
/// # Errors
/// Returns the error of the task, or an error if MPI cannot be opened, the patience differs from the first call's, or an earlier task of this process
/// has failed.
pub(crate) fn with_ranks<T>(
    launch: &Launch,
    libraries: Vec<PathBuf>,
    patience: Option<Duration>,
    task: impl FnOnce(&mut dyn Communicator, Duration) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut place = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = match &mut *place {
        Some(open) => open,
        none => none.insert(OpenRanks::open(launch, libraries, patience)?),
    };
    open.expect_usable(patience)?;
    open.is_awaited.store(true, Ordering::Relaxed);
    let result = task(open.communicator.as_mut(), open.patience);
    let has_failed = result.as_ref().is_err_and(|failure| !failure.is_stopped());
    open.is_awaited.store(has_failed, Ordering::Relaxed);
    result
}

/// Ends the communication of this process: with the other ranks, or, if a task or the script has failed, by ending all of them.
pub fn close_ranks(has_failed: bool) {
    let Some(mut open) = OPEN.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    if open.process != process::id() {
        // The thread of its messages exists in the process that this one was forked from.
        std::mem::forget(open);
    } else if has_failed || open.is_awaited.load(Ordering::Relaxed) {
        open.communicator.abort(FAILED);
    }
}

impl OpenRanks {
    fn open(
        launch: &Launch,
        libraries: Vec<PathBuf>,
        patience: Option<Duration>,
    ) -> Result<OpenRanks, Failure> {
        let is_awaited = Arc::new(AtomicBool::new(false));
        let watch = watch_of(launch.rank, Arc::clone(&is_awaited));
        let mut options = MpiOptions { libraries, watch: Some(watch), ..MpiOptions::default() };
        options.patience = patience.unwrap_or(options.patience);
        let patience = options.patience;
        let communicator = open_mpi(launch, &options).map_err(|error| worded(&error))?;
        Ok(OpenRanks { communicator, patience, process: process::id(), is_awaited })
    }

    fn expect_usable(&self, patience: Option<Duration>) -> Result<(), Failure> {
        if self.process != process::id() {
            return Err(JobFailure::failed(
                "this process was forked from a rank of a training, and is none itself",
                Some("pass ranks=False to train in this process alone".into()),
            ));
        }
        if self.is_awaited.load(Ordering::Relaxed) {
            return Err(JobFailure::failed(
                "an earlier training of these ranks has failed, and they may wait for each other",
                Some("end the script, and start all ranks again with resume=True".into()),
            ));
        }
        if let Some(patience) = patience.filter(|patience| *patience != self.patience) {
            let [now, first] = [patience, self.patience].map(|patience| patience.as_secs_f64());
            return Err(JobFailure::argument(format!(
                "patience is {now} s, but was {first} s in the first training of this script, and holds for all; pass patience={first}"
            )));
        }
        Ok(())
    }
}

/// The watch over the other ranks. It reports one that hangs on standard error: the job is ended at once, so there is no time to raise an exception.
fn watch_of(rank: usize, is_awaited: Arc<AtomicBool>) -> Watch {
    let report = move |hang: &RanksError| {
        let remedy = render(&String::from(Remedy::from(hang.remedy().as_str())), &Keywords);
        // A closed standard error leaves nobody to tell.
        let _ = writeln!(io::stderr(), "rank {rank}: error: {hang}\nhint: {remedy}");
        thread::sleep(FORWARDING);
    };
    rank_watch(move || is_awaited.load(Ordering::Relaxed), report)
}

fn worded(error: &RanksError) -> Failure {
    let remedy = render(&String::from(Remedy::from(error.remedy().as_str())), &Keywords);
    JobFailure::failed(error.to_string(), Some(remedy))
}
