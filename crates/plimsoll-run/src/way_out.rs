//! What would make a run fit that does not.

use plimsoll_memory::Bytes;
use serde::{Deserialize, Serialize};

/// A change that would make a run fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayOut {
    /// The flags to change it with.
    pub flags: String,
    /// The least line with this change, as planned.
    pub minimum_ram_bytes: Bytes,
}
