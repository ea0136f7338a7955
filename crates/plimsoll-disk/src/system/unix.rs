//! Linux, macOS and their relatives.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

/// Takes the room of a file of `length` bytes on the disk. Where the file system cannot do that, only the length is set.
pub(crate) fn allocate(file: &File, length: u64) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, 0, length)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(length),
        result => Ok(result?),
    }
}

/// Asks the system to drop its cached pages of a file.
#[cfg(target_os = "linux")]
pub(crate) fn forget_cached(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Other systems cannot be asked.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail on other systems")]
pub(crate) fn forget_cached(_: &File) -> io::Result<()> {
    Ok(())
}

/// The device and the number of a file or folder, which all its names share.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on other systems")]
pub(crate) fn number_of(_: &Path, found: &Metadata) -> io::Result<(u64, u64)> {
    Ok((found.dev(), found.ino()))
}

/// Returns `true` if a path, which has the metadata `there`, leads to an open file.
pub(crate) fn is_at(file: &File, _: &Path, there: &Metadata) -> io::Result<bool> {
    let number = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    Ok(number(there) == number(&file.metadata()?))
}

/// Returns `true` for the error of network file systems without a service for locks.
pub(crate) fn has_no_locks(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOLCK.raw_os_error())
}

/// The error of a device that fails.
pub(crate) fn device_failed() -> io::Error {
    Errno::IO.into()
}

/// The error of a disk without room.
#[cfg(feature = "faults")]
pub(crate) fn disk_full() -> io::Error {
    Errno::NOSPC.into()
}
