//! The state a device reports while programs run on it.

use plimsoll_memory::Bytes;
use serde::{Deserialize, Serialize};

/// A device at a moment, whoever uses it; what it does not say is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    /// The device memory in use by all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<Bytes>,
    /// All of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<Bytes>,
    /// The share of the last second or less in which some kernel ran, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u32>,
    /// Its temperature, in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<u32>,
}
