//! The network between ranks, in two numbers.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

/// The latency of a network that gives none: of TCP over Ethernet within a data centre, as ping-pong tests report it.
const LATENCY_SECONDS: f64 = 50e-6;
/// The time for each further message of several that are sent or received together: the overhead o of LogGP. An assumption, of the order of what
/// MPI libraries need without the help of a network card.
const OVERHEAD_SECONDS: f64 = 2e-6;

/// The network of a rank. Ranks of one node share the node's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Link {
    /// The bits per second that a rank sends, while it receives as many.
    pub bits_per_second: f64,
    /// The seconds until a short message has arrived: half of the time of a ping-pong, L + 2o of LogGP.
    pub latency_seconds: f64,
}

/// A text that describes no network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{text}` is no network: write the bandwidth of a rank in Gbit or Mbit per second, and its latency in us or ms if it is not 50us, like \
     25Gbit or 25Gbit,30us"
)]
pub struct LinkError {
    text: String,
}

impl Link {
    /// The seconds of a message of some bytes.
    pub(crate) fn message_seconds(&self, bytes: u64) -> f64 {
        self.messages_seconds(1, bytes)
    }

    /// The seconds of `count` messages that are sent, or received, together.
    pub(crate) fn messages_seconds(&self, count: u64, bytes: u64) -> f64 {
        match count {
            0 => 0.0,
            count => {
                let overheads = (count - 1) as f64 * OVERHEAD_SECONDS;
                self.latency_seconds + overheads + bytes as f64 * 8.0 / self.bits_per_second
            }
        }
    }
}

/// Reads a number with one of some units behind it.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let lower = text.trim().to_lowercase();
    let (number, scale) = units.iter().find_map(|(unit, scale)| Some((lower.strip_suffix(unit)?, *scale)))?;
    let value = number.trim().parse::<f64>().ok()? * scale;
    (value.is_finite() && value >= 0.0).then_some(value)
}

impl FromStr for Link {
    type Err = LinkError;

    /// Reads `25Gbit`, `800Mbit` or `25Gbit,30us`.
    fn from_str(text: &str) -> Result<Link, LinkError> {
        let read = || {
            let (bandwidth, latency) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b)));
            let bits_per_second = scaled(bandwidth, &[("gbit", 1e9), ("mbit", 1e6)])?;
            let latency_seconds = match latency {
                Some(latency) => scaled(latency, &[("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3)])?,
                None => LATENCY_SECONDS,
            };
            (bits_per_second > 0.0).then_some(Link { bits_per_second, latency_seconds })
        };
        read().ok_or_else(|| LinkError { text: text.into() })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabits = self.bits_per_second / 1e9;
        let microseconds = (self.latency_seconds * 1e9).round() / 1e3;
        match gigabits < 1.0 {
            true => write!(f, "{} Mbit/s and {microseconds} µs", self.bits_per_second / 1e6),
            false => write!(f, "{gigabits} Gbit/s and {microseconds} µs"),
        }
    }
}
