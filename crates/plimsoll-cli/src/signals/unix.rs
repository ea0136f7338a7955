//! Signals of Linux and macOS.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1, SIGXCPU, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::End;

/// The handled signals: the first three are those of batch systems.
pub(super) const ENDS: [End; 5] = [
    End { signal: SIGTERM, name: "SIGTERM", status: 75 },
    End { signal: SIGUSR1, name: "SIGUSR1", status: 75 },
    End { signal: SIGXCPU, name: "SIGXCPU", status: 75 },
    End { signal: SIGINT, name: "SIGINT", status: 130 },
    End { signal: SIGHUP, name: "SIGHUP", status: 129 },
];

/// A thread that only waits needs little.
const STACK: usize = 64 << 10;

/// Calls a function in a thread of its own at each signal.
pub(super) fn listen(hear: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(ENDS.map(|end| end.signal))?;
    let wait = move || signals.forever().for_each(hear);
    thread::Builder::new().name("signals".into()).stack_size(STACK).spawn(wait)?;
    Ok(())
}

/// Returns `true` for the signal that the system repeats each second.
pub(super) fn is_repeated(signal: i32) -> bool {
    signal == SIGXCPU
}

/// Sets a flag when the process is asked to end.
pub(super) fn set_at_end(flag: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// Lets SIGPIPE end the process while a flag is set.
pub(super) fn end_with_the_pipe(ends: &Arc<AtomicBool>) {
    // Where it cannot be registered, writing fails instead.
    let _ = flag::register_conditional_default(SIGPIPE, Arc::clone(ends));
}

/// Ends the process by SIGPIPE.
pub(super) fn end_by_closed_pipe() {
    // Where this fails, the error is reported instead.
    let _ = emulate_default_handler(SIGPIPE);
}

/// Handles the signal of a file beyond the limit.
pub(super) fn keep_over_file_limit() {
    // Any handler does; the flag is never read. Without it the signal ends the process, as is usual.
    let _ = flag::register(SIGXFSZ, Arc::default());
}
