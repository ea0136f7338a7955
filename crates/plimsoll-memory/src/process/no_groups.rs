//! Systems without control groups: nothing is read.

use crate::Bytes;
use crate::limit::{Limit, System, Unread};

/// No group limits this process.
pub(crate) fn group_limits(_: &System, _: Bytes, _: &mut Vec<Unread>) -> Vec<Limit> {
    Vec::new()
}

/// Nothing counts the processes that were killed for memory.
pub(crate) fn oom_kills(_: &System) -> Option<u64> {
    None
}

/// Nothing reports the pressure of memory.
pub(crate) fn pressure(_: &System) -> Option<String> {
    None
}
