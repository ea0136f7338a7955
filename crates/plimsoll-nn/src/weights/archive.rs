//! The directory of the ZIP archive that a `.pth` file is.
//!
//! PyTorch stores what is in it as it is. A compressed pickle of a few kilobytes would be hundreds of megabytes before anything
//! is known of it, so such archives are refused before they are read.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// What an archive begins with.
pub(super) const BEGIN: &[u8] = b"PK\x03\x04";
/// What stands before a member, and its length without name and extra field.
const LOCAL: (&[u8], usize) = (BEGIN, 30);
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

/// The member that says what the tensors are.
const PICKLE: &[u8] = b"data.pkl";
/// The extra field that gives a member another name.
const UNICODE_PATH: u64 = 0x7075;
/// What the reader of archives takes for a member, and for a byte of the directory: names as bytes and, decoded, as text.
const MEMBER: u64 = 640;
const DIRECTORY_BYTE: u64 = 8;

/// What the directory of an archive says.
pub(super) struct Directory {
    /// Whether all members are stored as they are.
    pub(super) stored: bool,
    /// Where the bytes of the pickle begin, and how many there are.
    pub(super) pickle: Option<(u64, u64)>,
    /// Bytes that reading the directory takes, at most.
    pub(super) held: u64,
}

/// The directory of an archive. It is only accepted in the one form that all readers of archives agree about: it ends where
/// its own end begins, and that is the last there is.
///
/// # Errors
/// `InvalidData` if it is none, or the system's error.
pub(super) fn directory(file: &mut (impl Read + Seek)) -> io::Result<Directory> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail_length = length.min((LARGE_END.1 + LOCATOR.1 + END.1 + MOST_COMMENT) as u64);
    let tail = at(file, length - tail_length, tail_length as usize)?;
    let end = tail.windows(END.0.len()).rposition(|window| window == END.0).ok_or_else(none)?;
    let last = tail.get(end..).ok_or_else(none)?;
    if END.1 + number(last, 20, 2)? as usize != last.len() || number(last, 4, 4)? != 0 {
        return Err(none());
    }
    let mut counts = (number(last, 8, 2)?, number(last, 10, 2)?);
    let (mut size, mut start) = (number(last, 12, 4)?, number(last, 16, 4)?);
    let mut over = length - tail_length + end as u64;
    if size == u64::from(u32::MAX) || start == u64::from(u32::MAX) || counts.1 == u64::from(u16::MAX) {
        let locator = end.checked_sub(LOCATOR.1).and_then(|from| tail.get(from..end)).ok_or_else(none)?;
        let place = number(begins(locator, LOCATOR.0)?, 8, 8)?;
        let large = at(file, place, LARGE_END.1)?;
        let large = begins(&large, LARGE_END.0)?;
        let alone = number(large, 4, 8)? == (LARGE_END.1 - 12) as u64 && number(large, 16, 8)? == 0;
        if !alone || place.checked_add((LARGE_END.1 + LOCATOR.1) as u64) != Some(over) {
            return Err(none());
        }
        counts = (number(large, 24, 8)?, number(large, 32, 8)?);
        (size, start) = (number(large, 40, 8)?, number(large, 48, 8)?);
        over = place;
    }
    // PyTorch writes the end that large directories have always, and readers may or may not look at it. Where there is one to
    // pass over, no other end may be found before, and no directory elsewhere.
    let passed = (LARGE_END.1 + LOCATOR.1) as u64;
    let ends = start.checked_add(size).ok_or_else(none)?;
    if ends.checked_add(passed) == Some(over) {
        let begun = at(file, ends, LARGE_END.0.len())? == LARGE_END.0;
        let elsewhere = at(file, over - size, ENTRY.0.len())? == ENTRY.0;
        let first = tail.windows(END.0.len()).position(|window| window == END.0);
        if !begun || elsewhere || first != Some(end) {
            return Err(none());
        }
    } else if ends != over {
        return Err(none());
    }
    let members = members(file, start, size)?;
    if counts != (members.count, members.count) {
        return Err(none());
    }
    let held = members.count.saturating_mul(MEMBER).saturating_add(size.saturating_mul(DIRECTORY_BYTE));
    let pickle = match members.pickle {
        Some((header, bytes)) => {
            let local = at(file, header, LOCAL.1)?;
            let local = begins(&local, LOCAL.0)?;
            let named = number(local, 26, 2)? + number(local, 28, 2)?;
            Some((header + LOCAL.1 as u64 + named, bytes))
        }
        None => None,
    };
    Ok(Directory { stored: members.stored, pickle, held })
}

struct Members {
    count: u64,
    stored: bool,
    /// Where the pickle's own header is, and how many bytes it has.
    pickle: Option<(u64, u64)>,
}

fn members(file: &mut (impl Read + Seek), start: u64, size: u64) -> io::Result<Members> {
    file.seek(SeekFrom::Start(start))?;
    let mut directory = BufReader::new(file.take(size));
    let mut members = Members { count: 0, stored: true, pickle: None };
    let mut entry = [0; ENTRY.1];
    while !directory.fill_buf()?.is_empty() {
        directory.read_exact(&mut entry).map_err(|_| none())?;
        let entry = begins(&entry, ENTRY.0)?;
        members.count += 1;
        members.stored &= number(entry, 10, 2)? == 0;
        let name = read(&mut directory, number(entry, 28, 2)?)?;
        let extra = read(&mut directory, number(entry, 30, 2)?)?;
        read(&mut directory, number(entry, 32, 2)?)?;
        let mut fields = extra.as_slice();
        while fields.len() >= 4 {
            if number(fields, 0, 2)? == UNICODE_PATH {
                return Err(none());
            }
            fields = fields.get(4 + number(fields, 2, 2)? as usize..).ok_or_else(none)?;
        }
        if name.ends_with(PICKLE) {
            let (packed, bytes, header) =
                (number(entry, 20, 4)?, number(entry, 24, 4)?, number(entry, 42, 4)?);
            // One that is beyond 4 GiB, is packed, or is there twice, is not what PyTorch writes.
            let unusual = bytes == u64::from(u32::MAX) || header == u64::from(u32::MAX);
            if unusual || (members.stored && packed != bytes) || members.pickle.is_some() {
                return Err(none());
            }
            members.pickle = Some((header, bytes));
        }
    }
    Ok(members)
}

fn read(directory: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length as usize);
    directory.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(none()) }
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
