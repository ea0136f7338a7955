//! An array of an archive that others read by themselves, several parts at a time.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::bufread::DeflateDecoder;
use plimsoll_disk::File;

use super::ENDING;
use super::archive::{Method, members, wrong};
use crate::npy::Header;
use crate::{ByteOrder, ElementType};

/// Bytes read from a file at a time.
const BUFFER: usize = 32 << 10;

/// An array in an archive of NumPy's, and where it lies.
#[derive(Clone, Debug)]
pub struct ArrayMember {
    /// The type of its elements.
    pub element_type: ElementType,
    /// The order of their bytes.
    pub byte_order: ByteOrder,
    /// `true` if the first axis varies fastest.
    pub is_fortran: bool,
    /// Its extents.
    pub shape: Vec<usize>,
    /// The bytes of the member before the elements.
    pub header: Vec<u8>,
    /// The CRC-32 of the member, decompressed: its header and its elements.
    pub checksum: u32,
    is_deflated: bool,
    /// The position of the member's bytes in the file.
    start: u64,
}

/// A member of an archive, from some position on, decompressed.
pub enum MemberReader {
    /// A member that is stored as it is.
    Stored(BufReader<File>),
    /// A deflated member.
    Deflated(DeflateDecoder<BufReader<File>>),
}

impl Read for MemberReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            MemberReader::Stored(file) => file.read(to),
            MemberReader::Deflated(file) => file.read(to),
        }
    }
}

impl ArrayMember {
    /// Reads the headers of the array `name`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is no archive, or has no such array; the error is `InvalidData` if
    /// the array's header describes no array of numbers, or its shape needs more bytes than the member has.
    pub fn open(path: &Path, name: &str) -> io::Result<ArrayMember> {
        let mut file = File::open(path)?;
        let members = members(&mut file)?;
        let member = members.into_iter().find(|member| member.name.strip_suffix(ENDING) == Some(name));
        let member = member.ok_or_else(|| wrong(format!("it has no array {name}")))?;
        let is_deflated = match member.method {
            Method::Stored => false,
            Method::Deflated => true,
            Method::Other(number) => {
                return Err(wrong(format!("{name} is compressed by method {number} of ZIP, not deflate")));
            }
        };
        let start = member.start(&mut file)?;
        let (described, header) = Header::read_from(&mut reader(path, start, is_deflated)?)?;
        let Header { element_type, byte_order, is_fortran, shape } = described;
        let elements = shape.iter().try_fold(element_type.size(), |bytes, extent| bytes.checked_mul(*extent));
        let all = elements.and_then(|bytes| bytes.checked_add(header.len()));
        if all.is_none_or(|all| all as u64 != member.bytes) {
            let bytes = member.bytes;
            return Err(wrong(format!("its shape is {shape:?}, but with its header it has {bytes} bytes")));
        }
        let checksum = member.checksum;
        Ok(ArrayMember { element_type, byte_order, is_fortran, shape, header, checksum, is_deflated, start })
    }

    /// Returns a reader of the elements from byte `skip` on. What precedes it in a deflated array is decompressed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or ends before.
    pub fn reader(&self, path: &Path, skip: u64) -> io::Result<MemberReader> {
        let skip = skip.saturating_add(self.header.len() as u64);
        if !self.is_deflated {
            return reader(path, self.start.saturating_add(skip), false);
        }
        let mut reader = reader(path, self.start, true)?;
        let skipped = io::copy(&mut reader.by_ref().take(skip), &mut io::sink())?;
        if skipped == skip { Ok(reader) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

fn reader(path: &Path, start: u64, is_deflated: bool) -> io::Result<MemberReader> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let file = BufReader::with_capacity(BUFFER, file);
    Ok(if is_deflated {
        MemberReader::Deflated(DeflateDecoder::new(file))
    } else {
        MemberReader::Stored(file)
    })
}
