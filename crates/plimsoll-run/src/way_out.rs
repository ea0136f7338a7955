//! Changes that would make a run fit.

use std::fmt;

use plimsoll_memory::Bytes;
use serde::{Deserialize, Serialize};

/// A change that would make a run fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayOut {
    /// The changed parameters, marked as remedies mark them.
    pub flags: String,
    /// The least limit with this change, as planned.
    pub minimum_ram_bytes: Bytes,
    /// The smallest limit of device memory; `None` on the processor.
    pub minimum_vram_bytes: Option<Bytes>,
}

impl fmt::Display for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WayOut { flags, minimum_ram_bytes: ram, minimum_vram_bytes: vram } = self;
        match vram {
            None => write!(f, "{flags} (needs {ram})"),
            Some(vram) => write!(f, "{flags} (needs {ram}, and {vram} of the device)"),
        }
    }
}
