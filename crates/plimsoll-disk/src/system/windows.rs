//! Windows.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

use winapi_util::{Handle, file::information};

/// `ERROR_IO_DEVICE`.
const IO_DEVICE: i32 = 1117;

/// `ERROR_DISK_FULL`.
#[cfg(feature = "faults")]
const DISK_FULL: i32 = 112;

/// `ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 50;

/// Sets the length of a file, for which NTFS takes the room on the disk at once.
pub(crate) fn allocate(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)
}

/// Windows cannot be asked to drop its cached pages of a file.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on other systems")]
pub(crate) fn forget_cached(_: &File) -> io::Result<()> {
    Ok(())
}

/// Returns `true` if a path leads to an open file.
pub(crate) fn is_at(file: &File, path: &Path, there: &Metadata) -> io::Result<bool> {
    match number_of(path, there) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => {
            let own = information(file)?;
            Ok(found? == (own.volume_serial_number(), own.file_index()))
        }
    }
}

/// The volume and the number of a file or folder, which all its names share.
pub(crate) fn number_of(path: &Path, _: &Metadata) -> io::Result<(u64, u64)> {
    let found = information(Handle::from_path_any(path)?)?;
    Ok((found.volume_serial_number(), found.file_index()))
}

/// Returns `true` for the error of file systems without locks.
pub(crate) fn has_no_locks(error: &io::Error) -> bool {
    error.raw_os_error() == Some(NOT_SUPPORTED)
}

/// The error of a device that fails.
pub(crate) fn device_failed() -> io::Error {
    io::Error::from_raw_os_error(IO_DEVICE)
}

/// The error of a disk without room.
#[cfg(feature = "faults")]
pub(crate) fn disk_full() -> io::Error {
    io::Error::from_raw_os_error(DISK_FULL)
}
