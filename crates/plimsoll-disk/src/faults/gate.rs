//! The gate when faults are built in: each operation is numbered, and fails if that is asked for.

use std::io;
use std::path::Path;

use super::FaultKind;
use super::{environment, watch};
use crate::operation::{Allowance, Change, Kind};

impl Kind {
    /// Its name in a trace.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Open => "open",
            Kind::Create => "create",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Seek => "seek",
            Kind::SetLength => "set_len",
            Kind::Sync => "sync",
            Kind::SyncFolder => "sync_folder",
            Kind::Lock => "lock",
            Kind::Rename => "rename",
            Kind::Remove => "remove",
            Kind::CreateFolder => "create_dir",
            Kind::ReadFolder => "read_dir",
            Kind::Metadata => "metadata",
        }
    }
}

fn fault(kind: Kind, path: &Path) -> io::Result<Option<FaultKind>> {
    let of_process = environment::count(kind, path)?;
    Ok(watch::count(path).or(of_process))
}

/// An operation begins that is done whole or not at all.
pub(crate) fn pass(kind: Kind, path: &Path) -> io::Result<()> {
    match fault(kind, path)?.and_then(FaultKind::error) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Begins a read or a write of `bytes` bytes.
pub(crate) fn transfer(kind: Kind, path: &Path, bytes: usize) -> io::Result<Allowance> {
    match fault(kind, path)? {
        None => Ok(Allowance { bytes, torn: false }),
        Some(FaultKind::Short) => Ok(Allowance { bytes: bytes.min(1), torn: false }),
        Some(FaultKind::Torn) if kind == Kind::Write => {
            Ok(Allowance { bytes: bytes.div_ceil(2), torn: true })
        }
        Some(fault) => fault.error().map_or(Ok(Allowance { bytes, torn: false }), Err),
    }
}

/// A change was made.
pub(crate) fn done(change: Change<'_>) {
    watch::note(&change);
}
