//! The directory of the ZIP archive that a `.pth` file is.
//!
//! PyTorch stores its members without compression. A compressed pickle of a few kilobytes would be hundreds of
//! megabytes before anything is known of it, so such archives are refused before they are read. Only the code of TorchScript may be
//! compressed, which is read up to a fixed length.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

use plimsoll_disk::zip;

use super::pickle::{Refusal, Room};

/// The first bytes of an archive.
pub(super) use plimsoll_disk::zip::BEGIN;

/// The member that says what the tensors are, in the one folder that all members are in.
pub(super) const PICKLE: &str = "data.pkl";
/// The folder of TorchScript's code.
const CODE: &str = "code/";
/// The method of deflated members.
const DEFLATED: u64 = 8;
/// The largest number of bytes in memory for each byte of the directory: an entry of 46 bytes and a name is kept under
/// that name.
const DIRECTORY_BYTE: u64 = 8;

/// A member of an archive.
#[derive(Clone, Copy)]
pub(super) struct Member {
    /// The offset of its local header.
    header: u64,
    /// Its bytes.
    pub(super) length: u64,
    /// Its checksum.
    pub(super) checksum: u32,
}

impl Member {
    /// Returns the offset of its bytes.
    pub(super) fn start(&self, file: &mut (impl Read + Seek)) -> io::Result<u64> {
        zip::start_of_member(file, self.header)
    }
}

/// A member with code.
#[derive(Clone, Copy)]
pub(super) struct CodeMember {
    /// Itself, with its length as it is decompressed.
    pub(super) member: Member,
    /// Its bytes in the archive.
    pub(super) packed: u64,
    /// `true` if it is deflated.
    pub(super) is_deflated: bool,
}

/// The content of an archive's directory.
pub(super) struct Directory {
    /// `true` if all members but code are stored without compression.
    pub(super) stored: bool,
    /// The code of TorchScript, by the names of its members within `code/`.
    pub(super) code: BTreeMap<String, CodeMember>,
    /// The members of the pickle's folder, by their names within it.
    pub(super) members: BTreeMap<String, Member>,
}

/// The directory of an archive, for which there is room.
///
/// # Errors
/// `InvalidData` if it is none, the system's error, or that there is no room.
pub(super) fn directory(file: &mut (impl Read + Seek), room: &mut Room) -> Result<Directory, Refusal> {
    let found = zip::directory(file)?;
    room.add(found.bytes.saturating_mul(DIRECTORY_BYTE))?;
    Ok(members(file, found)?)
}

/// Returns the number of bytes of an archive's directory, from which the memory to read it follows.
///
/// # Errors
/// `InvalidData` if it is no archive, or one of which readers disagree where its directory is; or the system's error.
pub fn archive_directory_bytes(file: &mut (impl Read + Seek)) -> io::Result<u64> {
    let found = zip::directory(file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(found.bytes)
}

fn members(file: &mut (impl Read + Seek), directory: zip::Directory) -> io::Result<Directory> {
    let (mut stored, mut folder) = (true, None);
    let mut members = BTreeMap::new();
    let mut code = BTreeMap::new();
    directory.each(file, &mut |entry: zip::Entry| {
        let name = String::from_utf8(entry.name);
        let own = name.as_ref().ok().and_then(|name| name.split_once('/')?.1.strip_prefix(CODE));
        if let Some(own) = own
            && matches!(entry.method, 0 | DEFLATED)
        {
            let member = Member { header: entry.header, length: entry.length, checksum: entry.checksum };
            let is_deflated = entry.method == DEFLATED;
            let member = CodeMember { member, packed: entry.packed, is_deflated };
            return match code.insert(own.to_string(), member) {
                Some(_) => Err(zip::none()),
                None => Ok(()),
            };
        }
        stored &= entry.method == 0;
        if stored && entry.packed != entry.length {
            return Err(zip::none());
        }
        let Ok(name) = name else { return Ok(()) };
        let (within, own) = name.split_once('/').unwrap_or(("", &name));
        // One that is there twice is not what PyTorch writes.
        let is_second = own == PICKLE && folder.replace(within.to_string()).is_some();
        let member = Member { header: entry.header, length: entry.length, checksum: entry.checksum };
        match is_second || members.insert(name, member).is_some() {
            true => Err(zip::none()),
            false => Ok(()),
        }
    })?;
    let prefix = match folder.as_deref() {
        Some("") | None => String::new(),
        Some(folder) => format!("{folder}/"),
    };
    let of_folder =
        members.into_iter().filter_map(|(name, member)| Some((name.strip_prefix(&prefix)?.into(), member)));
    Ok(Directory { stored, code, members: of_folder.collect() })
}
