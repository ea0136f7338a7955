//! An open file.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::gate::{self, Change, Kind};
use crate::{folder, substitute, system};

/// An open file that remembers its path. Reads and writes go straight to the system: wrap it in a buffer for small ones.
/// As with the standard library's file, they may do less than asked.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    file: std::fs::File,
}

impl File {
    /// Opens a file to read it.
    ///
    /// # Errors
    /// If there is none, it may not be read, or something else is in its place: a [`Substitute`](crate::Substitute).
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        let file = File::open_any(path.as_ref())?;
        substitute::expect_contents(&file.file)?;
        Ok(file)
    }

    /// Opens a file to read it, whatever its contents are.
    ///
    /// # Errors
    /// If there is none, it may not be read, or it is a pipe, a socket or a device.
    pub fn open_any(path: impl AsRef<Path>) -> io::Result<File> {
        File::with(OpenOptions::new().read(true), Kind::Open, path.as_ref())
    }

    /// Makes a file to write to and read from.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something of that name, or the operating system's error.
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let file =
            File::with(OpenOptions::new().read(true).write(true).create_new(true), Kind::Create, path)?;
        gate::done(Change::Create(path));
        Ok(file)
    }

    /// Opens a file whose writes all go to its end; one that is not there is made. It can be read as well.
    ///
    /// # Errors
    /// If it may not be read, written or made.
    pub fn append(path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).append(true);
        loop {
            match File::with(&options, Kind::Open, path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => return result,
            }
            match File::with(options.clone().create_new(true), Kind::Create, path) {
                // Somebody else made it in the meantime.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    gate::done(Change::Create(path));
                    return Ok(file);
                }
            }
        }
    }

    fn with(options: &OpenOptions, kind: Kind, path: &Path) -> io::Result<File> {
        gate::pass(kind, path)?;
        if kind == Kind::Open {
            substitute::expect_file(path)?;
        }
        Ok(File { path: path.into(), file: options.open(path)? })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata of the file.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn metadata(&self) -> io::Result<Metadata> {
        gate::pass(Kind::Metadata, &self.path)?;
        self.file.metadata()
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// The operating system's error.
    #[allow(
        clippy::len_without_is_empty,
        reason = "asking the system may fail, so `is_empty` would not be a `bool`"
    )]
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// Cuts it off at `length` bytes, or extends it with zeros.
    ///
    /// # Errors
    /// If it is not open for writing, or the disk fails.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        gate::pass(Kind::SetLength, &self.path)?;
        self.file.set_len(length)?;
        gate::done(Change::SetLength { path: &self.path, length });
        Ok(())
    }

    /// Extends it with zeros to `length` bytes at least, for which the disk takes the room at once, so that writing them cannot fail for want
    /// of it. Where the file system cannot do that, only the length is set.
    ///
    /// # Errors
    /// If it is not open for writing, or the disk has no room.
    pub fn allocate(&self, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        gate::pass(Kind::SetLength, &self.path)?;
        let length = length.max(self.file.metadata()?.len());
        system::allocate(&self.file, length)?;
        gate::done(Change::SetLength { path: &self.path, length });
        Ok(())
    }

    /// Waits until the disk has its contents and what describes them.
    ///
    /// # Errors
    /// If the disk fails. What was written since the last success may then be lost, and waiting again does not help.
    pub fn sync_all(&self) -> io::Result<()> {
        gate::pass(Kind::Sync, &self.path)?;
        self.file.sync_all()?;
        gate::done(Change::Sync(&self.path));
        Ok(())
    }

    /// Waits until the disk has its contents and length; times of modification may be lost.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> io::Result<()> {
        gate::pass(Kind::Sync, &self.path)?;
        self.file.sync_data()?;
        gate::done(Change::Sync(&self.path));
        Ok(())
    }

    /// Asks the system to drop its cached pages of the file, so that the next read is from the disk. Not all systems do.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn forget_cached(&self) -> io::Result<()> {
        gate::pass(Kind::Metadata, &self.path)?;
        system::forget_cached(&self.file)
    }

    /// Returns `true` if the file's path leads to this file: it was neither removed nor replaced since it was
    /// opened.
    ///
    /// # Errors
    /// If that cannot be told.
    pub fn is_at_its_path(&self) -> io::Result<bool> {
        match folder::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            result => system::is_at(&self.file, &self.path, &result?),
        }
    }

    /// Takes the advisory lock that only one open file has at a time, until it is closed, also by the end of its process.
    /// `false` if another has it; it does not wait.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no locks, or the operating system's error.
    pub fn try_lock(&self) -> io::Result<bool> {
        gate::pass(Kind::Lock, &self.path)?;
        system::try_lock(&self.file)
    }
}

impl Read for File {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = gate::transfer(Kind::Read, &self.path, buffer.len())?;
        let most = allowed.bytes.min(buffer.len());
        self.file.read(&mut buffer[..most])
    }
}

impl Write for File {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let allowed = gate::transfer(Kind::Write, &self.path, bytes.len())?;
        let written = self.file.write(&bytes[..allowed.bytes.min(bytes.len())])?;
        let bytes = &bytes[..written.min(bytes.len())];
        gate::done(Change::Write { path: &self.path, file: &self.file, bytes });
        if allowed.torn {
            return Err(system::device_failed());
        }
        Ok(written)
    }

    /// There is no buffer, so there is nothing to do.
    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    #[inline]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        gate::pass(Kind::Seek, &self.path)?;
        self.file.seek(to)
    }
}
