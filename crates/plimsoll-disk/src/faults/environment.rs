//! The fault and the trace that the environment asks for.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{Fault, FaultKind};
use crate::operation::Kind;

struct Process {
    fault: Option<Fault>,
    trace: Option<File>,
    /// The number of the last operation.
    number: u64,
}

/// Numbers an operation and says how it fails. If the environment asks for what there is not, every operation fails.
pub(super) fn count(kind: Kind, path: &Path) -> io::Result<Option<FaultKind>> {
    static PROCESS: OnceLock<Result<Mutex<Process>, String>> = OnceLock::new();
    let process = PROCESS.get_or_init(|| read().map(Mutex::new)).as_ref();
    let process = process.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why.clone()))?;
    // The lock is held while the line is written, so that lines are in order.
    let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
    process.number += 1;
    let number = process.number;
    if let Some(trace) = &mut process.trace {
        trace.write_all(format!("{number} {} {}\n", kind.name(), path.display()).as_bytes())?;
    }
    Ok(process.fault.filter(|fault| fault.number == number).map(|fault| fault.kind))
}

fn read() -> Result<Process, String> {
    let fault = match std::env::var("PLIMSOLL_DISK_FAULT") {
        Ok(text) => Some(text.parse::<Fault>().map_err(|error| format!("PLIMSOLL_DISK_FAULT: {error}"))?),
        Err(std::env::VarError::NotPresent) => None,
        Err(error) => return Err(format!("PLIMSOLL_DISK_FAULT: {error}")),
    };
    let open = |path| {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| format!("PLIMSOLL_DISK_TRACE: {error}"))
    };
    let trace = std::env::var_os("PLIMSOLL_DISK_TRACE").map(open).transpose()?;
    Ok(Process { fault, trace, number: 0 })
}
