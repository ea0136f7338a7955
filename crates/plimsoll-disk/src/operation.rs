//! Operations on the disk, as the gate and the injected faults see them.

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

/// The number of bytes of a read or write that are transferred, and whether it fails after them.
pub(crate) struct Allowance {
    pub(crate) bytes: usize,
    pub(crate) torn: bool,
}
