//! Files of contents that callers have in memory.

use std::io;
use std::path::Path;

use crate::system;

/// A file that lives as long as this, which every thread of this process can open by its path.
///
/// On Linux it is in memory, and no folder has it. Other systems have no such files: there it is a temporary file in the user's folder for
/// these, which a killed process leaves to the next one.
#[derive(Debug)]
pub struct MemoryFile(system::MemoryFile);

impl MemoryFile {
    /// Creates an empty file.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(name: &str) -> io::Result<MemoryFile> {
        system::MemoryFile::create(name).map(MemoryFile)
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If the system has no room.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// The path by which this process opens it.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom};

    use super::*;
    use crate::File;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no call for files without a name")]
    fn a_file_in_memory_is_read_from_two_places_and_ends_with_its_owner() {
        let mut file = MemoryFile::create("plimsoll-test").unwrap();
        file.write_all(b"begin ").unwrap();
        file.write_all(b"end").unwrap();
        let (mut one, mut other) = (File::open(file.path()).unwrap(), File::open(file.path()).unwrap());
        let mut found = [0; 5];
        one.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"begin");
        other.seek(SeekFrom::Start(6)).unwrap();
        other.read_exact(&mut found[..3]).unwrap();
        assert_eq!(&found[..3], b"end");
        let path = file.path().to_path_buf();
        drop((one, other, file));
        // Since then another thread may have opened a file by the same number.
        assert_ne!(std::fs::read(path).unwrap_or_default(), b"begin end");
    }
}
