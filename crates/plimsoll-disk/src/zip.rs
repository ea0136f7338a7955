//! The directory of a ZIP archive (<https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT>), of archives beyond 4 GiB, too.
//!
//! It is only accepted in the one form that all readers of archives agree about: it ends where its own end begins, that is the last there is, and
//! no member has two names. The contents of members are left to their readers.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// The first bytes of an archive.
pub const BEGIN: &[u8] = b"PK\x03\x04";

/// The signature of the header before a member, and its length without name and extra field.
const LOCAL: (&[u8], usize) = (BEGIN, 30);
/// The signature of an entry of the directory, and its length without name, extra field and comment.
const ENTRY: (&[u8], usize) = (b"PK\x01\x02", 46);
/// The signature of the end of the directory, and its length without the archive's comment.
const END: (&[u8], usize) = (b"PK\x05\x06", 22);
/// The signature of the locator of a directory beyond 4 GiB, and its length.
const LOCATOR: (&[u8], usize) = (b"PK\x06\x07", 20);
/// The end of such a directory.
const LARGE_END: (&[u8], usize) = (b"PK\x06\x06", 56);
/// The longest comment of an archive.
const MOST_COMMENT: usize = u16::MAX as usize;
/// The extra field that gives a member another name.
const UNICODE_PATH: u64 = 0x7075;
/// The extra field of members beyond 4 GiB.
const LARGE_MEMBER: u64 = 1;
/// The flag of an encrypted member.
const ENCRYPTED: u64 = 1;

/// The place of a directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The first byte.
    start: u64,
    /// The length of all entries in bytes, which bounds the memory that reading them needs.
    pub bytes: u64,
    /// The number of entries.
    entries: u64,
}

/// A member of an archive, as its directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// The compression method: 0 stored, 8 deflated.
    pub method: u64,
    /// `true` if it is encrypted.
    pub is_encrypted: bool,
    /// Its bytes, decompressed.
    pub length: u64,
    /// Its bytes in the archive.
    pub packed: u64,
    /// The CRC-32 of its bytes.
    pub checksum: u32,
    /// The offset of its own header.
    pub header: u64,
}

/// Returns the offset of the first byte of the member whose own header begins at `header`.
///
/// # Errors
/// `InvalidData` if there is no member, or the system's error.
pub fn start_of_member(file: &mut (impl Read + Seek), header: u64) -> io::Result<u64> {
    let local = at(file, header, LOCAL.1)?;
    let local = begins(&local, LOCAL.0)?;
    let named = number(local, 26, 2)? + number(local, 28, 2)?;
    Ok(header.saturating_add(LOCAL.1 as u64 + named))
}

/// The name of the first member, by the beginning of an archive; none if it is no archive, or its beginning is too short.
pub fn first_name(head: &[u8]) -> Option<&[u8]> {
    let length = number(begins(head, LOCAL.0).ok()?, 26, 2).ok()? as usize;
    head.get(LOCAL.1..LOCAL.1 + length)
}

/// Finds the directory of an archive.
///
/// # Errors
/// `InvalidData` if it is no archive, or one of which readers disagree where its directory is; or the system's error.
pub fn directory(file: &mut (impl Read + Seek)) -> io::Result<Directory> {
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
    // Some programs, PyTorch among them, write the end that large directories have always, and readers may or may not look at it. Where
    // there is one to pass over, no other end may be found before, and no directory elsewhere.
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
        true => Ok(Directory { start, bytes: size, entries: counts.1 }),
        false => Err(none()),
    }
}

impl Directory {
    /// Hands each member on, in the order of the directory, one of which is held.
    ///
    /// # Errors
    /// `InvalidData` if the directory is none, or has another number of entries than it says; the system's error; or the error of `visit`.
    pub fn each<E: From<io::Error>>(
        self,
        file: &mut (impl Read + Seek),
        visit: &mut dyn FnMut(Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        file.seek(SeekFrom::Start(self.start)).map_err(|_| none())?;
        let mut directory = BufReader::new(file.take(self.bytes));
        let mut found = 0;
        while !directory.fill_buf()?.is_empty() {
            found += 1;
            visit(next(&mut directory)?)?;
        }
        match found == self.entries {
            true => Ok(()),
            false => Err(none().into()),
        }
    }
}

fn next(directory: &mut impl Read) -> io::Result<Entry> {
    let mut entry = [0; ENTRY.1];
    directory.read_exact(&mut entry).map_err(|_| none())?;
    let entry = begins(&entry, ENTRY.0)?;
    let name = read(directory, number(entry, 28, 2)?)?;
    let extra = read(directory, number(entry, 30, 2)?)?;
    read(directory, number(entry, 32, 2)?)?;
    let mut large = large_field(&extra)?;
    let mut field = |place: usize| -> io::Result<u64> {
        let short = number(entry, place, 4)?;
        if short != u64::from(u32::MAX) {
            return Ok(short);
        }
        let long = number(large, 0, 8)?;
        large = large.get(8..).ok_or_else(none)?;
        Ok(long)
    };
    // In this order they stand in the extra field.
    let (length, packed, header) = (field(24)?, field(20)?, field(42)?);
    Ok(Entry {
        name,
        method: number(entry, 10, 2)?,
        is_encrypted: number(entry, 8, 2)? & ENCRYPTED != 0,
        length,
        packed,
        checksum: number(entry, 16, 4)? as u32,
        header,
    })
}

/// The extra field of a member beyond 4 GiB; empty where there is none.
fn large_field(mut fields: &[u8]) -> io::Result<&[u8]> {
    let mut large = &[][..];
    while fields.len() >= 4 {
        let length = number(fields, 2, 2)? as usize;
        let field = fields.get(4..4 + length).ok_or_else(none)?;
        match number(fields, 0, 2)? {
            UNICODE_PATH => return Err(none()),
            LARGE_MEMBER => large = field,
            _ => {}
        }
        fields = fields.get(4 + length..).ok_or_else(none)?;
    }
    Ok(large)
}

/// The error for archives that different readers would read differently.
pub fn none() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it has no valid directory of a ZIP archive")
}

fn read(directory: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length as usize);
    directory.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(none()) }
}

/// Reads `length` bytes of a file, or fewer at its end.
fn at(file: &mut (impl Read + Seek), start: u64, length: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start)).map_err(|_| none())?;
    let mut bytes = Vec::with_capacity(length);
    file.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn begins<'a>(bytes: &'a [u8], signature: &[u8]) -> io::Result<&'a [u8]> {
    if bytes.starts_with(signature) { Ok(bytes) } else { Err(none()) }
}

/// Reads a little-endian number of any length.
fn number(bytes: &[u8], start: usize, length: usize) -> io::Result<u64> {
    let digits = bytes.get(start..start + length).ok_or_else(none)?;
    Ok(digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit)))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// An archive of one member `a` with the bytes `xyz`, as Python's `zipfile` writes it: its checksum is `zlib.crc32(b"xyz")`.
    fn archive(comment: &[u8]) -> Vec<u8> {
        let checksum = 0xEB8E_BA67u32.to_le_bytes();
        let sizes = [3u32, 3].map(u32::to_le_bytes).concat();
        let mut bytes =
            [&b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0"[..], &checksum, &sizes, b"\x01\0\0\0a", b"xyz"].concat();
        let start = bytes.len() as u32;
        bytes.extend([&b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0"[..], &checksum, &sizes, b"\x01\0"].concat());
        bytes.extend([0; 16]);
        bytes.push(b'a');
        let size = bytes.len() as u32 - start;
        bytes.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
        bytes.extend([size, start].map(u32::to_le_bytes).concat());
        bytes.extend((comment.len() as u16).to_le_bytes());
        bytes.extend(comment);
        bytes
    }

    fn members(bytes: &[u8]) -> io::Result<Vec<Entry>> {
        let mut file = Cursor::new(bytes);
        let mut found = Vec::new();
        let directory = directory(&mut file)?;
        directory.each::<io::Error>(&mut file, &mut |entry| {
            found.push(entry);
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn members_are_found_with_or_without_a_comment_and_begin_behind_their_names() {
        for comment in [&b""[..], b"a comment"] {
            let bytes = archive(comment);
            let [member] = &members(&bytes).unwrap()[..] else { panic!("not one member") };
            assert_eq!((&member.name[..], member.length, member.checksum), (&b"a"[..], 3, 0xEB8E_BA67));
            let start = start_of_member(&mut Cursor::new(&bytes), member.header).unwrap() as usize;
            assert_eq!(&bytes[start..start + 3], b"xyz");
            assert_eq!(first_name(&bytes), Some(&b"a"[..]));
        }
    }

    #[test]
    fn archives_of_which_readers_disagree_are_refused() {
        let whole = archive(b"");
        // Something before, behind, and an end within the comment.
        let prefixed = [b"#!", &whole[..]].concat();
        let trailed = [&whole[..], b"x"].concat();
        let twice = archive(&archive(b""));
        for bytes in [&prefixed[..], &trailed, &twice, &whole[..whole.len() - 1], b"", b"PK\x05\x06"] {
            assert_eq!(members(bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        // Another number of entries than there are.
        let mut miscounted = whole.clone();
        let end = whole.len() - 14;
        miscounted[end] = 2;
        miscounted[end + 2] = 2;
        assert!(members(&miscounted).is_err());
    }
}
