//! Substitutes for calls that only Linux has.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::atomic::AtomicFile;

/// The system cannot be asked to drop its cached pages of a file.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(crate) fn forget_cached(_: &File) -> io::Result<()> {
    Ok(())
}

/// A temporary file in the folder for such, which is removed when this is dropped. If the process is killed, the next one of the name
/// removes it.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: AtomicFile,
}

impl MemoryFile {
    pub(crate) fn create(name: &str) -> io::Result<MemoryFile> {
        Ok(MemoryFile { file: AtomicFile::create(&std::env::temp_dir().join(name))? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.file.path()
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }
}
