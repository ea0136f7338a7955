//! Files in a ZIP archive, read where they are. Entries of the directory are looked at one after the other, so that no archive is too
//! large for the limit; the checksum of each member is compared when it was read to its end.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};

use flate2::bufread::DeflateDecoder;
use plimsoll_disk::File;

use crate::DicomError;

/// The signature and the length of the header of a member, with which an archive begins.
const LOCAL: (&[u8; 4], usize) = (b"PK\x03\x04", 30);
/// The signature of an entry of the directory, and its length without name, extra field and comment.
const ENTRY: (&[u8; 4], usize) = (b"PK\x01\x02", 46);
/// The signature of the end of the directory, and its length without the archive's comment.
const END: (&[u8; 4], usize) = (b"PK\x05\x06", 22);
/// The longest comment of an archive.
const MOST_COMMENT: u64 = u16::MAX as u64;
/// The longest name of a member that is read: longer ones do not fit into a path.
const MOST_NAME: u16 = 1024;
/// Deflate makes at most 1032 bytes of one.
const MOST_GROWTH: u64 = 1032;
/// Bits of an entry that say that it is encrypted.
const ENCRYPTED: u64 = 0x2041;

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The archive, and the name in it: what errors call it.
    pub(crate) name: PathBuf,
    /// The offset of the member's own header in the archive.
    header: u64,
    is_deflated: bool,
    packed: u64,
    pub(crate) length: u64,
    checksum: u32,
}

/// Returns `true` if a file begins as ZIP archives do.
pub(crate) fn is_archive(path: &Path) -> Result<bool, DicomError> {
    let io = |source| DicomError::Io { path: path.into(), source };
    let mut start = Vec::with_capacity(LOCAL.0.len());
    let file = File::open(path).map_err(io)?;
    #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
    file.take(LOCAL.0.len() as u64).read_to_end(&mut start).map_err(io)?;
    Ok(start == LOCAL.0)
}

/// Calls `see` with each file of an archive, in the order of its directory.
///
/// # Errors
/// Returns an error if it has no directory, or one that is damaged, of several disks or of more than 4 GiB, or if a
/// file is encrypted, compressed otherwise than by deflate, or claims more bytes than deflate can make. It also returns
/// the errors of `see`.
pub(crate) fn each_member(
    path: &Path,
    mut see: impl FnMut(Member) -> Result<(), DicomError>,
) -> Result<(), DicomError> {
    let io = |source| DicomError::Io { path: path.into(), source };
    let wrong = |why: String| DicomError::Unreadable { path: path.into(), why };
    let damaged = || wrong("it has no valid directory of a ZIP archive".into());
    let mut file = File::open(path).map_err(io)?;
    let length = file.len().map_err(io)?;
    let end = find_end(&mut file, length).map_err(io)?.ok_or_else(damaged)?;
    let (count, size, start) = (number(&end, 10, 2), number(&end, 12, 4), number(&end, 16, 4));
    if count == u64::from(u16::MAX) || size == u64::from(u32::MAX) || start == u64::from(u32::MAX) {
        return Err(wrong("archives of more than 4 GiB or 65,534 files are not read: unpack it".into()));
    }
    if number(&end, 4, 4) != 0 || start.checked_add(size).is_none_or(|end| end > length) {
        return Err(damaged());
    }
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    let mut directory = BufReader::new(file.take(size));
    for _ in 0..count {
        let mut entry = [0; ENTRY.1];
        directory.read_exact(&mut entry).map_err(|_| damaged())?;
        if !entry.starts_with(ENTRY.0) {
            return Err(damaged());
        }
        let (name_length, beyond) = (number(&entry, 28, 2), number(&entry, 30, 2) + number(&entry, 32, 2));
        let mut name = vec![0; usize::from(MOST_NAME).min(name_length as usize)];
        directory.read_exact(&mut name).map_err(|_| damaged())?;
        pass(&mut directory, name_length - name.len() as u64 + beyond).map_err(|_| damaged())?;
        // Names are shown, and never opened.
        let shown = String::from_utf8_lossy(&name).replace(char::is_control, " ");
        if shown.ends_with('/') {
            continue;
        }
        let method = number(&entry, 10, 2);
        let member = Member {
            name: path.join(shown.trim_start_matches('/')),
            header: number(&entry, 42, 4),
            is_deflated: method == 8,
            packed: number(&entry, 20, 4),
            length: number(&entry, 24, 4),
            checksum: number(&entry, 16, 4) as u32,
        };
        let refuse = |why: String| DicomError::Unreadable { path: member.name.clone(), why };
        if number(&entry, 8, 2) & ENCRYPTED != 0 {
            return Err(refuse("it is encrypted".into()));
        }
        let most = match method {
            0 => member.packed,
            8 => member.packed.saturating_mul(MOST_GROWTH),
            _ => {
                return Err(refuse(format!(
                    "it is compressed by method {method}; stored and deflated files are read"
                )));
            }
        };
        if member.length > most || member.packed > length {
            let (claimed, packed) = (member.length, member.packed);
            return Err(refuse(format!("it claims {claimed} bytes, unpacked from {packed}")));
        }
        see(member)?;
    }
    Ok(())
}

/// The last bytes of an archive that say where its directory is; none where there are none.
fn find_end(file: &mut File, length: u64) -> io::Result<Option<[u8; END.1]>> {
    let tail_length = length.min(END.1 as u64 + MOST_COMMENT);
    file.seek(SeekFrom::Start(length - tail_length))?;
    let mut tail = Vec::with_capacity(tail_length as usize);
    #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
    file.by_ref().take(tail_length).read_to_end(&mut tail)?;
    let Some(at) = tail.windows(END.0.len()).rposition(|window| window == END.0) else { return Ok(None) };
    Ok(tail.get(at..at + END.1).and_then(|end| end.try_into().ok()))
}

fn pass(from: &mut impl BufRead, count: u64) -> io::Result<()> {
    match io::copy(&mut from.take(count), &mut io::sink())? == count {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A little-endian number of this length in bytes; a number out of bounds is 0, but the callers' fixed places are
/// within bounds.
fn number(bytes: &[u8], start: usize, length: usize) -> u64 {
    bytes.iter().skip(start).take(length).rev().fold(0, |number, digit| number << 8 | u64::from(*digit))
}

/// Bytes of a member, as they were before they were packed.
enum Packed {
    Stored(Take<BufReader<File>>),
    Deflated(Box<DeflateDecoder<Take<BufReader<File>>>>),
}

/// A member that is read; what comes out of it is just as long as its entry says, and has its checksum, or it is an error.
pub(crate) struct Summed {
    from: Packed,
    left: u64,
    sum: crc32fast::Hasher,
    checksum: u32,
}

impl Member {
    /// Opens it at its beginning, in the archive that it was found in.
    pub(crate) fn open(&self, archive: &Path) -> Result<Summed, DicomError> {
        let io = |source| DicomError::Io { path: archive.into(), source };
        let mut file = File::open(archive).map_err(io)?;
        file.seek(SeekFrom::Start(self.header)).map_err(io)?;
        let mut local = [0; LOCAL.1];
        let found = file.read_exact(&mut local);
        if found.is_err() || !local.starts_with(LOCAL.0) {
            let why = "it is not at the position in its archive's directory".into();
            return Err(DicomError::Unreadable { path: self.name.clone(), why });
        }
        let beyond = number(&local, 26, 2) + number(&local, 28, 2);
        file.seek(SeekFrom::Start(self.header + LOCAL.1 as u64 + beyond)).map_err(io)?;
        let packed = BufReader::new(file).take(self.packed);
        let from = match self.is_deflated {
            true => Packed::Deflated(Box::new(DeflateDecoder::new(packed))),
            false => Packed::Stored(packed),
        };
        Ok(Summed { from, left: self.length, sum: crc32fast::Hasher::new(), checksum: self.checksum })
    }
}

impl Read for Summed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(to.len());
        let Some(to) = to.get_mut(..most).filter(|to| !to.is_empty()) else { return Ok(0) };
        let count = match &mut self.from {
            Packed::Stored(stored) => stored.read(to)?,
            Packed::Deflated(deflated) => deflated.read(to)?,
        };
        if count == 0 {
            let why = "it is shorter than its archive's directory states";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        self.sum.update(to.get(..count).unwrap_or(to));
        self.left -= count as u64;
        if self.left == 0 && self.sum.clone().finalize() != self.checksum {
            let why = "its checksum differs from the one in its archive";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(count)
    }
}
