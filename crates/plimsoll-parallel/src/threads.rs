//! The number of threads that suits the machine.
#![forbid(unsafe_code)]

use plimsoll_memory::host;

/// Returns the number of threads for work that keeps processors busy: one for each core that this process may use, and no more than the
/// quota of its control group. Hardware threads of one core share its multipliers, so a second thread gains nothing there. Slow cores
/// count: threads take tasks as they finish others, so a slow one takes fewer. Where the system does not describe its cores, one for each
/// hardware thread.
pub fn default_threads() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    host::cores().map_or(allowed, |cores| cores.count.min(allowed))
}
