//! The bytes of a file, decompressed if necessary, read in pieces with a fixed amount of memory.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use plimsoll_disk::{File, ScratchFile};

use crate::buffered::peek;
use crate::gzip::{Deflated, IndexFolder, Stretch};
use crate::zstd::{self, Frames};

/// Bytes per read from the file.
const BUFFER: usize = 16 << 10;

/// Bytes per step when what follows the voxels is read.
const SKIP: usize = 32 << 10;

/// A file, or a compressed stretch of one, whose (decompressed) bytes are read from given offsets. A plain file seeks; a compressed one is
/// decompressed forward from the current offset, and rewound to go backward, unless its access points are known: then it begins at the last
/// before the offset.
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
    /// Bytes that were decompressed before.
    Scratch(BufReader<ScratchFile>),
    Deflated(Box<Deflated>),
    Frames(Box<Frames>),
}

/// The largest expansion of deflate per byte: a match of 258 bytes takes two bits.
const DEFLATE_LIMIT: u64 = 1032;

impl ByteStream {
    /// Opens a file. Compression is detected from its first bytes, not from its name.
    pub(crate) fn open(path: &Path) -> io::Result<ByteStream> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let mut reader = BufReader::with_capacity(BUFFER, file);
        let mut magic = [0; 4];
        peek(&mut reader, &mut magic)?;
        let bytes = match magic {
            [0x1f, 0x8b, ..] => {
                Bytes::Deflated(Box::new(Deflated::new(reader.into_inner(), Stretch::GZIP_FILE)?))
            }
            zstd::MAGIC => Bytes::Frames(Box::new(Frames::new(reader)?)),
            _ => Bytes::Plain(reader),
        };
        Ok(ByteStream { bytes, position: 0, stored_length: metadata.len(), lost: false })
    }

    /// Opens a file whose bytes are not decompressed, whatever they begin with.
    pub(crate) fn open_plain(path: &Path) -> io::Result<ByteStream> {
        let file = File::open(path)?;
        let stored_length = file.metadata()?.len();
        let bytes = Bytes::Plain(BufReader::with_capacity(BUFFER, file));
        Ok(ByteStream { bytes, position: 0, stored_length, lost: false })
    }

    /// Opens a stretch of a file that is deflated; offsets count decompressed bytes from where it begins.
    pub(crate) fn open_stretch(path: &Path, stretch: Stretch) -> io::Result<ByteStream> {
        let file = File::open(path)?;
        let stored_length = file.metadata()?.len().saturating_sub(stretch.start);
        let bytes = Bytes::Deflated(Box::new(Deflated::new(file, stretch)?));
        Ok(ByteStream { bytes, position: 0, stored_length, lost: false })
    }

    /// The most bytes that it can give.
    pub(crate) fn most_bytes(&self) -> u64 {
        let growth = match &self.bytes {
            Bytes::Plain(_) | Bytes::Scratch(_) => 1,
            Bytes::Deflated(_) => DEFLATE_LIMIT,
            Bytes::Frames(_) => zstd::MOST_EXPANDED,
        };
        self.stored_length.saturating_mul(growth)
    }

    /// The bytes that decompression goes back to, beyond a fixed amount.
    pub(crate) fn window(&self) -> u64 {
        match &self.bytes {
            Bytes::Frames(frames) => frames.window(),
            Bytes::Plain(_) | Bytes::Scratch(_) | Bytes::Deflated(_) => 0,
        }
    }

    /// The bytes of a file that were decompressed before, as many as there are.
    pub(crate) fn decompressed(mut file: ScratchFile, length: u64) -> io::Result<ByteStream> {
        file.rewind()?;
        let bytes = Bytes::Scratch(BufReader::with_capacity(BUFFER, file));
        Ok(ByteStream { bytes, position: 0, stored_length: length, lost: false })
    }

    /// Takes the access points of a deflated file from a folder, or finds them while it is read: see [`Deflated::index_in`].
    pub(crate) fn index_in(&mut self, folder: &IndexFolder, path: &Path, holds: u64) {
        if let Bytes::Deflated(deflated) = &mut self.bytes {
            deflated.index_in(folder, path, holds);
        }
    }

    /// Another reader of the same file, where its access points are known.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or has changed.
    pub(crate) fn twin(&self, path: &Path) -> io::Result<Option<ByteStream>> {
        let Bytes::Deflated(deflated) = &self.bytes else { return Ok(None) };
        let twin = deflated.twin(File::open(path)?)?;
        Ok(twin.map(|twin| ByteStream {
            bytes: Bytes::Deflated(Box::new(twin)),
            position: 0,
            stored_length: self.stored_length,
            lost: false,
        }))
    }

    /// Returns `true` if any byte can be read without most of what precedes it.
    pub(crate) fn is_random_access(&self) -> bool {
        match &self.bytes {
            Bytes::Plain(_) | Bytes::Scratch(_) => true,
            Bytes::Deflated(deflated) => deflated.is_indexed(),
            Bytes::Frames(_) => false,
        }
    }

    /// Returns `true` if access points of it can be found.
    pub(crate) fn can_be_indexed(&self) -> bool {
        matches!(self.bytes, Bytes::Deflated(_))
    }

    /// Returns `true` if access points are found while it is read.
    pub(crate) fn finds_points(&self) -> bool {
        matches!(&self.bytes, Bytes::Deflated(deflated) if deflated.finds_points())
    }

    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self.bytes, Bytes::Deflated(_) | Bytes::Frames(_))
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

    /// Fills `buffer` with the bytes from `offset` on, as far as there are any, and returns how many there are.
    pub(crate) fn read_some_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.seek(offset)?;
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    /// Reads a compressed file to its end, which verifies its checksums. `false` if there are more than `most` bytes up
    /// to there: a few kilobytes can decompress to gigabytes.
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
                Bytes::Deflated(deflated) => deflated.read(buffer),
                Bytes::Frames(frames) => frames.read(buffer),
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
        if self.lost {
            self.rewind()?;
        }
        // A seek within the buffer is free, where a plain seek would discard the buffer. Both offsets are within a file.
        let by = offset as i64 - self.position as i64;
        let sought = match &mut self.bytes {
            Bytes::Plain(reader) => reader.seek_relative(by),
            Bytes::Scratch(reader) => reader.seek_relative(by),
            Bytes::Deflated(deflated) => {
                let sought = deflated.seek(offset);
                if sought.is_err() {
                    // How far it came.
                    self.position = deflated.position();
                }
                sought
            }
            Bytes::Frames(_) => return self.skip_to(offset),
        };
        self.lost = sought.is_err();
        sought?;
        self.position = offset;
        Ok(())
    }

    /// Goes to an offset of data that are decompressed forwards only.
    fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        if offset < self.position {
            self.rewind()?;
        }
        let mut skipped = [0; SKIP];
        while self.position < offset {
            let step = (offset - self.position).min(SKIP as u64) as usize;
            if self.read(&mut skipped[..step])? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Lets go of what a decompressor that only goes forwards has taken in memory, by going back to the first byte.
    pub(crate) fn let_go(&mut self) -> io::Result<()> {
        match self.bytes {
            Bytes::Frames(_) if self.position > 0 => self.rewind(),
            _ => Ok(()),
        }
    }

    fn rewind(&mut self) -> io::Result<()> {
        // Until it is done.
        self.lost = true;
        match &mut self.bytes {
            Bytes::Plain(reader) => {
                reader.seek(SeekFrom::Start(0))?;
            }
            Bytes::Scratch(reader) => {
                reader.seek(SeekFrom::Start(0))?;
            }
            Bytes::Deflated(deflated) => deflated.rewind()?,
            Bytes::Frames(frames) => frames.rewind()?,
        }
        self.position = 0;
        self.lost = false;
        Ok(())
    }
}
