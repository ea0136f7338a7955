//! Calls that only Linux has.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, MemfdFlags, fadvise, memfd_create};

/// The folder of a process's own descriptors.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Asks the system to drop its cached pages of a file.
pub(crate) fn forget_cached(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// An anonymous file, which lives in memory and goes with its last descriptor. Its path is this process's name for it.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    path: PathBuf,
    file: File,
}

impl MemoryFile {
    pub(crate) fn create(name: &str) -> io::Result<MemoryFile> {
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
        Ok(MemoryFile { path: Path::new(DESCRIPTORS).join(file.as_raw_fd().to_string()), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }
}
