//! Windows.
#![allow(unsafe_code, reason = "calls of the interface of Windows")]

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::{io, ptr};

use winapi_util::{Handle, file::information};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_CRC, ERROR_INVALID_FUNCTION, ERROR_IO_PENDING, ERROR_LOCK_VIOLATION,
    ERROR_NOT_SUPPORTED, ERROR_SEM_TIMEOUT, HANDLE,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_DELETE_ON_CLOSE, GetDiskFreeSpaceExW, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY,
    LockFileEx,
};
use windows_sys::Win32::System::IO::OVERLAPPED;

use crate::Substitute;

/// `ERROR_IO_DEVICE`.
const IO_DEVICE: i32 = 1117;

/// `ERROR_DISK_FULL`.
#[cfg(feature = "faults")]
const DISK_FULL: i32 = 112;

/// The byte that stands for the whole file in a lock. Windows refuses to read and write locked bytes, which a lock of this project does
/// not mean: nobody reads there.
const LOCKED: u64 = i64::MAX as u64 - 1;

/// Sets the length of a file, for which NTFS takes the room on the disk at once.
pub(crate) fn allocate(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)
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

/// Takes the lock of a file, unless another open file has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: the structure is plain numbers and a pointer, which may all be zero.
    let mut place: OVERLAPPED = unsafe { std::mem::zeroed() };
    place.Anonymous.Anonymous.Offset = LOCKED as u32;
    place.Anonymous.Anonymous.OffsetHigh = (LOCKED >> 32) as u32;
    let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    let handle: HANDLE = file.as_raw_handle();
    // SAFETY: the handle is open, and not for overlapped operations, so that the structure is used until the call returns.
    if unsafe { LockFileEx(handle, flags, 0, 1, 0, &mut place) } != 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match number(&error) {
        Some(ERROR_LOCK_VIOLATION | ERROR_IO_PENDING) => Ok(false),
        // File systems without locks.
        Some(ERROR_NOT_SUPPORTED | ERROR_INVALID_FUNCTION) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, error))
        }
        _ => Err(error),
    }
}

/// The number of an error of the system.
fn number(error: &io::Error) -> Option<u32> {
    error.raw_os_error().map(i32::cast_unsigned)
}

/// Reads the first bytes of a file, wherever it stands.
pub(crate) fn read_start(file: &File, head: &mut [u8]) -> io::Result<usize> {
    // This moves the position of the file.
    let found = file.seek_read(head, 0)?;
    io::Seek::rewind(&mut &*file)?;
    Ok(found)
}

/// Bytes that a user may still write to the disk of a folder.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let here = if folder.as_os_str().is_empty() { OsStr::new(".") } else { folder.as_os_str() };
    let path: Vec<u16> = here.encode_wide().chain([0]).collect();
    let mut free = 0;
    // SAFETY: the path ends with zero, the number is valid for writes, and the others are not asked for.
    match unsafe { GetDiskFreeSpaceExW(path.as_ptr(), &mut free, ptr::null_mut(), ptr::null_mut()) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(free),
    }
}

/// Checks that the user may create files in a folder, by creating one that the system removes when it is closed: permissions of Windows
/// follow from lists of rights, groups and policies, of which no call returns the result.
pub(crate) fn expect_writable(folder: &Path) -> io::Result<()> {
    let name = format!(".plimsoll-{}.partial", std::process::id());
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(FILE_FLAG_DELETE_ON_CLOSE)
        .open(folder.join(name));
    match created {
        // Another thread of this process checks the same.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if number(&error) == Some(ERROR_ACCESS_DENIED) && !folder.is_dir() => {
            Err(io::ErrorKind::NotADirectory.into())
        }
        result => result.map(drop),
    }
}

/// Folders of Windows cannot be flushed. NTFS writes changes of names to its journal in their order.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on other systems")]
pub(crate) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// The path that a C program passes: UTF-8.
pub(crate) fn path_from_bytes(bytes: &[u8]) -> Option<&Path> {
    std::str::from_utf8(bytes).ok().map(Path::new)
}

/// Pipes and devices of Windows are outside of folders.
pub(crate) fn special_kind(_: &Metadata) -> Option<Substitute> {
    None
}

/// Returns `true` for the errors of a disk that fails, or of a network that did not answer.
pub(crate) fn is_device_failure(error: &io::Error) -> bool {
    error.raw_os_error() == Some(IO_DEVICE) || matches!(number(error), Some(ERROR_CRC | ERROR_SEM_TIMEOUT))
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
