//! The directory of the ZIP archive that a `.pth` file is.
//!
//! PyTorch stores what is in it as it is. A compressed pickle of a few kilobytes would be hundreds of megabytes before anything
//! is known of it, so such archives are refused before they are read.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use super::pickle::{Refusal, Room};

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

/// The member that says what the tensors are, in the one folder that all members are in.
pub(super) const PICKLE: &str = "data.pkl";
/// The extra field that gives a member another name.
const UNICODE_PATH: u64 = 0x7075;
/// The extra field of members beyond 4 GiB.
const LARGE_MEMBER: u64 = 1;
/// What a byte of the directory comes to at most: an entry of 46 bytes and a name is kept under that name.
const DIRECTORY_BYTE: u64 = 8;

/// A member of an archive.
#[derive(Clone, Copy)]
pub(super) struct Member {
    /// Where its own header begins.
    header: u64,
    /// Its bytes.
    pub(super) length: u64,
    /// Its checksum.
    pub(super) checksum: u32,
}

impl Member {
    /// Where its bytes begin.
    pub(super) fn start(&self, file: &mut (impl Read + Seek)) -> io::Result<u64> {
        let local = at(file, self.header, LOCAL.1)?;
        let local = begins(&local, LOCAL.0)?;
        let named = number(local, 26, 2)? + number(local, 28, 2)?;
        Ok(self.header.saturating_add(LOCAL.1 as u64 + named))
    }
}

/// What the directory of an archive says.
pub(super) struct Directory {
    /// Whether all members are stored as they are.
    pub(super) stored: bool,
    /// The members of the pickle's folder, by their names within it.
    pub(super) members: BTreeMap<String, Member>,
}

/// The directory of an archive, for which there is room. It is only accepted in the one form that all readers of archives agree
/// about: it ends where its own end begins, and that is the last there is.
///
/// # Errors
/// `InvalidData` if it is none, the system's error, or that there is no room.
pub(super) fn directory(file: &mut (impl Read + Seek), room: &mut Room) -> Result<Directory, Refusal> {
    let (place, count) = find(file)?;
    room.add(place.1.saturating_mul(DIRECTORY_BYTE))?;
    let directory = members(file, place, count)?;
    Ok(directory)
}

/// How many bytes the directory of an archive has: what reading it takes follows from that.
///
/// # Errors
/// `InvalidData` if it is no archive, or one of which readers disagree where its directory is; or the system's error.
pub fn archive_directory_bytes(file: &mut (impl Read + Seek)) -> io::Result<u64> {
    let ((_, size), _) = find(file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(size)
}

/// Where the entries of the directory are and how many bytes they have, and how many entries there are.
fn find(file: &mut (impl Read + Seek)) -> io::Result<((u64, u64), u64)> {
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
    match counts.0 == counts.1 {
        true => Ok(((start, size), counts.1)),
        false => Err(none()),
    }
}

fn members(file: &mut (impl Read + Seek), (start, size): (u64, u64), count: u64) -> io::Result<Directory> {
    file.seek(SeekFrom::Start(start))?;
    let mut directory = BufReader::new(file.take(size));
    let (mut found, mut stored) = (0, true);
    let (mut members, mut folder) = (BTreeMap::new(), None);
    let mut entry = [0; ENTRY.1];
    while !directory.fill_buf()?.is_empty() {
        directory.read_exact(&mut entry).map_err(|_| none())?;
        let entry = begins(&entry, ENTRY.0)?;
        found += 1;
        stored &= number(entry, 10, 2)? == 0;
        let name = read(&mut directory, number(entry, 28, 2)?)?;
        let extra = read(&mut directory, number(entry, 30, 2)?)?;
        read(&mut directory, number(entry, 32, 2)?)?;
        // Of members beyond 4 GiB, what does not fit stands in a field of its own, in this order.
        let mut large = &[][..];
        let mut fields = extra.as_slice();
        while fields.len() >= 4 {
            let length = number(fields, 2, 2)? as usize;
            match number(fields, 0, 2)? {
                UNICODE_PATH => return Err(none()),
                LARGE_MEMBER => large = fields.get(4..4 + length).ok_or_else(none)?,
                _ => {}
            }
            fields = fields.get(4 + length..).ok_or_else(none)?;
        }
        let mut field = |place: usize| -> io::Result<u64> {
            let short = number(entry, place, 4)?;
            if short != u64::from(u32::MAX) {
                return Ok(short);
            }
            let long = number(large, 0, 8)?;
            large = large.get(8..).unwrap_or_default();
            Ok(long)
        };
        let (length, packed, header) = (field(24)?, field(20)?, field(42)?);
        if stored && packed != length {
            return Err(none());
        }
        let checksum = number(entry, 16, 4)? as u32;
        let Ok(name) = String::from_utf8(name) else { continue };
        let (within, own) = name.split_once('/').unwrap_or(("", &name));
        if own == PICKLE {
            // One that is there twice is not what PyTorch writes.
            if folder.replace(within.to_string()).is_some() {
                return Err(none());
            }
        }
        if members.insert(name, Member { header, length, checksum }).is_some() {
            return Err(none());
        }
    }
    if found != count {
        return Err(none());
    }
    let prefix = match folder.as_deref() {
        Some("") | None => String::new(),
        Some(folder) => format!("{folder}/"),
    };
    let of_folder =
        members.into_iter().filter_map(|(name, member)| Some((name.strip_prefix(&prefix)?.into(), member)));
    Ok(Directory { stored, members: of_folder.collect() })
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
