//! The bytes of one DICOM file from its beginning on, wherever it is: on the disk, or in an archive; and inflated where its elements are
//! compressed. Nothing of them is held but what is asked for.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::DeflateDecoder;

use crate::DicomError;
use crate::archive::Summed;

/// The bytes that are read at a time where seeking is not possible.
const PIECE: usize = 4096;

/// Bytes that come one after the other.
enum Stream<'a> {
    Bytes(&'a [u8]),
    File(BufReader<plimsoll_disk::File>),
    Member(BufReader<Summed>),
    Inflated(Box<BufReader<DeflateDecoder<Stream<'a>>>>),
}

impl Read for Stream<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Bytes(bytes) => bytes.read(to),
            Stream::File(file) => file.read(to),
            Stream::Member(member) => member.read(to),
            Stream::Inflated(inflated) => inflated.read(to),
        }
    }
}

impl BufRead for Stream<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Stream::Bytes(bytes) => bytes.fill_buf(),
            Stream::File(file) => file.fill_buf(),
            Stream::Member(member) => member.fill_buf(),
            Stream::Inflated(inflated) => inflated.fill_buf(),
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            Stream::Bytes(bytes) => bytes.consume(count),
            Stream::File(file) => file.consume(count),
            Stream::Member(member) => member.consume(count),
            Stream::Inflated(inflated) => inflated.consume(count),
        }
    }
}

/// A file of DICOM, read forwards.
pub(crate) struct Reader<'a> {
    path: &'a Path,
    stream: Stream<'a>,
    at: u64,
    /// Bytes of all; none where that shows only at the end.
    length: Option<u64>,
}

impl<'a> Reader<'a> {
    /// A file on the disk. `path` is what errors call it.
    pub(crate) fn open(path: &'a Path) -> Result<Reader<'a>, DicomError> {
        let io = |source| DicomError::Io { path: path.into(), source };
        let file = plimsoll_disk::File::open(path).map_err(io)?;
        let length = file.len().map_err(io)?;
        Ok(Reader { path, stream: Stream::File(BufReader::new(file)), at: 0, length: Some(length) })
    }

    /// A file in an archive, of this length in bytes. `path` is its name in errors.
    pub(crate) fn in_archive(path: &'a Path, member: Summed, length: u64) -> Reader<'a> {
        Reader { path, stream: Stream::Member(BufReader::new(member)), at: 0, length: Some(length) }
    }

    /// Bytes that were read before, from this place of the file on.
    pub(crate) fn over(path: &'a Path, bytes: &'a [u8], at: u64) -> Reader<'a> {
        Reader { path, stream: Stream::Bytes(bytes), at, length: Some(at.saturating_add(bytes.len() as u64)) }
    }

    /// The same, of which all that follows is compressed (Deflated Explicit VR Little Endian, DICOM PS3.5 A.5). It counts on as if it
    /// were not.
    pub(crate) fn inflated(self) -> Reader<'a> {
        let stream = Stream::Inflated(Box::new(BufReader::new(DeflateDecoder::new(self.stream))));
        Reader { stream, length: None, ..self }
    }

    /// An error at the current place.
    pub(crate) fn wrong(&self, why: &str) -> DicomError {
        DicomError::Unreadable { path: self.path.into(), why: format!("{why}, at byte {}", self.at) }
    }

    fn failed(&self, source: io::Error) -> DicomError {
        match source.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => self.wrong(&source.to_string()),
            io::ErrorKind::UnexpectedEof => self.wrong("it is cut off"),
            _ => DicomError::Io { path: self.path.into(), source },
        }
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// The number of bytes before the current place.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next bytes; none where fewer are left.
    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<Option<[u8; N]>, DicomError> {
        let mut bytes = [0; N];
        let mut found = 0;
        while let Some(rest) = bytes.get_mut(found..).filter(|rest| !rest.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) => return Ok(None),
                Ok(count) => found += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.at += N as u64;
        Ok(Some(bytes))
    }

    /// Fills a buffer.
    ///
    /// # Errors
    /// Returns an error if fewer bytes are left.
    pub(crate) fn fill(&mut self, to: &mut [u8]) -> Result<(), DicomError> {
        self.expect(to.len() as u64)?;
        self.stream.read_exact(to).map_err(|error| self.failed(error))?;
        self.at += to.len() as u64;
        Ok(())
    }

    /// Checks that the file has room for this number of bytes, if its length is known.
    pub(crate) fn expect(&self, count: u64) -> Result<(), DicomError> {
        let left = self.length.map_or(u64::MAX, |length| length.saturating_sub(self.at));
        match count <= left {
            true => Ok(()),
            false => Err(self.wrong(&format!("an element has {count} bytes, but {left} remain"))),
        }
    }

    /// Skips this number of bytes.
    pub(crate) fn skip(&mut self, count: u64) -> Result<(), DicomError> {
        self.expect(count)?;
        match &mut self.stream {
            Stream::File(file) => {
                let by = i64::try_from(count).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
                by.and_then(|by| file.seek_relative(by)).map_err(|error| self.failed(error))?;
            }
            Stream::Bytes(bytes) => {
                let whole = *bytes;
                match usize::try_from(count).ok().and_then(|count| whole.get(count..)) {
                    Some(rest) => *bytes = rest,
                    None => return Err(self.wrong("it is cut off")),
                }
            }
            Stream::Member(_) | Stream::Inflated(_) => {
                let mut piece = [0; PIECE];
                let mut left = count;
                while left > 0 {
                    let some = left.min(PIECE as u64) as usize;
                    self.stream.read_exact(&mut piece[..some]).map_err(|error| self.failed(error))?;
                    left -= some as u64;
                }
            }
        }
        self.at += count;
        Ok(())
    }

    /// Passes over all bytes before a place, which is not behind where it stands.
    pub(crate) fn skip_to(&mut self, place: u64) -> Result<(), DicomError> {
        let Some(count) = place.checked_sub(self.at) else {
            return Err(self.wrong("what is before was passed over"));
        };
        self.skip(count)
    }
}
