//! Threads that share the work of an inspection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::inspect::InspectError;

/// The stack of a thread that reads images: large buffers are mapped.
const STACK: usize = 512 << 10;

/// Runs the same work, which takes one case after the other until there are no more, on several threads. Where one of them cannot be started,
/// `stop` is set, which the others look at.
///
/// # Errors
/// That of the first thread which has one, or that a thread cannot be started or was lost.
pub(crate) fn on_threads(
    name: &str,
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn() -> Result<(), InspectError> + Sync,
) -> Result<(), InspectError> {
    let work = &work;
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..threads {
            let worker = thread::Builder::new().name(name.into()).stack_size(STACK);
            match worker.spawn_scoped(scope, work) {
                Ok(worker) => workers.push(worker),
                Err(problem) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(InspectError::Thread(problem));
                }
            }
        }
        let mut outcome = Ok(());
        for worker in workers {
            outcome = outcome.and(worker.join().unwrap_or(Err(InspectError::ThreadLost)));
        }
        outcome
    })
}
