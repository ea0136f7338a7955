//! Writing planes as pages of a TIFF file (TIFF 6.0), plane by plane and each compressed by itself.
//!
//! All pages come first and their directories behind them, so that nothing that was written is gone back to but the place of the first
//! directory in the header.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use plimsoll_disk::atomic::AtomicFile;

use crate::{ElementType, Spacing};

/// Little-endian, the number of the format, and the place of the first directory, which is known at the end.
const HEADER: [u8; 8] = [b'I', b'I', 42, 0, 0, 0, 0, 0];
/// The offset of that place in the header.
const FIRST: u64 = 4;

/// Entries of a directory.
const ENTRIES: u16 = 10;
/// Bytes of a directory: how many entries there are, the entries, and the place of the next directory.
const DIRECTORY: u64 = 2 + 12 * ENTRIES as u64 + 4;

/// Types of entries.
const SHORT: u16 = 3;
const LONG: u16 = 4;

/// A TIFF file that is being written.
pub(crate) struct StackWriter {
    path: PathBuf,
    /// None once something failed.
    state: Option<State>,
    compression: Compression,
    element_type: ElementType,
    extent: [u32; 2],
    /// The spacing of the pages. A single page has none.
    spacing: Option<Spacing>,
    /// Bytes of a page, and the remaining bytes of the present one.
    page: usize,
    left: usize,
    /// The offset of the present page in the file.
    start: u32,
    /// The offset and the compressed length of each page.
    pages: Vec<[u32; 2]>,
}

enum State {
    /// Between pages.
    Between(BufWriter<AtomicFile>),
    /// Within one.
    Within(Box<ZlibEncoder<BufWriter<AtomicFile>>>),
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "a TIFF file has at most 4 GiB")
}

impl StackWriter {
    /// Begins a file of pages of this number of rows and columns of unsigned whole numbers. If `spacing` is given, it
    /// is written beside the file at the end, unless it exists; a different one is an error.
    pub(crate) fn start(
        path: PathBuf,
        mut file: BufWriter<AtomicFile>,
        extent: [usize; 2],
        element_type: ElementType,
        spacing: Option<Spacing>,
        compression: Compression,
    ) -> io::Result<StackWriter> {
        // Before pages are written, which may be long.
        if let Some(spacing) = spacing {
            crate::spacing::is_said(&path, spacing)?;
        }
        let [height, width] = extent.map(|side| u32::try_from(side).map_err(|_| too_long()));
        let page = extent[0].saturating_mul(extent[1]).saturating_mul(element_type.size());
        file.write_all(&HEADER)?;
        Ok(StackWriter {
            path,
            state: Some(State::Between(file)),
            compression,
            element_type,
            extent: [height?, width?],
            spacing,
            page,
            left: page,
            start: HEADER.len() as u32,
            pages: Vec::new(),
        })
    }

    /// Takes what follows, of this page and of the next ones.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut encoder = match self.state.take() {
                Some(State::Within(encoder)) => encoder,
                Some(State::Between(file)) => Box::new(ZlibEncoder::new(file, self.compression)),
                None => return Err(io::ErrorKind::BrokenPipe.into()),
            };
            let (now, rest) = bytes.split_at(self.left.min(bytes.len()));
            encoder.write_all(now)?;
            (bytes, self.left) = (rest, self.left - now.len());
            if self.left > 0 {
                self.state = Some(State::Within(encoder));
                continue;
            }
            encoder.try_finish()?;
            let length = u32::try_from(encoder.total_out()).map_err(|_| too_long())?;
            self.pages.push([self.start, length]);
            self.start = self.start.checked_add(length).ok_or_else(too_long)?;
            self.left = self.page;
            self.state = Some(State::Between(encoder.finish()?));
        }
        Ok(())
    }

    /// Writes the directories, and the spacing beside the file. All pages must be whole.
    pub(crate) fn finish(mut self) -> io::Result<BufWriter<AtomicFile>> {
        let Some(State::Between(mut file)) = self.state.take() else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // Directories begin at an even place.
        let end = u64::from(self.start);
        let first = end.next_multiple_of(2);
        file.write_all(&[0][..(first - end) as usize])?;
        for (number, page) in (1..).zip(&self.pages) {
            let next = if number == self.pages.len() { 0 } else { first + number as u64 * DIRECTORY };
            file.write_all(&self.directory(*page, u32::try_from(next).map_err(|_| too_long())?))?;
        }
        file.seek(SeekFrom::Start(FIRST))?;
        file.write_all(&u32::try_from(first).map_err(|_| too_long())?.to_le_bytes())?;
        if let Some(spacing) = self.spacing {
            crate::spacing::write(&self.path, spacing)?;
        }
        Ok(file)
    }

    fn directory(&self, [start, length]: [u32; 2], next: u32) -> Vec<u8> {
        let [height, width] = self.extent;
        let bits = 8 * self.element_type.size() as u32;
        // In ascending order, as readers expect it.
        let entries: [(u16, u16, u32); ENTRIES as usize] = [
            (256, LONG, width),
            (257, LONG, height),
            (258, SHORT, bits),
            // Deflate, with a header of zlib.
            (259, SHORT, 8),
            // 0 is black.
            (262, SHORT, 1),
            // The page is one strip.
            (273, LONG, start),
            (277, SHORT, 1),
            (278, LONG, height),
            (279, LONG, length),
            // Whole numbers without a sign.
            (339, SHORT, 1),
        ];
        let mut bytes = ENTRIES.to_le_bytes().to_vec();
        for (tag, kind, value) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
            // A short number stands in the lower half.
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(next.to_le_bytes());
        bytes
    }
}
