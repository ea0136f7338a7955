//! Files of lines that only grow.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::{File, folder};

/// The longest piece without a newline at the end of a file that is treated as a torn line.
const LONGEST_TORN: u64 = 1 << 20;

/// Bytes per step when the last newline is sought.
const STEP: u64 = 4 << 10;

/// A file of lines, each of which is on the disk when [`append`](Self::append) returns. A line counts only with the
/// newline that ends it: what a crash left of another is cut off when the file is opened.
#[derive(Debug)]
pub struct Appender {
    file: File,
    /// Up to the end of the last line that is known to be whole.
    length: u64,
    torn: u64,
    /// A failed write may have left something behind `length`.
    dirty: bool,
}

impl Appender {
    /// Opens a file, or makes it, and cuts off a last line that has no newline.
    ///
    /// # Errors
    /// `InvalidData` if the last MiB has no newline, as then it is no file of lines; or the operating system's error.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Appender> {
        Appender::new(File::append(path)?)
    }

    /// The same, with a [lock](File::try_lock) that it has as long as it lives; none if another has it. Where the file system has no locks,
    /// everybody gets one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_locked(path: impl AsRef<Path>) -> io::Result<Option<Appender>> {
        let path = path.as_ref();
        loop {
            let file = File::append(path)?;
            match file.try_lock() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(error) => return Err(error),
            }
            // Another process that had the lock may have removed the file between opening and locking.
            if file.is_at_its_path()? {
                return Appender::new(file).map(Some);
            }
        }
    }

    fn new(mut file: File) -> io::Result<Appender> {
        let found = file.len()?;
        let length = end_of_last_line(&mut file, found)?;
        if length < found {
            file.set_len(length)?;
        }
        file.sync_all()?;
        folder::sync_folder(file.path().parent().unwrap_or(Path::new("")))?;
        Ok(Appender { file, length, torn: found - length, dirty: false })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Its length in bytes: whole lines.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The number of bytes of a torn line that were cut off when the file was opened.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Appends a line, which is given without its newline, and waits until the disk has it.
    ///
    /// # Errors
    /// `InvalidInput` if there is a newline in it; or the disk's error, after which the file has the lines of before.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if line.contains(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a line contains a newline"));
        }
        if self.dirty {
            self.cut(self.length)?;
        }
        let whole = [line, b"\n"].concat();
        self.dirty = true;
        if let Err(error) = self.file.write_all(&whole).and_then(|()| self.file.sync_data()) {
            // If this fails as well, it is done before the next line, or when the file is opened again.
            let _ = self.cut(self.length);
            return Err(error);
        }
        self.dirty = false;
        self.length += whole.len() as u64;
        Ok(())
    }

    /// Cuts the file off at `length`, the end of a line, and waits until the disk has that.
    ///
    /// # Errors
    /// `InvalidInput` if it is shorter; or the disk's error.
    pub fn truncate(&mut self, length: u64) -> io::Result<()> {
        if length > self.length {
            let why = format!("the file has {} bytes and cannot be cut off at {length}", self.length);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.dirty = true;
        self.length = length;
        self.cut(length)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.sync_all()?;
        self.dirty = false;
        Ok(())
    }
}

/// The offset behind the last newline, 0 if there is none.
fn end_of_last_line(file: &mut File, length: u64) -> io::Result<u64> {
    let mut step = [0; STEP as usize];
    let mut end = length;
    while end > 0 {
        if length - end > LONGEST_TORN {
            let why = format!("the last {LONGEST_TORN} of its {length} bytes have no newline");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let start = end.saturating_sub(STEP);
        let bytes = &mut step[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)?;
        if let Some(newline) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
