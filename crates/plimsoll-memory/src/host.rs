//! The machine and the processor that this process runs on.

use std::io;

use serde::Serialize;

use crate::{System, process};

/// The cores that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cores {
    /// Cores, each with one hardware thread or more.
    pub count: usize,
    /// The cores among them that are slower than the others by design, such as Intel's efficiency cores.
    pub efficient: usize,
    /// The hardware threads of all these cores.
    pub hardware_threads: usize,
}

/// The processor's model name. `None` where the system does not report one, as on most ARM machines with Linux.
pub fn processor_model() -> Option<String> {
    process::processor_model()
}

/// The name of this machine in its network.
pub fn name() -> String {
    process::host_name()
}

/// The cores that this process may use. On Windows and macOS, all cores of the machine.
///
/// # Errors
/// Returns the reason if the system does not describe them.
pub fn cores() -> io::Result<Cores> {
    process::cores(&System::default())
}

/// The hardware threads that the system lets this process use, as a list like `0-3,8`.
///
/// # Errors
/// Returns the reason if the system does not report them, as macOS and Windows.
pub fn allowed_cores() -> io::Result<String> {
    process::allowed_cores()
}
