//! The processor time and the page faults of this process, as the system counts them.

use std::time::Duration;

use crate::process;

/// The processor time of this thread. Windows counts it by ticks of its clock, of 16 ms at most.
pub fn thread_time() -> Duration {
    process::thread_time()
}

/// The processor time of all threads of this process.
pub fn process_time() -> Duration {
    process::process_time()
}

/// The bytes that calls of this process have read from files and written to them; `None` where the system does not count them. Only Linux does.
pub fn moved_bytes() -> Option<u64> {
    process::moved_bytes()
}

/// Page faults of this process that waited for a disk; `None` where the system does not count them, as on Windows.
pub fn major_faults() -> Option<u64> {
    process::major_faults()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_follows_the_work_of_a_thread() {
        let (thread, process) = (thread_time(), process_time());
        let mut sum = 0u64;
        while thread_time() - thread < Duration::from_millis(40) {
            (0..1 << 16).for_each(|number| sum = std::hint::black_box(sum ^ number));
        }
        assert!(process_time() - process >= Duration::from_millis(20));
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "/proc describes the interpreter")]
    fn bytes_of_files_are_counted_when_they_are_read() {
        let before = moved_bytes().unwrap();
        let bytes = std::fs::read("/proc/self/exe").unwrap().len() as u64;
        assert!(moved_bytes().unwrap() - before >= bytes);
    }

    #[test]
    fn a_host_has_a_name() {
        assert!(!crate::host::name().is_empty());
    }
}
