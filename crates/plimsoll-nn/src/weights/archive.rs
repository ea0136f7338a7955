//! The directory of the ZIP archive that a `.pth` file is.
//!
//! PyTorch stores what is in it as it is. A compressed pickle of a few kilobytes would be hundreds of megabytes before anything
//! is known of it, so such archives are refused before they are read.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// What an archive begins with.
const BEGIN: &[u8] = b"PK\x03\x04";
/// What an entry of the directory begins with, and its length without name, extra field and comment.
const ENTRY: (&[u8], usize) = (b"PK\x01\x02", 46);
/// What the end of the directory begins with, and its length without the archive's comment.
const END: (&[u8], usize) = (b"PK\x05\x06", 22);
/// What says where the end of a directory beyond 4 GiB is, and its length.
const LOCATOR: (&[u8], usize) = (b"PK\x06\x07", 20);
/// The end of such a directory.
const LARGE_END: (&[u8], usize) = (b"PK\x06\x06", 56);
/// The longest comment of an archive.
const MOST_COMMENT: usize = u16::MAX as usize;

/// Whether all entries of a file are stored as they are, if it is an archive; any other file is none's concern here.
///
/// # Errors
/// `InvalidData` if its directory is none, or the system's error.
pub(super) fn is_stored(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let length = file.seek(SeekFrom::End(0))?;
    if at(file, 0, BEGIN.len()).is_ok_and(|begin| begin != BEGIN) {
        return Ok(true);
    }
    let tail_length = length.min((LOCATOR.1 + END.1 + MOST_COMMENT) as u64);
    let tail = at(file, length - tail_length, tail_length as usize)?;
    let end = tail.windows(END.0.len()).rposition(|window| window == END.0).ok_or_else(none)?;
    let last = tail.get(end..).ok_or_else(none)?;
    if END.1 + number(last, 20, 2)? as usize != last.len() {
        return Err(none());
    }
    let (mut size, mut start) = (number(last, 12, 4)?, number(last, 16, 4)?);
    if size == u64::from(u32::MAX) || start == u64::from(u32::MAX) {
        let locator = end.checked_sub(LOCATOR.1).and_then(|from| tail.get(from..end)).ok_or_else(none)?;
        let large = at(file, number(begins(locator, LOCATOR.0)?, 8, 8)?, LARGE_END.1)?;
        let large = begins(&large, LARGE_END.0)?;
        (size, start) = (number(large, 40, 8)?, number(large, 48, 8)?);
    }
    if start.checked_add(size).is_none_or(|end| end > length) {
        return Err(none());
    }
    file.seek(SeekFrom::Start(start))?;
    let mut directory = BufReader::new(file.take(size));
    let mut entry = [0; ENTRY.1];
    while !directory.fill_buf()?.is_empty() {
        directory.read_exact(&mut entry).map_err(|_| none())?;
        let entry = begins(&entry, ENTRY.0)?;
        if number(entry, 10, 2)? != 0 {
            return Ok(false);
        }
        let rest = number(entry, 28, 2)? + number(entry, 30, 2)? + number(entry, 32, 2)?;
        if io::copy(&mut directory.by_ref().take(rest), &mut io::sink())? != rest {
            return Err(none());
        }
    }
    Ok(true)
}

fn none() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its directory is not that of an archive")
}

/// So many bytes of a file, or what there is of them.
fn at(file: &mut (impl Read + Seek), start: u64, length: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::with_capacity(length);
    file.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn begins<'a>(bytes: &'a [u8], signature: &[u8]) -> io::Result<&'a [u8]> {
    if bytes.starts_with(signature) { Ok(bytes) } else { Err(none()) }
}

/// A little-endian number of so many bytes.
fn number(bytes: &[u8], start: usize, length: usize) -> io::Result<u64> {
    let digits = bytes.get(start..start + length).ok_or_else(none)?;
    Ok(digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit)))
}
