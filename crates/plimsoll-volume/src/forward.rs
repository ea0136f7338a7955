//! Compressed data that are read forwards only: those that begin in the middle of a file, or are compressed otherwise than by gzip.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use crc32fast::Hasher;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use plimsoll_disk::File;

use crate::zstd::Frames;

/// How data are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// One member of gzip or several.
    Gzip,
    /// Deflate within zlib's header and checksum, as MetaIO has it.
    Zlib,
    /// Deflate alone, as in archives, with the checksum of what it stands for.
    Deflate { checksum: u32 },
    /// Frames of Zstandard.
    Zstd,
}

/// Compressed data from a byte of a file on.
pub(crate) struct Forward {
    start: u64,
    /// `None` only while a method is running.
    decoder: Option<Decoder>,
}

enum Decoder {
    Gzip(Box<MultiGzDecoder<BufReader<File>>>),
    Zlib(Box<ZlibDecoder<BufReader<File>>>),
    Deflate(Box<Checked>),
    Zstd(Box<Frames>),
}

/// Deflated data whose checksum is known.
struct Checked {
    decoder: DeflateDecoder<BufReader<File>>,
    checksum: u32,
    /// Of what was read.
    sum: Hasher,
}

impl Checked {
    fn new(file: BufReader<File>, checksum: u32) -> Box<Checked> {
        Box::new(Checked { decoder: DeflateDecoder::new(file), checksum, sum: Hasher::new() })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.sum.update(buffer.get(..count).unwrap_or_default());
        let found = self.sum.clone().finalize();
        if count == 0 && !buffer.is_empty() && found != self.checksum {
            let why = format!("its checksum is {found:08x}, not {:08x}", self.checksum);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(count)
    }
}

impl Forward {
    /// Data that begin at byte `start` of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or the data do not begin as they must.
    pub(crate) fn new(mut file: BufReader<File>, start: u64, how: Compression) -> io::Result<Forward> {
        file.seek(SeekFrom::Start(start))?;
        let decoder = match how {
            Compression::Gzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(file))),
            Compression::Zlib => Decoder::Zlib(Box::new(ZlibDecoder::new(file))),
            Compression::Deflate { checksum } => Decoder::Deflate(Checked::new(file, checksum)),
            Compression::Zstd => Decoder::Zstd(Box::new(Frames::new(file)?)),
        };
        Ok(Forward { start, decoder: Some(decoder) })
    }

    pub(crate) fn compression(&self) -> Option<Compression> {
        Some(match self.decoder.as_ref()? {
            Decoder::Gzip(_) => Compression::Gzip,
            Decoder::Zlib(_) => Compression::Zlib,
            Decoder::Deflate(checked) => Compression::Deflate { checksum: checked.checksum },
            Decoder::Zstd(_) => Compression::Zstd,
        })
    }

    /// The bytes that decompression goes back to, beyond a fixed amount.
    pub(crate) fn window(&self) -> u64 {
        match &self.decoder {
            Some(Decoder::Zstd(frames)) => frames.window(),
            _ => 0,
        }
    }

    /// Reads the next bytes; 0 only at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.decoder {
            Some(Decoder::Gzip(decoder)) => decoder.read(buffer),
            Some(Decoder::Zlib(decoder)) => decoder.read(buffer),
            Some(Decoder::Deflate(checked)) => checked.read(buffer),
            Some(Decoder::Zstd(frames)) => frames.read(buffer),
            None => Err(io::Error::other("the decompressor was lost")),
        }
    }

    /// Goes back to the first byte. Where that fails, it can be tried again.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        let start = SeekFrom::Start(self.start);
        match &mut self.decoder {
            Some(Decoder::Gzip(decoder)) => decoder.get_mut().seek(start)?,
            Some(Decoder::Zlib(decoder)) => decoder.get_mut().seek(start)?,
            Some(Decoder::Deflate(checked)) => checked.decoder.get_mut().seek(start)?,
            Some(Decoder::Zstd(frames)) => return frames.rewind(start),
            None => return Err(io::Error::other("the decompressor was lost")),
        };
        self.decoder = match self.decoder.take() {
            Some(Decoder::Gzip(decoder)) => {
                Some(Decoder::Gzip(Box::new(MultiGzDecoder::new(decoder.into_inner()))))
            }
            Some(Decoder::Zlib(decoder)) => {
                Some(Decoder::Zlib(Box::new(ZlibDecoder::new(decoder.into_inner()))))
            }
            Some(Decoder::Deflate(checked)) => {
                let Checked { decoder, checksum, .. } = *checked;
                Some(Decoder::Deflate(Checked::new(decoder.into_inner(), checksum)))
            }
            other => other,
        };
        Ok(())
    }
}

/// What a file begins with from its present place on, as many bytes as `to` has or the file; it stays where it is.
pub(crate) fn peek(file: &mut BufReader<File>, to: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = to.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // The first read may give a single byte.
        let read = file.read(rest)?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    file.seek_relative(-(filled as i64))?;
    Ok(filled)
}

/// Passes over bytes of a reader.
///
/// # Errors
/// If it ends before, or cannot be read.
pub(crate) fn pass(from: &mut impl BufRead, mut count: u64) -> io::Result<()> {
    while count > 0 {
        let there = from.fill_buf()?.len();
        if there == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let step = usize::try_from(count).unwrap_or(usize::MAX).min(there);
        from.consume(step);
        count -= step as u64;
    }
    Ok(())
}
