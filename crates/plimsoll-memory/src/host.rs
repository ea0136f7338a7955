//! The processor that this process runs on.

use crate::process;

/// The processor's model name. `None` where the system does not report one, as on most ARM machines with Linux.
pub fn processor_model() -> Option<String> {
    process::processor_model()
}
