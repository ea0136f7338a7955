//! What a process does when it is told to end.
//!
//! Until there is something to save, it ends at once. From then on the first signal asks for an orderly end, and the second one
//! ends at once. SIGTERM, SIGUSR1 and SIGXCPU are how batch systems take a machine back, and end with 75 (`EX_TEMPFAIL` of sysexits.h:
//! try again later); SIGINT and SIGHUP end with 128 and their number, as shells have it.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1, SIGXCPU, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Outcome};

/// What is listened to, with the name and the status that a process ends with.
const ENDS: [(i32, &str, u8); 5] = [
    (SIGTERM, "SIGTERM", 75),
    (SIGUSR1, "SIGUSR1", 75),
    (SIGXCPU, "SIGXCPU", 75),
    (SIGINT, "SIGINT", 130),
    (SIGHUP, "SIGHUP", 129),
];

/// Whether a closed pipe ends the process: until there is something to save.
static ENDS_WITH_PIPE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Lets the reader of the output go away, like `head`: the process then ends by SIGPIPE, as is usual, without a message that nobody reads.
/// A file that is being written is never left half-written. From [`Stop::end_in_order`] on, the output is dropped instead.
pub fn end_with_the_pipe() {
    let ends = ENDS_WITH_PIPE.get_or_init(|| Arc::new(AtomicBool::new(true)));
    // Where it cannot be registered, writing fails instead.
    let _ = signal_hook::flag::register_conditional_default(SIGPIPE, Arc::clone(ends));
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error of that write, where the signal would end the process.
pub fn keep_over_file_limit() {
    // Any handler does; the flag is never read. Without it the signal ends the process, as is usual.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// A thread that only waits needs little.
const STACK: usize = 64 << 10;

/// Whether the process was told to end, and how.
#[derive(Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
    /// Whether there is something to save.
    orderly: Arc<AtomicBool>,
}

impl Stop {
    /// Listens to signals from now on.
    pub fn listen() -> Outcome<Stop> {
        let stop =
            Stop { asked: Arc::default(), signal: Arc::new(AtomicI32::new(0)), orderly: Arc::default() };
        let mut signals = Signals::new(ENDS.map(|(signal, ..)| signal))?;
        let heard = stop.clone();
        thread::Builder::new().name("signals".into()).stack_size(STACK).spawn(move || {
            for signal in signals.forever() {
                heard.hear(signal);
            }
        })?;
        Ok(stop)
    }

    fn hear(&self, signal: i32) {
        let first = !self.asked.swap(true, Ordering::Relaxed);
        if !first && signal == SIGXCPU {
            // The system repeats it each second.
            return;
        }
        self.signal.store(signal, Ordering::Relaxed);
        if !(first && self.orderly.load(Ordering::Relaxed)) {
            let failure = self.failure("ended at once", "the same command begins again, or --resume goes on");
            failure.print();
            std::process::exit(failure.status().into());
        }
    }

    /// From now on there is something to save: signals set the flag.
    pub fn end_in_order(&self) {
        self.orderly.store(true, Ordering::Relaxed);
        if let Some(ends) = ENDS_WITH_PIPE.get() {
            ends.store(false, Ordering::Relaxed);
        }
    }

    /// Set once the process is to end.
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// Whether the process is to end.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// A failure that a signal may be the cause of: then the process ends with the signal's status.
    pub fn cause_of(&self, failure: Failure) -> Failure {
        let signal = self.signal.load(Ordering::Relaxed);
        match ENDS.iter().find(|(known, ..)| *known == signal) {
            Some((_, _, status)) => failure.with_status(*status),
            None => failure,
        }
    }

    /// What the process ends with: the signal by name, what was done about it, how to go on.
    pub fn failure(&self, what: impl std::fmt::Display, hint: impl Into<String>) -> Failure {
        let signal = self.signal.load(Ordering::Relaxed);
        let found = ENDS.iter().find(|(known, ..)| *known == signal);
        let (name, status) = found.map_or(("a signal", 1), |(_, name, status)| (*name, *status));
        Failure::new(format!("{name}: {what}"), hint).with_status(status)
    }
}
