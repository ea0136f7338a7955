//! Reading files whole.

use std::io::{self, Read};
use std::path::Path;

use crate::File;

/// A file is longer than its reader allows. It comes inside of an [`io::Error`] of kind `FileTooLarge`; [`TooLong::from_error`]
/// gets it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The length of the file, or a lower bound of it.
    pub found: u64,
    /// The largest length allowed.
    pub most: u64,
}

impl TooLong {
    /// The reason of an error of [`read`], if it is this.
    pub fn from_error(error: &io::Error) -> Option<TooLong> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the file has {} bytes, but at most {} are supported", self.found, self.most)
    }
}

impl std::error::Error for TooLong {}

/// Reads a whole file that has at most `most` bytes. No more than its length is allocated, unless it grows
/// meanwhile.
///
/// # Errors
/// [`TooLong`] if it has more bytes, or the operating system's error.
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let found = file.len()?;
    let check = |found| match found > most {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, TooLong { found, most })),
        false => Ok(()),
    };
    check(found)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(found).unwrap_or(usize::MAX))?;
    // One byte more than allowed tells that there is one.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    check(bytes.len() as u64)?;
    Ok(bytes)
}

/// A text without the byte order mark that some programs begin one of UTF-8 with.
pub fn without_mark(mut text: Vec<u8>) -> Vec<u8> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if text.starts_with(MARK) {
        text.drain(..MARK.len());
    }
    text
}

/// Reads a whole file of UTF-8 text that has at most `most` bytes, without a byte order mark.
///
/// # Errors
/// As [`read`], and `InvalidData` if it is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    String::from_utf8(without_mark(read(path, most)?))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
