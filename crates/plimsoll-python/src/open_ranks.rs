//! The communication with the other ranks of a launcher.
//!
//! A process initialises MPI once, but a script may train several times, each time in a job of its own. The communicator therefore stays open from the
//! first training to the end of the script.

use std::process;
use std::sync::{Mutex, PoisonError};

use plimsoll_ranks::{Communicator, Launch, MpiOptions, RanksError, open_mpi};
use plimsoll_remedy::{Remedy, render};

use crate::jobs::JobFailure;
use crate::{Failure, Keywords};

/// The status of a process whose communicator is aborted.
const FAILED: i32 = 1;

/// The communicator of this process.
struct OpenRanks {
    communicator: Box<dyn Communicator + Send>,
    process: u32,
    /// `true` while a task runs, and once one has failed: the other ranks may wait for this one.
    has_failed: bool,
}

static OPEN: Mutex<Option<OpenRanks>> = Mutex::new(None);

/// Runs a task with the communicator of this process, which the first call opens with these options.
///
/// # Errors
/// Returns the error of the task, or an error if MPI cannot be opened, or an earlier task of this process has failed.
pub(crate) fn with_ranks<T>(
    launch: &Launch,
    options: &MpiOptions,
    task: impl FnOnce(&mut dyn Communicator) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut place = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = match &mut *place {
        Some(open) => open,
        none => {
            let communicator = open_mpi(launch, options).map_err(|error| worded(&error))?;
            none.insert(OpenRanks { communicator, process: process::id(), has_failed: false })
        }
    };
    open.expect_usable()?;
    open.has_failed = true;
    let result = task(open.communicator.as_mut());
    open.has_failed = result.as_ref().is_err_and(|failure| !failure.is_stopped());
    result
}

/// Ends the communication of this process: with the other ranks, or, if a task or the script has failed, by ending all of them.
pub fn close_ranks(has_failed: bool) {
    let Some(mut open) = OPEN.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    if open.process != process::id() {
        // The thread of its messages exists in the process that this one was forked from.
        std::mem::forget(open);
    } else if has_failed || open.has_failed {
        open.communicator.abort(FAILED);
    }
}

impl OpenRanks {
    fn expect_usable(&self) -> Result<(), Failure> {
        if self.process != process::id() {
            return Err(JobFailure::failed(
                "this process was forked from a rank of a training, and is none itself",
                Some("pass ranks=False to train in this process alone".into()),
            ));
        }
        if self.has_failed {
            return Err(JobFailure::failed(
                "an earlier training of these ranks has failed, and they may wait for each other",
                Some("end the script, and start all ranks again with resume=True".into()),
            ));
        }
        Ok(())
    }
}

fn worded(error: &RanksError) -> Failure {
    let remedy = render(&String::from(Remedy::from(error.remedy().as_str())), &Keywords);
    JobFailure::failed(error.to_string(), Some(remedy))
}
