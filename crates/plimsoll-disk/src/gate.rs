//! The gate that every operation passes. It is always open, unless tests make operations fail.

use std::path::Path;

/// The kinds of operations, by which a trace names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "faults"), allow(dead_code, reason = "only faults look at the kind"))]
pub(crate) enum Kind {
    Open,
    Create,
    Read,
    Write,
    Seek,
    SetLength,
    Sync,
    SyncFolder,
    Lock,
    Rename,
    Remove,
    CreateFolder,
    ReadFolder,
    Metadata,
}

/// A change that was made, for those who record changes.
#[cfg_attr(not(feature = "faults"), allow(dead_code, reason = "only faults record changes"))]
pub(crate) enum Change<'a> {
    Create(&'a Path),
    /// The file stands behind the bytes.
    Write {
        path: &'a Path,
        file: &'a std::fs::File,
        bytes: &'a [u8],
    },
    SetLength {
        path: &'a Path,
        length: u64,
    },
    Sync(&'a Path),
    SyncFolder(&'a Path),
    Rename {
        from: &'a Path,
        to: &'a Path,
    },
    Remove(&'a Path),
}

/// How much of a read or write is to be done, and whether it fails after that.
pub(crate) struct Allowance {
    pub(crate) bytes: usize,
    pub(crate) torn: bool,
}

#[cfg(feature = "faults")]
pub(crate) use crate::faults::gate::{done, pass, transfer};

#[cfg(not(feature = "faults"))]
pub(crate) use open::{done, pass, transfer};

#[cfg(not(feature = "faults"))]
mod open {
    use std::io;
    use std::path::Path;

    use super::{Allowance, Change, Kind};

    #[inline(always)]
    pub(crate) fn pass(_: Kind, _: &Path) -> io::Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn transfer(_: Kind, _: &Path, bytes: usize) -> io::Result<Allowance> {
        Ok(Allowance { bytes, torn: false })
    }

    #[inline(always)]
    pub(crate) fn done(_: Change<'_>) {}
}
