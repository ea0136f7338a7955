//! Calls that Linux, macOS and their relatives share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The name of this machine in its network.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    time(ClockId::ThreadCPUTime)
}

/// The processor time of all threads of this process.
pub(crate) fn process_time() -> Duration {
    time(ClockId::ProcessCPUTime)
}

fn time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Processor time begins with 0, and nanoseconds are below 1e9.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
