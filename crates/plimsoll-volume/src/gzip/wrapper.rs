//! The wrapping of deflated data: the headers before them, and the checksums behind them.

use std::io;

use super::checksum::{Adler, Checksum};
use super::huffman::invalid;
use super::input::BitInput;

/// The first byte of a member of gzip.
pub(super) const MAGIC: u8 = 0x1f;

/// The place of deflated data in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The byte of the file that they, or the header before them, begin at.
    pub(crate) start: u64,
    pub(crate) wrapper: Wrapper,
}

/// The wrapping of deflated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrapper {
    /// Members of gzip, one or more in sequence: block gzip and parallel compressors write many. Trailing bytes that do not start another
    /// member are ignored, as gzip itself does.
    Gzip,
    /// The header and the checksum of zlib, as MetaIO has them.
    Zlib,
    /// No wrapper, as in archives, whose directory has the CRC-32 of the decompressed data, and their compressed
    /// length.
    Bare { checksum: u32, length: u64 },
}

impl Stretch {
    /// A file that is gzip from its first byte to its last.
    pub(crate) const GZIP_FILE: Stretch = Stretch { start: 0, wrapper: Wrapper::Gzip };

    /// The end of the stretch in a file of this length in bytes.
    pub(super) fn end(&self, of_file: u64) -> u64 {
        match self.wrapper {
            Wrapper::Bare { length, .. } => self.start.saturating_add(length).min(of_file),
            Wrapper::Gzip | Wrapper::Zlib => of_file,
        }
    }
}

impl Wrapper {
    /// The number by which it is kept.
    pub(super) fn number(&self) -> u64 {
        match self {
            Wrapper::Gzip => 0,
            Wrapper::Zlib => 1,
            Wrapper::Bare { .. } => 2,
        }
    }

    /// Reads what stands before a stream. Returns the checksum of nothing yet.
    ///
    /// # Errors
    /// Returns an error if it is no such header, or the file cannot be read.
    pub(super) fn begin(&self, input: &mut BitInput) -> io::Result<Checksum> {
        match self {
            Wrapper::Gzip => begin_member(input).map(|()| Checksum::crc()),
            Wrapper::Zlib => begin_zlib(input).map(|()| Checksum::Adler(Adler::default())),
            Wrapper::Bare { .. } => Ok(Checksum::crc()),
        }
    }

    /// Reads what stands behind the last block of a stream, and compares it with the checksum and the length, modulo 2^32, of what was
    /// decompressed, if all of the stream was.
    ///
    /// # Errors
    /// Returns an error if the checksum or the length differs, or the file cannot be read.
    pub(super) fn end(&self, input: &mut BitInput, found: Option<(Checksum, u32)>) -> io::Result<()> {
        input.align();
        let (said, length) = match self {
            Wrapper::Gzip => (input.take(32)?, Some(input.take(32)?)),
            // The highest byte comes first.
            Wrapper::Zlib => (input.take(32)?.swap_bytes(), None),
            Wrapper::Bare { checksum, .. } => (*checksum, None),
        };
        let Some((checksum, found_length)) = found else { return Ok(()) };
        let found = checksum.finish();
        if found != said {
            let why = format!("its checksum is {found:08x}, not {said:08x}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        match length.is_none_or(|length| length == found_length) {
            true => Ok(()),
            false => Err(invalid("a gzip member does not have the length that it states")),
        }
    }
}

/// Reads the header of a member of gzip (RFC 1952, section 2.3).
fn begin_member(input: &mut BitInput) -> io::Result<()> {
    const CHECKED: u32 = 2;
    const EXTRA: u32 = 4;
    const NAME: u32 = 8;
    const COMMENT: u32 = 16;
    let mut header = crc32fast::Hasher::new();
    let mut byte = || {
        let byte = input.take(8)?;
        header.update(&[byte as u8]);
        Ok::<_, io::Error>(byte)
    };
    let (first, second, method, flags) = (byte()?, byte()?, byte()?, byte()?);
    if (first, second, method) != (u32::from(MAGIC), 0x8b, 8) {
        return Err(invalid("an invalid gzip header"));
    }
    for _ in 0..6 {
        byte()?;
    }
    if flags & EXTRA != 0 {
        for _ in 0..byte()? | byte()? << 8 {
            byte()?;
        }
    }
    for text in [NAME, COMMENT] {
        while flags & text != 0 && byte()? != 0 {}
    }
    if flags & CHECKED != 0 && input.take(16)? != header.finalize() & 0xffff {
        return Err(invalid("a gzip header with a wrong checksum"));
    }
    Ok(())
}

/// Reads the header of zlib (RFC 1950, section 2.2).
fn begin_zlib(input: &mut BitInput) -> io::Result<()> {
    /// Deflate, and the logarithm of its longest window less 8.
    const METHOD: u32 = 8;
    const MOST_WINDOW: u32 = 7;
    const DICTIONARY: u32 = 1 << 5;
    let (form, flags) = (input.take(8)?, input.take(8)?);
    if !(form << 8 | flags).is_multiple_of(31) || form & 0xf != METHOD || form >> 4 > MOST_WINDOW {
        return Err(invalid("an invalid zlib header"));
    }
    match flags & DICTIONARY {
        0 => Ok(()),
        _ => Err(invalid("a zlib header that needs a dictionary")),
    }
}
