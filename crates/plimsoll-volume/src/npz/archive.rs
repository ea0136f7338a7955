//! The members of a ZIP archive with arrays.

use std::io::{self, Read, Seek};

use plimsoll_disk::zip;

pub(super) use plimsoll_disk::zip::first_name;

/// The longest directory that is read: thousands of arrays.
const MOST: u64 = 256 << 10;

/// The compression of a member.
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
    /// Its bytes in the archive.
    pub(super) packed: u64,
    /// Their checksum.
    pub(super) checksum: u32,
    /// The offset of the member's own header.
    header: u64,
}

impl Member {
    /// The offset of the member's bytes in the file.
    pub(super) fn start(&self, file: &mut (impl Read + Seek)) -> io::Result<u64> {
        zip::start_of_member(file, self.header)
    }
}

/// The members of an archive.
///
/// # Errors
/// `InvalidData` if it is no archive, a member is encrypted, or the directory is longer than is read; or the system's error.
pub(super) fn members(file: &mut (impl Read + Seek)) -> io::Result<Vec<Member>> {
    let directory = zip::directory(file)?;
    if directory.bytes > MOST {
        return Err(wrong(format!("its directory has {} bytes, more than {MOST}", directory.bytes)));
    }
    let mut members = Vec::new();
    directory.each(file, &mut |entry: zip::Entry| {
        let method = match entry.method {
            0 if entry.length != entry.packed => return Err(zip::none()),
            0 => Method::Stored,
            8 => Method::Deflated,
            other => Method::Other(other),
        };
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if entry.is_encrypted {
            return Err(wrong(format!("{name} is encrypted")));
        }
        let zip::Entry { length: bytes, packed, checksum, header, .. } = entry;
        members.push(Member { name, method, bytes, packed, checksum, header });
        Ok(())
    })?;
    Ok(members)
}

pub(super) fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
