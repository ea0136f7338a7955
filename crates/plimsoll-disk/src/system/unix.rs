//! Linux, macOS and their relatives.

use std::ffi::OsStr;
use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::io::Errno;

use crate::Substitute;

/// Takes the room of a file of `length` bytes on the disk. Where the file system cannot do that, only the length is set.
pub(crate) fn allocate(file: &File, length: u64) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, 0, length)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(length),
        result => Ok(result?),
    }
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

/// Takes the lock of a file, unless another open file has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        // Network file systems without a service for locks.
        Err(TryLockError::Error(error)) if error.raw_os_error() == Some(Errno::NOLCK.raw_os_error()) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, error))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Reads the first bytes of a file, wherever it stands.
pub(crate) fn read_start(file: &File, head: &mut [u8]) -> io::Result<usize> {
    file.read_at(head, 0)
}

/// Bytes that a user may still write to the disk of a folder.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    // Their types differ between systems.
    #[allow(clippy::useless_conversion, reason = "macOS counts blocks in 32 bits")]
    Ok(u64::from(disk.f_bavail).saturating_mul(u64::from(disk.f_frsize)))
}

/// Checks that the user may create files in a folder.
pub(crate) fn expect_writable(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?)
}

/// Waits until the disk has the names of a folder's files.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(here)?.sync_all()
}

/// The path that a C program passes: any bytes.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on other systems")]
pub(crate) fn path_from_bytes(bytes: &[u8]) -> Option<&Path> {
    Some(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns the kind of something that is no file, but cannot be read to an end. The device that is always empty is a file: people name it
/// where a file may be empty.
pub(crate) fn special_kind(found: &Metadata) -> Option<Substitute> {
    let kind = found.file_type();
    let is_null = || std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == found.rdev());
    let kinds = [
        (kind.is_fifo(), Substitute::NamedPipe),
        (kind.is_socket(), Substitute::Socket),
        (kind.is_char_device() && !is_null(), Substitute::CharacterDevice),
        (kind.is_block_device(), Substitute::BlockDevice),
    ];
    kinds.into_iter().find(|(is_of, _)| *is_of).map(|(_, special)| special)
}

/// Returns `true` for the error of a disk that fails, or of a network that did not answer.
pub(crate) fn is_device_failure(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
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
