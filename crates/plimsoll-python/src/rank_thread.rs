//! The thread that communicates with the other ranks of a launcher.
//!
//! A process initialises MPI once, in the thread that finalises it, but a script may train several times, each time in a job of its own.
//! The communicator therefore lives in a thread of its own from the first training to the end of the script.

use std::process;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use plimsoll_ranks::{Communicator, Launch, MpiOptions, RanksError, open_mpi};
use plimsoll_remedy::{Remedy, render};

use crate::jobs::JobFailure;
use crate::{Failure, Keywords};

/// The status of a process whose communicator is aborted.
const FAILED: i32 = 1;

/// A use of the communicator.
type Use = Box<dyn FnOnce(&mut dyn Communicator) + Send>;

/// The next thing that the thread does.
enum Task {
    Run(Use),
    Abort,
}

/// The thread of the communicator.
struct RankThread {
    tasks: Sender<Task>,
    thread: JoinHandle<()>,
    process: u32,
    /// `true` once a task has failed: the other ranks may wait for this one.
    has_failed: bool,
}

static THREAD: Mutex<Option<RankThread>> = Mutex::new(None);

/// Runs a task with the communicator of this process, which the first call opens with these options.
///
/// # Errors
/// Returns the error of the task, or an error if MPI cannot be opened, or an earlier task of this process has failed.
pub(crate) fn with_ranks<T: Send + 'static>(
    launch: Launch,
    options: MpiOptions,
    task: impl FnOnce(&mut dyn Communicator) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let mut place = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = match &mut *place {
        Some(open) => open,
        none => none.insert(RankThread::open(launch, options)?),
    };
    thread.expect_usable()?;
    let (sender, result) = channel();
    let run = move |communicator: &mut dyn Communicator| {
        // The caller waits for it.
        let _ = sender.send(task(communicator));
    };
    thread.has_failed = true;
    thread.tasks.send(Task::Run(Box::new(run))).map_err(|_| ended())?;
    let result = result.recv().map_err(|_| ended())?;
    thread.has_failed = result.as_ref().is_err_and(|failure| !failure.is_stopped());
    result
}

/// Ends the communication of this process: with the other ranks, or, if a task or the script has failed, by ending all of them.
pub fn close_ranks(has_failed: bool) {
    let Some(thread) = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    if thread.process != process::id() {
        // The thread exists in the process that this one was forked from.
        std::mem::forget(thread);
        return;
    }
    if has_failed || thread.has_failed {
        // A thread that has ended has aborted by itself.
        let _ = thread.tasks.send(Task::Abort);
    }
    drop(thread.tasks);
    // A panic was reported where it happened.
    let _ = thread.thread.join();
}

impl RankThread {
    /// Starts the thread, which opens MPI.
    fn open(launch: Launch, options: MpiOptions) -> Result<RankThread, Failure> {
        let ((tasks, received), (told, opened)) = (channel(), channel());
        let serve = move || serve(&launch, &options, &told, &received);
        let thread = Builder::new().name("plimsoll ranks".into()).spawn(serve).map_err(|error| {
            JobFailure::failed(
                format!("no thread can be started: {error}"),
                Some("end other programs, or raise `ulimit -u`".into()),
            )
        })?;
        opened.recv().map_err(|_| ended())?.map_err(|error| worded(&error))?;
        Ok(RankThread { tasks, thread, process: process::id(), has_failed: false })
    }

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

/// Opens MPI, runs tasks, and closes MPI after the last.
fn serve(
    launch: &Launch,
    options: &MpiOptions,
    told: &Sender<Result<(), RanksError>>,
    tasks: &Receiver<Task>,
) {
    let mut communicator = match open_mpi(launch, options) {
        Ok(communicator) => communicator,
        Err(error) => {
            let _ = told.send(Err(error));
            return;
        }
    };
    let _ = told.send(Ok(()));
    for task in tasks {
        match task {
            Task::Run(run) => run(communicator.as_mut()),
            Task::Abort => communicator.abort(FAILED),
        }
    }
}

fn worded(error: &RanksError) -> Failure {
    let remedy = render(&String::from(Remedy::from(error.remedy().as_str())), &Keywords);
    JobFailure::failed(error.to_string(), Some(remedy))
}

fn ended() -> Failure {
    JobFailure::failed("the thread that communicates with the other ranks has ended", None)
}
