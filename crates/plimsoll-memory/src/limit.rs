//! One memory limit, and where the system describes its limits.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::Bytes;

/// Something that limits the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The name of its setter, with the file or the parameter that it was read from.
    pub source: String,
    /// The bytes left to this process, after the present use of other processes under the same limit.
    pub bytes: Bytes,
    /// The limit itself.
    pub ceiling: Bytes,
}

/// A file of the system that exists but could not be read, so that a limit in it is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// The file.
    pub path: PathBuf,
    /// Why it could not be read.
    pub reason: String,
}

/// A warning for the user.
impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unread { path, reason } = self;
        write!(f, "cannot read {} ({reason}): a memory limit set there is not enforced", path.display())
    }
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
