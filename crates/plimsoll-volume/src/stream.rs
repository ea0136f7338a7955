//! The bytes of a file, decompressed if necessary, read in pieces with a fixed amount of memory.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use plimsoll_disk::{File, ScratchFile};

use crate::gzip::Members;

/// Bytes per read from the file.
const BUFFER: usize = 16 << 10;

/// Bytes per step when decompressed data is skipped.
const SKIP: usize = 32 << 10;

/// A file whose (decompressed) bytes are read from given offsets. A plain file seeks; a compressed file is decompressed
/// forward from the current offset, and rewound to go backward.
pub(crate) struct ByteStream {
    bytes: Bytes,
    /// The offset of the next byte that `bytes` gives.
    position: u64,
    /// The length of the file as it is stored.
    stored_length: u64,
    /// After an error the position of `bytes` is unknown.
    lost: bool,
}

enum Bytes {
    Plain(BufReader<File>),
    /// What was decompressed before.
    Scratch(BufReader<ScratchFile>),
    Compressed(Members),
}

impl ByteStream {
    /// Opens a file. Compression is detected from its first bytes, not from its name.
    pub(crate) fn open(path: &Path) -> io::Result<ByteStream> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let mut reader = BufReader::with_capacity(BUFFER, file);
        let mut magic = Vec::with_capacity(2);
        // The first read may give a single byte.
        reader.by_ref().take(2).read_to_end(&mut magic)?;
        reader.seek_relative(-(magic.len() as i64))?;
        let compressed = magic == [0x1f, 0x8b];
        let bytes = if compressed { Bytes::Compressed(Members::new(reader)) } else { Bytes::Plain(reader) };
        Ok(ByteStream { bytes, position: 0, stored_length: metadata.len(), lost: false })
    }

    /// The bytes of a file that were decompressed before, as many as there are.
    pub(crate) fn decompressed(mut file: ScratchFile, length: u64) -> io::Result<ByteStream> {
        file.rewind()?;
        let bytes = Bytes::Scratch(BufReader::with_capacity(BUFFER, file));
        Ok(ByteStream { bytes, position: 0, stored_length: length, lost: false })
    }

    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self.bytes, Bytes::Compressed(_))
    }

    pub(crate) fn stored_length(&self) -> u64 {
        self.stored_length
    }

    /// The current offset in the (decompressed) bytes.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Fills `buffer` with the bytes from `offset` on. If the file ends earlier, the error is `UnexpectedEof`, and
    /// `position` is where it ended.
    pub(crate) fn read_exact_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.seek(offset)?;
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(())
    }

    /// Reads a compressed file to its end, which verifies its checksums. `false` if there are more than `most` bytes up to
    /// there: a few kilobytes can stand for gigabytes.
    pub(crate) fn verify_rest(&mut self, most: u64) -> io::Result<bool> {
        if self.is_compressed() {
            let begin = self.position;
            let mut skipped = [0; SKIP];
            while self.read(&mut skipped)? > 0 {
                if self.position - begin > most {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let result = match &mut self.bytes {
                Bytes::Plain(reader) => reader.read(buffer),
                Bytes::Scratch(reader) => reader.read(buffer),
                Bytes::Compressed(members) => members.read(buffer),
            };
            match result {
                Ok(count) => {
                    self.position += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lost = true;
                    return Err(error);
                }
            }
        }
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        if self.lost || (self.is_compressed() && offset < self.position) {
            self.rewind()?;
        }
        // A seek within the buffer is free, where a plain seek would discard the buffer. Both offsets are within a file.
        let by = offset as i64 - self.position as i64;
        let sought = match &mut self.bytes {
            Bytes::Plain(reader) => Some(reader.seek_relative(by)),
            Bytes::Scratch(reader) => Some(reader.seek_relative(by)),
            Bytes::Compressed(_) => None,
        };
        if let Some(sought) = sought {
            self.lost = sought.is_err();
            sought?;
            self.position = offset;
        }
        while self.position < offset {
            let mut skipped = [0; SKIP];
            let step = (offset - self.position).min(SKIP as u64) as usize;
            if self.read(&mut skipped[..step])? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn rewind(&mut self) -> io::Result<()> {
        match &mut self.bytes {
            Bytes::Plain(reader) => {
                reader.seek(SeekFrom::Start(0))?;
            }
            Bytes::Scratch(reader) => {
                reader.seek(SeekFrom::Start(0))?;
            }
            Bytes::Compressed(members) => members.rewind()?,
        }
        self.position = 0;
        self.lost = false;
        Ok(())
    }
}
