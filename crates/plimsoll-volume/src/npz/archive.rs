//! The directory of a ZIP archive (<https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT>), of archives beyond 4 GiB, too.

use std::io::{self, Read, Seek, SeekFrom};

/// What stands before a member, and its length without name and extra field.
const LOCAL: (&[u8], usize) = (b"PK\x03\x04", 30);
/// What an entry of the directory begins with, and its length without name, extra field and comment.
const ENTRY: (&[u8], usize) = (b"PK\x01\x02", 46);
/// What the end of the directory begins with, and its length without the archive's comment.
const END: (&[u8], usize) = (b"PK\x05\x06", 22);
/// What says where the end of a directory beyond 4 GiB is, and its length.
const LOCATOR: (&[u8], usize) = (b"PK\x06\x07", 20);
/// The end of such a directory.
const LARGE_END: (&[u8], usize) = (b"PK\x06\x06", 56);
/// The extra field of members beyond 4 GiB.
const LARGE_MEMBER: u64 = 1;
/// The flag of an encrypted member.
const ENCRYPTED: u64 = 1;
/// The longest directory that is read: thousands of arrays.
const MOST: u64 = 256 << 10;

/// How a member is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
    Other(u64),
}

/// A member of an archive.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) method: Method,
    /// Its bytes, decompressed.
    pub(super) bytes: u64,
    /// Their checksum.
    pub(super) checksum: u32,
    /// Where its own header begins.
    header: u64,
}

impl Member {
    /// Where its bytes begin in the file.
    pub(super) fn start(&self, file: &mut (impl Read + Seek)) -> io::Result<u64> {
        let local = at(file, self.header, LOCAL.1)?;
        let local = begins(&local, LOCAL.0)?;
        let named = number(local, 26, 2)? + number(local, 28, 2)?;
        Ok(self.header.saturating_add(LOCAL.1 as u64 + named))
    }
}

/// The name of the first member, by the beginning of an archive.
pub(super) fn first_name(head: &[u8]) -> Option<&[u8]> {
    let length = number(begins(head, LOCAL.0).ok()?, 26, 2).ok()? as usize;
    head.get(LOCAL.1..LOCAL.1 + length)
}

/// The members of an archive.
///
/// # Errors
/// `InvalidData` if it is no archive, a member is encrypted, or the directory is longer than is read; or the system's error.
pub(super) fn members(file: &mut (impl Read + Seek)) -> io::Result<Vec<Member>> {
    let (start, size) = directory(file)?;
    if size > MOST {
        return Err(wrong(format!("its directory has {size} bytes, and up to {MOST} are read")));
    }
    let directory = at(file, start, size as usize)?;
    let mut rest = directory.as_slice();
    let mut members = Vec::new();
    while !rest.is_empty() {
        let entry = begins(rest, ENTRY.0)?;
        let [name, extra, comment] = [number(entry, 28, 2)?, number(entry, 30, 2)?, number(entry, 32, 2)?];
        let (name, extra, comment) = (name as usize, extra as usize, comment as usize);
        let behind = |length: usize| entry.get(ENTRY.1..ENTRY.1 + length).ok_or_else(none);
        let name_bytes = behind(name)?;
        let extra_field = behind(name + extra)?.get(name..).ok_or_else(none)?;
        let mut large = large_field(extra_field)?;
        let mut field = |place: usize| -> io::Result<u64> {
            let short = number(entry, place, 4)?;
            if short != u64::from(u32::MAX) {
                return Ok(short);
            }
            let long = number(large, 0, 8)?;
            large = large.get(8..).unwrap_or_default();
            Ok(long)
        };
        // In this order they stand in the extra field.
        let (bytes, packed, header) = (field(24)?, field(20)?, field(42)?);
        let method = match number(entry, 10, 2)? {
            0 if bytes != packed => return Err(none()),
            0 => Method::Stored,
            8 => Method::Deflated,
            other => Method::Other(other),
        };
        let name_text = String::from_utf8_lossy(name_bytes).into_owned();
        if number(entry, 8, 2)? & ENCRYPTED != 0 {
            return Err(wrong(format!("{name_text} is encrypted")));
        }
        let checksum = number(entry, 16, 4)? as u32;
        members.push(Member { name: name_text, method, bytes, checksum, header });
        rest = entry.get(ENTRY.1 + name + extra + comment..).ok_or_else(none)?;
    }
    Ok(members)
}

/// The extra field of a member beyond 4 GiB; empty where there is none.
fn large_field(mut fields: &[u8]) -> io::Result<&[u8]> {
    while fields.len() >= 4 {
        let length = number(fields, 2, 2)? as usize;
        let field = fields.get(4..4 + length).ok_or_else(none)?;
        if number(fields, 0, 2)? == LARGE_MEMBER {
            return Ok(field);
        }
        fields = fields.get(4 + length..).ok_or_else(none)?;
    }
    Ok(&[])
}

/// Where the directory is, and how many bytes it has.
fn directory(file: &mut (impl Read + Seek)) -> io::Result<(u64, u64)> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail_length = length.min((END.1 + LOCATOR.1 + usize::from(u16::MAX)) as u64);
    let tail = at(file, length - tail_length, tail_length as usize)?;
    let end = tail.windows(END.0.len()).rposition(|window| window == END.0).ok_or_else(none)?;
    let last = tail.get(end..).ok_or_else(none)?;
    if END.1 + number(last, 20, 2)? as usize != last.len() {
        return Err(none());
    }
    let (size, start) = (number(last, 12, 4)?, number(last, 16, 4)?);
    if size != u64::from(u32::MAX) && start != u64::from(u32::MAX) {
        return Ok((start, size));
    }
    let locator = end.checked_sub(LOCATOR.1).and_then(|from| tail.get(from..end)).ok_or_else(none)?;
    let large = at(file, number(begins(locator, LOCATOR.0)?, 8, 8)?, LARGE_END.1)?;
    let large = begins(&large, LARGE_END.0)?;
    Ok((number(large, 48, 8)?, number(large, 40, 8)?))
}

fn none() -> io::Error {
    wrong("its directory is not that of an archive".into())
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// So many bytes of a file.
fn at(file: &mut (impl Read + Seek), start: u64, length: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start)).map_err(|_| none())?;
    let mut bytes = Vec::with_capacity(length);
    file.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() == length { Ok(bytes) } else { Err(none()) }
}

fn begins<'a>(bytes: &'a [u8], signature: &[u8]) -> io::Result<&'a [u8]> {
    if bytes.starts_with(signature) { Ok(bytes) } else { Err(none()) }
}

/// A little-endian number of so many bytes.
fn number(bytes: &[u8], start: usize, length: usize) -> io::Result<u64> {
    let digits = bytes.get(start..start + length).ok_or_else(none)?;
    Ok(digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit)))
}
