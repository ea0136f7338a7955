//! The number of the failing operation, and the kind of failure.

use std::io;
use std::str::FromStr;

use crate::system;

/// The kind of failure of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// `eio`: it does nothing and reports that the device failed.
    Eio,
    /// `enospc`: it does nothing and reports that the disk is full.
    Enospc,
    /// `short`: a read or a write of several bytes does one, and succeeds. Others are as ever.
    Short,
    /// `torn`: a write writes half of its bytes, and reports that the device failed. Others are as with `eio`.
    Torn,
    /// `abort`: the process ends on the spot, before the operation.
    Abort,
}

/// An operation that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number, from 1.
    pub number: u64,
    /// The kind of failure.
    pub kind: FaultKind,
}

/// A fault is not written `NUMBER:KIND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseFaultError(String);

impl std::fmt::Display for ParseFaultError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found = &self.0;
        write!(f, "the fault `{found}` is not NUMBER:KIND, where KIND is eio, enospc, short, torn or abort")
    }
}

impl std::error::Error for ParseFaultError {}

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Fault, ParseFaultError> {
        let parsed = text.split_once(':').and_then(|(number, kind)| {
            let kind = match kind {
                "eio" => FaultKind::Eio,
                "enospc" => FaultKind::Enospc,
                "short" => FaultKind::Short,
                "torn" => FaultKind::Torn,
                "abort" => FaultKind::Abort,
                _ => return None,
            };
            Some(Fault { number: number.parse().ok().filter(|number| *number > 0)?, kind })
        });
        parsed.ok_or_else(|| ParseFaultError(text.into()))
    }
}

impl FaultKind {
    /// The error of an operation that does nothing; none if this kind lets it go on.
    pub(super) fn error(self) -> Option<io::Error> {
        match self {
            FaultKind::Eio | FaultKind::Torn => Some(system::device_failed()),
            FaultKind::Enospc => Some(system::disk_full()),
            FaultKind::Short => None,
            FaultKind::Abort => std::process::abort(),
        }
    }
}
