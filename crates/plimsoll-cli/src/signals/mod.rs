//! The response of a process to signals, or events of the console on Windows, that ask it to end.
//!
//! Until there are results to save, the process ends at once. From then on the first signal asks for an orderly end, and the second one
//! ends at once. Signals of batch systems end with 75 (`EX_TEMPFAIL` of sysexits.h: try again later), those of users with 128 plus their
//! number, as in shells.

#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(not(windows), path = "unix.rs")]
mod system;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use plimsoll::StopToken;

use crate::failure::{Failure, Outcome};

/// A signal that asks the process to end.
struct End {
    /// Its number.
    signal: i32,
    /// Its name.
    name: &'static str,
    /// The exit status of the process.
    status: u8,
}

/// `true` if a closed pipe ends the process, until there are results to save.
static ENDS_WITH_PIPE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Lets the reader of the output go away, like `head`: the process then ends, as is usual, without a message that nobody reads.
/// A file that is being written is never left half-written. From [`keep_over_closed_pipe`] on, the output is dropped instead.
pub fn end_with_the_pipe() {
    system::end_with_the_pipe(ENDS_WITH_PIPE.get_or_init(|| Arc::new(AtomicBool::new(true))));
}

/// Drops output that nobody reads from now on, where it ended the process: there are results to keep.
pub fn keep_over_closed_pipe() {
    if let Some(ends) = ENDS_WITH_PIPE.get() {
        ends.store(false, Ordering::Relaxed);
    }
}

/// Ends the process if a pipe that nobody reads ends it: on systems that do not end it themselves.
pub fn pipe_is_closed() {
    if ENDS_WITH_PIPE.get().is_some_and(|ends| ends.load(Ordering::Relaxed)) {
        end_by_closed_pipe();
    }
}

/// Ends the process as a closed pipe does. Where that fails, it returns.
pub fn end_by_closed_pipe() {
    system::end_by_closed_pipe();
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error of that write, where a signal would end the process.
pub fn keep_over_file_limit() {
    system::keep_over_file_limit();
}

/// Returns a flag that is set when the process is asked to end by anything but a key.
///
/// # Errors
/// Returns the operating system's error.
pub fn end_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    system::set_at_end(&flag)?;
    Ok(flag)
}

/// No signal was received.
const NONE: i32 = -1;

/// The signal that was received last.
static RECEIVED: AtomicI32 = AtomicI32::new(NONE);

/// Asks a job to stop at each signal from now on. A second signal, or the first before there are results to keep, ends the process at once.
pub fn listen(stop: &StopToken) -> Outcome {
    let stop = stop.clone();
    Ok(system::listen(move |signal| hear(signal, &stop))?)
}

fn hear(signal: i32, stop: &StopToken) {
    let is_first = !stop.is_asked();
    stop.ask();
    if !is_first && system::is_repeated(signal) {
        return;
    }
    RECEIVED.store(signal, Ordering::Relaxed);
    if !(is_first && stop.has_results()) {
        let hint = "the same command starts again; --resume continues";
        let failure = with_received_signal(Failure::stopped("ended at once", hint));
        failure.print();
        std::process::exit(failure.status().into());
    }
}

/// Completes a failure that a signal may have caused: it ends the process with the signal's status, and an error that only says that the job was
/// stopped names the signal.
pub fn with_received_signal(failure: Failure) -> Failure {
    let received = RECEIVED.load(Ordering::Relaxed);
    match system::ENDS.iter().find(|end| end.signal == received) {
        Some(End { name, status, .. }) => failure.with_signal(name, *status),
        None => failure,
    }
}
