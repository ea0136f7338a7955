//! The bits of a file, the lowest of each byte first, as deflate packs them (RFC 1951, section 3.1.1).

use std::io::{self, Read, Seek, SeekFrom};
use std::time::UNIX_EPOCH;

use plimsoll_disk::File;
use plimsoll_memory::{Digest, Digester};

/// Bytes per read from the file.
const BUFFER: usize = 64 << 10;

/// Zeros that stand behind the last byte of the file, so that eight bytes can always be loaded at once.
const PADDING: usize = 32;

/// A file that is read bit by bit.
pub(super) struct BitInput {
    file: File,
    buffer: Box<[u8]>,
    /// The next byte that goes into `bits`.
    pub(super) at: usize,
    /// The bytes of the buffer that are the file's.
    filled: usize,
    /// The offset in the file of the byte behind these.
    offset: u64,
    ended: bool,
    /// The next bits. Beyond `count` there may be more, which are the same that will be loaded.
    pub(super) bits: u64,
    pub(super) count: u32,
}

impl BitInput {
    /// The bits of a file from its beginning.
    pub(super) fn new(file: File) -> BitInput {
        let buffer = vec![0; BUFFER + PADDING].into_boxed_slice();
        // Where the file stands is not known, so that the first read seeks.
        BitInput { file, buffer, at: 0, filled: 0, offset: u64::MAX, ended: false, bits: 0, count: 0 }
    }

    /// Goes to a bit of the file.
    pub(super) fn seek(&mut self, bit: u64) -> io::Result<()> {
        let byte = bit / 8;
        let begin = self.offset.wrapping_sub(self.filled as u64);
        (self.bits, self.count) = (0, 0);
        if self.offset != u64::MAX && (begin..self.offset).contains(&byte) {
            // It is in the buffer already, and its distance from the buffer's begin fits.
            self.at = (byte - begin) as usize;
        } else {
            // If seeking fails, the next attempt seeks again.
            (self.at, self.filled, self.ended, self.offset) = (0, 0, false, u64::MAX);
            self.file.seek(SeekFrom::Start(byte))?;
            self.offset = byte;
        }
        self.take((bit % 8) as u32)?;
        Ok(())
    }

    /// The position of the next bit in the file.
    pub(super) fn position(&self) -> u64 {
        (self.offset - self.filled as u64 + self.at as u64) * 8 - u64::from(self.count)
    }

    /// Up to where `at` may go, less the eight bytes that are loaded at once.
    pub(super) fn limit(&self) -> usize {
        if self.ended { self.filled + PADDING } else { self.filled }
    }

    /// The bytes of the buffer that are the file's.
    pub(super) fn file_bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Returns `true` if more was taken than the file has.
    pub(super) fn is_overrun(&self) -> bool {
        self.at > self.filled && (self.at - self.filled) * 8 > self.count as usize
    }

    /// Reads more of the file into the buffer, until there are 16 bytes at least, or the file ends.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or had ended before.
    pub(super) fn load(&mut self) -> io::Result<()> {
        if self.ended {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.at = 0;
        while self.filled < 2 * size_of::<u64>() {
            match self.file.read(&mut self.buffer[self.filled..BUFFER]) {
                Ok(0) => {
                    self.ended = true;
                    self.buffer[self.filled..self.filled + PADDING].fill(0);
                    return Ok(());
                }
                Ok(count) => {
                    self.filled += count;
                    self.offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes up to 32 bits.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or ends before.
    pub(super) fn take(&mut self, bits: u32) -> io::Result<u32> {
        if self.count < bits {
            self.ensure()?;
        }
        let taken = self.bits & ((1 << bits) - 1);
        self.bits >>= bits;
        self.count -= bits;
        if self.is_overrun() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(taken as u32)
    }

    /// Loads 56 bits; behind the end of the file are zeros.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or too many bits were taken behind its end.
    pub(super) fn ensure(&mut self) -> io::Result<()> {
        if self.at + size_of::<u64>() > self.limit() {
            self.load()?;
        }
        let Some(word) = self.buffer[self.at..].first_chunk() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        self.bits |= u64::from_le_bytes(*word) << self.count;
        self.at += (63 - self.count as usize) >> 3;
        self.count |= 56;
        Ok(())
    }

    /// Drops what is left of a byte that was begun. What follows are whole bytes.
    pub(super) fn align(&mut self) {
        let part = self.count % 8;
        self.bits >>= part;
        self.count -= part;
    }

    /// Copies whole bytes, as many as the file has at once. The input must be aligned.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or has ended.
    pub(super) fn copy(&mut self, to: &mut [u8]) -> io::Result<usize> {
        // Bytes that were loaded as bits go back.
        self.at -= self.count as usize / 8;
        (self.bits, self.count) = (0, 0);
        if self.at >= self.filled {
            self.load()?;
        }
        let count = self.filled.saturating_sub(self.at).min(to.len());
        if count == 0 && !to.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to[..count].copy_from_slice(&self.buffer[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }

    /// The digest of the bytes from `begin` to before `end`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or ends before.
    pub(super) fn digest(&mut self, begin: u64, end: u64) -> io::Result<Digest> {
        self.seek(begin * 8)?;
        let mut digester = Digester::default();
        let mut left = end.saturating_sub(begin);
        while left > 0 {
            if self.at >= self.filled {
                self.load()?;
            }
            let there = &self.buffer[self.at..self.filled];
            let part = &there[..there.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            if part.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            digester.update(part);
            self.at += part.len();
            left -= part.len() as u64;
        }
        Ok(digester.finish())
    }

    /// The length of the file and the time of its last change, in nanoseconds since 1970.
    pub(super) fn stamp(&self) -> io::Result<(u64, u64)> {
        let metadata = self.file.metadata()?;
        let since = metadata.modified()?.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        Ok((metadata.len(), u64::try_from(since.as_nanos()).map_err(io::Error::other)?))
    }

    /// The next byte, which stays there; none at the end of the file. The input must be aligned.
    pub(super) fn peek(&mut self) -> io::Result<Option<u8>> {
        self.at -= self.count as usize / 8;
        (self.bits, self.count) = (0, 0);
        if self.at >= self.filled && !self.ended {
            self.load()?;
        }
        Ok(self.buffer[..self.filled].get(self.at).copied())
    }
}
