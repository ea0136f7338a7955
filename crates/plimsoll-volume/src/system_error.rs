//! Errors of the operating system: their remedies, and whether another try may succeed.

use std::io;

use plimsoll_disk::{Substitute, is_device_failure};
use plimsoll_memory::Bytes;

/// The remedy for a file that the operating system refuses.
pub(crate) fn hint(source: &io::Error) -> Option<String> {
    if let Some(found) = Substitute::find(source) {
        return Some(found.remedy().into());
    }
    let hint = match source.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "check the permissions",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on the disk, or write somewhere else"
        }
        _ => return None,
    };
    Some(hint.into())
}

/// The remedy for a disk that refuses a decompressed image.
pub(crate) fn decompress_hint(bytes: Bytes, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => "check the path of the output".into(),
        io::ErrorKind::PermissionDenied => "check the permissions".into(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
            "free {bytes} on that disk, write to another one, or raise the memory limit, so that the image stays in memory"
        ),
        io::ErrorKind::FileTooLarge => {
            "raise the limit of file sizes (`ulimit -f`), write to another disk, or raise the memory limit, so that the image stays in memory"
                .into()
        }
        _ => "write to another disk, or raise the memory limit, so that the image stays in memory".into(),
    }
}

/// Returns `true` if the same call may succeed a moment later: a network or a disk did not answer.
pub(crate) fn may_pass(source: &io::Error) -> bool {
    is_device_failure(source)
        || matches!(
            source.kind(),
            io::ErrorKind::TimedOut
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::ResourceBusy
                | io::ErrorKind::StaleNetworkFileHandle
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::NetworkDown
        )
}
