//! The response of a process to signals that ask it to end.
//!
//! Until there are results to save, the process ends at once. From then on the first signal asks for an orderly end, and the second one
//! ends at once. SIGTERM, SIGUSR1 and SIGXCPU are the signals of batch systems, and end with 75 (`EX_TEMPFAIL` of sysexits.h: try again
//! later); SIGINT and SIGHUP end with 128 plus their number, as in shells.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use plimsoll::StopToken;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1, SIGXCPU, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Outcome};

/// The handled signals, with their names and the exit status of the process.
const ENDS: [(i32, &str, u8); 5] = [
    (SIGTERM, "SIGTERM", 75),
    (SIGUSR1, "SIGUSR1", 75),
    (SIGXCPU, "SIGXCPU", 75),
    (SIGINT, "SIGINT", 130),
    (SIGHUP, "SIGHUP", 129),
];

/// `true` if a closed pipe ends the process, until there are results to save.
static ENDS_WITH_PIPE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Lets the reader of the output go away, like `head`: the process then ends by SIGPIPE, as is usual, without a message that nobody reads.
/// A file that is being written is never left half-written. From [`keep_over_closed_pipe`] on, the output is dropped instead.
pub fn end_with_the_pipe() {
    let ends = ENDS_WITH_PIPE.get_or_init(|| Arc::new(AtomicBool::new(true)));
    // Where it cannot be registered, writing fails instead.
    let _ = signal_hook::flag::register_conditional_default(SIGPIPE, Arc::clone(ends));
}

/// Drops output that nobody reads from now on, where it ended the process: there are results to keep.
pub fn keep_over_closed_pipe() {
    if let Some(ends) = ENDS_WITH_PIPE.get() {
        ends.store(false, Ordering::Relaxed);
    }
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error of that write, where the signal would end the process.
pub fn keep_over_file_limit() {
    // Any handler does; the flag is never read. Without it the signal ends the process, as is usual.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// A thread that only waits needs little.
const STACK: usize = 64 << 10;

/// The signal that was received first; 0 before.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Asks a job to stop at each signal from now on. A second signal, or the first before there are results to keep, ends the process at once.
pub fn listen(stop: &StopToken) -> Outcome {
    let mut signals = Signals::new(ENDS.map(|(signal, ..)| signal))?;
    let stop = stop.clone();
    thread::Builder::new().name("signals".into()).stack_size(STACK).spawn(move || {
        for signal in signals.forever() {
            hear(signal, &stop);
        }
    })?;
    Ok(())
}

fn hear(signal: i32, stop: &StopToken) {
    let is_first = !stop.is_asked();
    stop.ask();
    if !is_first && signal == SIGXCPU {
        // The system repeats it each second.
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
    let signal = RECEIVED.load(Ordering::Relaxed);
    match ENDS.iter().find(|(known, ..)| *known == signal) {
        Some((_, name, status)) => failure.with_signal(name, *status),
        None => failure,
    }
}
