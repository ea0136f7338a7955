//! Files that hold what memory has no room for, and that nobody else ever sees.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::atomic::AtomicFile;
use crate::folder;

/// A file without a name, on the file system of a folder. Its room is given back when it is dropped, and also when its process is
/// killed: there is nothing left to be taken for a result.
///
/// On systems where an open file cannot lose its name it keeps the name of a temporary file until it is dropped,
/// which [`sweep`](crate::atomic::sweep) removes after a crash.
#[derive(Debug)]
pub struct ScratchFile {
    file: AtomicFile,
}

impl ScratchFile {
    /// A file of `length` zeros beside `path`, on whose disk that much room is taken at once, if its file system can do so.
    ///
    /// # Errors
    /// If `path` does not end in a file name, the file cannot be created, or the disk has no room.
    pub fn beside(path: &Path, length: u64) -> io::Result<ScratchFile> {
        let file = AtomicFile::create(path)?;
        // Before its room is taken, which may be long. Where that is refused, dropping the file removes it.
        let _ = folder::remove_file(file.file.path());
        file.allocate(length)?;
        Ok(ScratchFile { file })
    }

    /// Writes all bytes from an offset on.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn write_all_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.write_all(bytes)
    }

    /// Fills `bytes` from an offset on.
    ///
    /// # Errors
    /// If the file ends before, or the disk fails.
    pub fn read_exact_at(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.file.read_exact(bytes)
    }
}

impl Read for ScratchFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.file.read(buffer)
    }
}

impl Seek for ScratchFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no call for files without a name")]
    fn what_was_written_is_read_back_and_the_folder_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        let names = || folder::read_dir(folder.path()).unwrap();
        let mut file = ScratchFile::beside(&folder.path().join("labels.nii.gz"), 100).unwrap();
        // Other systems keep the name until the file is closed.
        assert!(cfg!(not(unix)) || names().is_empty());
        file.write_all_at(90, b"end").unwrap();
        file.write_all_at(3, b"begin").unwrap();
        let mut read = [9; 8];
        file.read_exact_at(0, &mut read).unwrap();
        assert_eq!(&read, b"\0\0\0begin");
        file.read_exact_at(88, &mut read).unwrap();
        assert_eq!(&read, b"\0\0end\0\0\0");
        assert!(file.read_exact_at(98, &mut read).is_err());
        drop(file);
        assert!(names().is_empty());
        assert!(ScratchFile::beside(&folder.path().join("no folder/labels"), 1).is_err());
    }
}
