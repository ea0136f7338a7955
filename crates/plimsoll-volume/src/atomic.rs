//! Files that appear under their name only when they are complete.
//!
//! The contents go to a temporary file in the same folder, which is renamed once the disk has it: within one folder a rename
//! replaces an older file in a single step. A write that fails, or a process that is killed, leaves the older file as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are collected before each write to the file.
pub(crate) const BUFFER: usize = 64 << 10;

/// An unbuffered file under a temporary name. [`commit`](Self::commit) gives it its final name; if it is dropped before, the
/// temporary file is removed.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    committed: bool,
}

impl AtomicFile {
    /// Creates the temporary file `.NAME.PROCESS-NUMBER.partial` beside `path`.
    ///
    /// # Errors
    /// If `path` does not end in a file name, or the temporary file cannot be created.
    pub fn create(path: &Path) -> io::Result<AtomicFile> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
        };
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = name.to_string_lossy();
            let temporary = path.with_file_name(format!(".{name}.{}-{count}.partial", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                // Left behind by a killed process that had the same id: try the next number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok(AtomicFile { path: path.into(), temporary, file, committed: false }),
            }
        }
    }

    /// Waits until the disk has the contents, then renames the file to its final name, replacing an older file.
    ///
    /// # Errors
    /// If the disk fails. An older file of the name is then still there, unless only the folder could not be synchronised.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        self.committed = true;
        sync_folder(&self.path)
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

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            // The error that led here is the one to report; a leftover temporary file does no harm.
            let _ = fs::remove_file(&self.temporary);
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

/// A rename survives a power failure only once the folder itself is on the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_keeps_the_older_file_and_leaves_no_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        write(&path, |file| file.write_all(b"first")).unwrap();
        let failed = write(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("stopped"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "stopped");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        write(&path, |file| file.write_all(b"second")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_path_without_a_file_name_is_refused() {
        let error = write(Path::new(".."), |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
