//! Files that appear under their name only when they are complete.
//!
//! The contents go to a temporary file in the same folder, which is renamed once the disk has it: within one folder a rename
//! replaces an older file in a single step. A write that fails, or a process that is killed, leaves the older file as it was.
//!
//! A killed process leaves its temporary file as well. It was locked, and the lock ended with the process: that distinguishes it
//! from one that is being written, also by another container on the same folder. The next file of the same name removes it, and so does
//! [`sweep`] of its folder. Temporary files are numbered from 0, so that the files of a name are found without listing the folder.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::{File, folder};

/// The bytes that [`write()`] collects before each write to the file.
pub const BUFFER: usize = 64 << 10;

/// The hexadecimal digits that number the temporary files of a name.
const DIGITS: usize = 16;

/// The most bytes of a name in the name of its temporary file: file systems take 255, with the number and the ending.
const LONGEST_STEM: usize = 200;

/// An unbuffered file under a temporary name. [`commit`](Self::commit) gives it its final name; if it is dropped before, the
/// temporary file is removed.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    pub(crate) file: File,
    committed: bool,
}

impl AtomicFile {
    /// Creates and locks the temporary file `.NAME.NUMBER.partial` beside `path`, and removes temporary files of this name that killed processes left.
    ///
    /// # Errors
    /// If `path` does not end in a file name, or the temporary file cannot be created.
    pub fn create(path: &Path) -> io::Result<AtomicFile> {
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
        };
        let name = name.to_string_lossy();
        let stem = &name[..name.floor_char_boundary(LONGEST_STEM)];
        let temporary = |number: u64| path.with_file_name(format!(".{stem}.{number:0DIGITS$x}.partial"));
        let mut number = 0;
        loop {
            let file = match File::create_new(temporary(number)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if !remove_if_abandoned(&temporary(number))? {
                        number += 1;
                    }
                    continue;
                }
                result => result?,
            };
            // From here on dropping it removes the file.
            let created = AtomicFile { path: path.into(), file, committed: false };
            let locked = match created.file.try_lock() {
                // Without locks nothing is removed, so that nothing needs to be locked.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => true,
                result => result?,
            };
            // Another process may have removed it between creating and locking.
            if !locked || !created.file.is_at_its_path()? {
                continue;
            }
            // Of several processes that were killed at once.
            let mut next = number + 1;
            while remove_if_abandoned(&temporary(next))? {
                next += 1;
            }
            return Ok(created);
        }
    }

    /// Extends it with zeros to `length` bytes at least, for which the disk takes the room at once: see [`File::allocate`].
    ///
    /// # Errors
    /// If the disk has no room.
    pub fn allocate(&self, length: u64) -> io::Result<()> {
        self.file.allocate(length)
    }

    /// Waits until the disk has the contents, then renames the file to its final name, replacing an older file, and waits
    /// until the disk has the name.
    ///
    /// # Errors
    /// If the disk fails. An older file of the name is then still there, unless only the folder could not be synchronised.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        folder::rename(self.file.path(), &self.path)?;
        self.committed = true;
        folder::sync_folder(self.path.parent().unwrap_or(Path::new("")))
    }

    /// The same under another final name in the same folder, for names that follow from the contents.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), and if `path` is in another folder.
    pub fn commit_as(mut self, path: &Path) -> io::Result<()> {
        if path.parent() != self.path.parent() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the final name is in another folder"));
        }
        self.path = path.into();
        self.commit()
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // The number of a file without a name may have been taken by another.
        if !self.committed && self.file.is_at_its_path().unwrap_or(false) {
            // The error that led here is the one to report; a leftover temporary file is swept one day.
            let _ = folder::remove_file(self.file.path());
        }
    }
}

/// Writes the file `path` through a buffer: `write` is given the temporary file, which is committed if `write` succeeds.
///
/// # Errors
/// If the file cannot be created, `write` fails, or the disk does. An older file of the name is then still there.
pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(BUFFER, AtomicFile::create(path)?);
    write(&mut buffered)?;
    buffered.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
}

/// Removes the temporary files that killed processes left in a folder, and returns their paths. Files that are being
/// written stay, and so do all others, and everything where the file system has no locks.
///
/// # Errors
/// If the folder cannot be read, or a file cannot be removed.
pub fn sweep(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut swept = Vec::new();
    for path in folder::read_dir(folder)? {
        if is_temporary(&path) && remove_if_abandoned(&path)? {
            swept.push(path);
        }
    }
    Ok(swept)
}

fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"));
    let random = stem.and_then(|stem| stem.rsplit_once('.')).map(|(_, random)| random);
    random.is_some_and(|random| random.len() == DIGITS && random.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn remove_if_abandoned(path: &Path) -> io::Result<bool> {
    let removed = File::open_any(path).and_then(|file| match file.try_lock() {
        // The lock is held during removal, so that a process that has just created the file notices its removal.
        Ok(true) => folder::remove_file(path).map(|()| true),
        Ok(false) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    });
    match removed {
        // It was committed, or another sweep was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // It is another user's.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        result => result,
    }
}
