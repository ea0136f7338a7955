//! One memory limit, and where the system describes its limits.

use std::path::PathBuf;

use serde::Serialize;

use crate::Bytes;

/// Something that limits the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// What sets it, with the file or the flag that it was read from.
    pub source: String,
    /// What it leaves to this process, after what other processes under the same limit hold now.
    pub bytes: Bytes,
    /// The limit itself.
    pub ceiling: Bytes,
}

/// The root folders that limits are read from. Only tests override the defaults.
#[derive(Clone, Debug)]
pub struct System {
    /// The mount point of procfs.
    pub proc: PathBuf,
    /// The folder that mount points are relative to.
    pub root: PathBuf,
}

impl Default for System {
    fn default() -> System {
        System { proc: "/proc".into(), root: "/".into() }
    }
}
