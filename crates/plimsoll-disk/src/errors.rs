//! Errors of the operating system.

use std::io;

use crate::system;

/// Returns `true` for an error of a disk that fails, or of a network that did not answer. The same call may succeed a moment later.
pub fn is_device_failure(error: &io::Error) -> bool {
    system::is_device_failure(error)
}
