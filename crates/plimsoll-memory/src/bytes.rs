//! A number of bytes: parsing, formatting, and saturating arithmetic.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes. `Display` uses binary units (`1.50 GiB`); serialised, it is a plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` × 2²⁰ bytes.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n * MIB)
    }

    /// `n` × 2³⁰ bytes.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n * GIB)
    }

    /// The number of bytes of a buffer in this process.
    pub const fn from_len(len: usize) -> Bytes {
        Bytes(len as u64)
    }

    /// `self − other`, or zero where that would be negative.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// `self + other`, or the largest number where that would overflow.
    pub const fn saturating_add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        self.saturating_add(other)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        self.saturating_sub(other)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n >= TIB => (TIB, "TiB"),
            n if n >= GIB => (GIB, "GiB"),
            n if n >= MIB => (MIB, "MiB"),
            n if n >= KIB => (KIB, "KiB"),
            n => return f.pad(&format!("{n} B")),
        };
        let scaled = self.0 as f64 / unit as f64;
        let digits = if unit >= GIB { 2 } else { 1 };
        f.pad(&format!("{scaled:.digits$} {name}"))
    }
}

/// The text is not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a number of bytes: write it like 1.5GiB, 800MiB, 2GB or 1073741824")]
pub struct ParseBytesError {
    text: String,
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// Reads `1.5GiB`, `800 MiB`, `2GB`, `64k`, `4096`. Units with an `i`, and bare `K M G T`, are powers of 1024;
    /// `kB MB GB TB` are powers of 1000.
    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let error = || ParseBytesError { text: text.into() };
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let scale = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => KIB,
            "m" | "mib" => MIB,
            "g" | "gib" => GIB,
            "t" | "tib" => TIB,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(error()),
        };
        let number = number.replace('_', "");
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Bytes).ok_or_else(error);
        }
        let scaled = number.parse::<f64>().map_err(|_| error())? * scale as f64;
        if !scaled.is_finite() || scaled < 0.0 || scaled >= u64::MAX as f64 {
            return Err(error());
        }
        Ok(Bytes(scaled as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_numbers_with_common_units() {
        for (text, bytes) in [
            ("1.5GiB", GIB + GIB / 2),
            ("1.5 gib", GIB + GIB / 2),
            ("64MiB", 64 * MIB),
            ("64m", 64 * MIB),
            ("2GB", 2_000_000_000),
            ("4096", 4096),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "1.5 GiBs", "-1", "1e3x", "99999999TiB", "nan"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn writes_binary_units() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes::gib(3).to_string(), "3.00 GiB");
        assert_eq!(format!("{:>10}|", Bytes::mib(1)), "   1.0 MiB|");
    }
}
