//! Events of the console of Windows, which take the place of signals.
#![allow(unsafe_code, reason = "calls of the interface of Windows")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT,
    SetConsoleCtrlHandler,
};
use windows_sys::core::BOOL;

use super::End;

/// The handled events. Programs that start others send Ctrl-Break, as batch systems send SIGTERM.
pub(super) const ENDS: [End; 5] = [
    End { signal: CTRL_C_EVENT.cast_signed(), name: "Ctrl-C", status: 130 },
    End { signal: CTRL_BREAK_EVENT.cast_signed(), name: "Ctrl-Break", status: 75 },
    End { signal: CTRL_CLOSE_EVENT.cast_signed(), name: "the closed console", status: 75 },
    End { signal: CTRL_LOGOFF_EVENT.cast_signed(), name: "the end of the session", status: 75 },
    End { signal: CTRL_SHUTDOWN_EVENT.cast_signed(), name: "the shutdown", status: 75 },
];

/// The status of a process whose output nobody reads.
const NOBODY_READS: i32 = 1;

/// A function that is called with each event.
type Listener = Box<dyn Fn(i32) + Send>;

static LISTENERS: Mutex<Vec<Listener>> = Mutex::new(Vec::new());

/// The system calls it in a thread of its own for each event.
unsafe extern "system" fn handle(event: u32) -> BOOL {
    for hear in LISTENERS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        hear(event.cast_signed());
    }
    if is_final(event) {
        // When this returns, the system ends the process; if it does not, after some seconds. Until then a checkpoint may be complete, and
        // the main thread ends the process.
        loop {
            thread::park();
        }
    }
    1
}

/// Returns `true` for events after which the system ends the process.
fn is_final(event: u32) -> bool {
    [CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT].contains(&event)
}

/// Calls a function at each event.
pub(super) fn listen(hear: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.push(Box::new(hear));
    if listeners.len() > 1 {
        return Ok(());
    }
    // SAFETY: the handler is a function that lives as long as the program, and may be called from any thread.
    match unsafe { SetConsoleCtrlHandler(Some(handle), 1) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// No event is repeated.
pub(super) fn is_repeated(_: i32) -> bool {
    false
}

/// Sets a flag when the process is asked to end. Ctrl-C is a key of the view.
pub(super) fn set_at_end(flag: &Arc<AtomicBool>) -> io::Result<()> {
    let flag = Arc::clone(flag);
    listen(move |_| flag.store(true, Ordering::Relaxed))
}

/// Windows has no signal for closed pipes: writing fails.
pub(super) fn end_with_the_pipe(_: &Arc<AtomicBool>) {}

/// Ends the process.
pub(super) fn end_by_closed_pipe() {
    std::process::exit(NOBODY_READS);
}

/// Windows has no limit of file sizes.
pub(super) fn keep_over_file_limit() {}
