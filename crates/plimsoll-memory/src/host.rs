//! The machine and the processor that this process runs on.

use std::io;

use crate::process;

/// The processor's model name. `None` where the system does not report one, as on most ARM machines with Linux.
pub fn processor_model() -> Option<String> {
    process::processor_model()
}

/// The name of this machine in its network.
pub fn name() -> String {
    process::host_name()
}

/// The cores that the system lets this process use, as a list like `0-3,8`.
///
/// # Errors
/// Returns the reason if the system does not report them, as macOS and Windows.
pub fn allowed_cores() -> io::Result<String> {
    process::allowed_cores()
}
