//! Access points of deflated data, from which their decompression can begin, kept in a file of their own.
//!
//! A point lies between two deflate blocks. It has the bit of the file that the next block begins at, the byte of the decompressed data
//! that this is, and what matches behind it copy of the 32 KiB before it (as zlib's example `zran.c` does, which keeps all of them). The
//! compressed bytes from a point to the next have a digest, as have those before the first: a file that is damaged there is found to be,
//! though the checksum at its end is not reached.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_disk::File;
use plimsoll_memory::{Digest, Digester};

use super::inflate::{Inflater, WINDOW};
use super::input::BitInput;
use super::window::unpack;

/// The most points of a file: points of a larger one are further apart.
pub(super) const MOST: u64 = 2048;

pub(super) const MAGIC: &[u8; 16] = b"plimsoll gzip 3\n";

/// A folder in which the access points of compressed files are kept, each under the digest of the file's absolute path. A file that has
/// another length or time of modification than by then has none, as has one whose compressed data begin elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexFolder(PathBuf);

impl IndexFolder {
    /// In this folder, which is made once there is something to keep.
    pub fn new(folder: impl Into<PathBuf>) -> IndexFolder {
        IndexFolder(folder.into())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file with the points of an image.
    ///
    /// # Errors
    /// Returns an error if the path is empty, or the current folder is not known.
    pub fn file(&self, path: &Path) -> io::Result<PathBuf> {
        let absolute = std::path::absolute(path)?;
        let key = Digest::compute(absolute.as_os_str().as_encoded_bytes());
        Ok(self.0.join(format!("{key}.points")))
    }
}

/// The deflated data that points belong to: a file as it was at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The length of the file, and when it was changed.
    pub(super) stamp: (u64, u64),
    /// The byte of the file that the data, with their header, begin at, and up to which they may go.
    pub(super) start: u64,
    pub(super) end: u64,
    /// The number of what is around them.
    pub(super) wrapper: u64,
}

impl Source {
    pub(super) fn numbers(&self) -> [u64; 5] {
        let Source { stamp: (length, time), start, end, wrapper } = *self;
        [length, time, start, end, wrapper]
    }
}

/// An access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// The decompressed byte.
    pub(super) out: u64,
    /// The bit of the file.
    pub(super) bit: u64,
    /// The offset of its window in the file of points, and its stored length.
    pub(super) at: u64,
    pub(super) stored: u64,
    /// Bytes of the window.
    pub(super) window: u64,
    /// The digest of the stored window.
    pub(super) window_digest: u64,
    /// The digest of the compressed bytes up to the next point.
    pub(super) span: u64,
}

/// The numbers that are written for a point, 8 bytes each, little-endian.
const NUMBERS: usize = 7;
/// The numbers behind the points: their offset and their count, the five that identify the data, the decompressed
/// length, the digest of the compressed bytes before the first point, and the digest of all from the first point on.
const FOOTER: usize = 10;

impl Point {
    pub(super) fn numbers(&self) -> [u64; NUMBERS] {
        let Point { out, bit, at, stored, window, window_digest, span } = *self;
        [out, bit, at, stored, window, window_digest, span]
    }

    fn from_numbers([out, bit, at, stored, window, window_digest, span]: [u64; NUMBERS]) -> Point {
        Point { out, bit, at, stored, window, window_digest, span }
    }
}

pub(super) fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The points of a file that has not changed since they were found.
pub(super) struct Index {
    path: PathBuf,
    file: File,
    pub(super) points: Arc<[Point]>,
    source: Source,
    /// The digest of the compressed bytes before the first point.
    head: u64,
    /// Tells whether they were checked since reading began at the first byte.
    pub(super) is_head_checked: bool,
}

impl Index {
    /// Opens the points of these data; none if there are none, they are of others, or damaged.
    pub(super) fn open(path: &Path, source: Source) -> Option<Index> {
        Index::read(path, source).ok()
    }

    pub(super) fn read(path: &Path, source: Source) -> io::Result<Index> {
        let mut file = File::open(path)?;
        let here = file.len()?;
        let begin = here.checked_sub((FOOTER * 8) as u64).ok_or_else(|| damaged("it is too short"))?;
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(damaged("it has another version"));
        }
        let mut footer = [[0; 8]; FOOTER];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(footer.as_flattened_mut())?;
        let [at, count, length, time, start, end, wrapper, _, head, digest] = footer.map(u64::from_le_bytes);
        if [length, time, start, end, wrapper] != source.numbers() {
            return Err(damaged("it belongs to another file"));
        }
        // Not more than the file has room for, and than are ever written.
        if count > MOST || at.checked_add(count * (NUMBERS * 8) as u64) != Some(begin) {
            return Err(damaged("its parts do not add up"));
        }
        file.seek(SeekFrom::Start(at))?;
        let mut digester = Digester::default();
        let mut points = Vec::with_capacity(count as usize);
        let mut stored = [[[0; 8]; NUMBERS]; 64];
        while points.len() < count as usize {
            let some = (count as usize - points.len()).min(stored.len());
            let stored = &mut stored[..some];
            let bytes = stored.as_flattened_mut().as_flattened_mut();
            file.read_exact(bytes)?;
            digester.update(bytes);
            points.extend(stored.iter().map(|numbers| Point::from_numbers(numbers.map(u64::from_le_bytes))));
        }
        digester.update(footer[..FOOTER - 1].as_flattened());
        if digester.finish() != Digest(digest) {
            return Err(damaged("its digest differs"));
        }
        let (path, points) = (path.into(), points.into());
        Ok(Index { path, file, points, source, head, is_head_checked: false })
    }

    /// The same points, for another reader of the same data.
    ///
    /// # Errors
    /// Returns an error if their file cannot be opened, or this reader is of other data.
    pub(super) fn twin(&self, source: Source) -> io::Result<Index> {
        if source != self.source {
            return Err(damaged("the file has changed since its points were found"));
        }
        let (path, points) = (self.path.clone(), Arc::clone(&self.points));
        let (file, head) = (File::open(&path)?, self.head);
        Ok(Index { path, file, points, source, head, is_head_checked: false })
    }

    /// The last point that is not behind a decompressed byte.
    pub(super) fn before(&self, out: u64) -> Option<usize> {
        self.points.partition_point(|point| point.out <= out).checked_sub(1)
    }

    /// The point that begins at a decompressed byte.
    pub(super) fn at(&self, out: u64) -> Option<usize> {
        self.points.binary_search_by_key(&out, |point| point.out).ok()
    }

    /// Returns `true` if a decompressed byte is before the first point.
    pub(super) fn is_in_head(&self, out: u64) -> bool {
        self.points.first().is_none_or(|first| out < first.out)
    }

    /// Checks the compressed bytes before the first point.
    ///
    /// # Errors
    /// Returns an error if the bytes have changed, or cannot be read.
    pub(super) fn check_head(&mut self, input: &mut BitInput) -> io::Result<()> {
        expect_digest(input, head(&self.points, &self.source), self.head)?;
        self.is_head_checked = true;
        Ok(())
    }

    /// Checks the compressed bytes from a point to the next.
    ///
    /// # Errors
    /// Returns an error if the bytes have changed, or cannot be read.
    pub(super) fn check_span(&self, point: usize, input: &mut BitInput) -> io::Result<()> {
        expect_digest(input, span(&self.points, point, self.source.end), self.points[point].span)
    }

    /// Puts an inflater to a point.
    ///
    /// # Errors
    /// Returns an error if the window is damaged, or the compressed file cannot be read.
    pub(super) fn restore(&mut self, point: usize, inflater: &mut Inflater) -> io::Result<()> {
        let Point { out, bit, at, stored, window, window_digest, .. } = self.points[point];
        if window > out.min(WINDOW as u64) || stored > 3 * WINDOW as u64 {
            return Err(damaged("a window is too long"));
        }
        let mut bytes = vec![0; stored as usize];
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(&mut bytes)?;
        if Digest::compute(&bytes) != Digest(window_digest) {
            return Err(damaged("a window has changed"));
        }
        unpack(&bytes, inflater.begin_behind(window as usize))
            .ok_or_else(|| damaged("a window is invalid"))?;
        inflater.input.seek(bit)
    }
}

fn expect_digest(input: &mut BitInput, bytes: Range<u64>, digest: u64) -> io::Result<()> {
    match input.digest(bytes.start, bytes.end)? == Digest(digest) {
        true => Ok(()),
        false => Err(damaged("bytes have changed since they were first read")),
    }
}

/// The bytes of the compressed file before the first point, or all where there is none, that which the point is in included.
pub(super) fn head(points: &[Point], source: &Source) -> Range<u64> {
    source.start..points.first().map_or(source.end, |first| first.bit.div_ceil(8))
}

/// The bytes of the compressed file from a point to the next, or to where the data end, those that both are in included.
pub(super) fn span(points: &[Point], point: usize, end: u64) -> Range<u64> {
    let end = points.get(point + 1).map_or(end, |next| next.bit.div_ceil(8));
    points[point].bit / 8..end
}
