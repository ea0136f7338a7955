//! Decompressing what gzip, block gzip, a parallel compressor, zlib or an archive deflated, from its beginning or from access points.

mod checksum;
mod entry;
mod huffman;
mod index;
mod inflate;
mod input;
mod marks;
mod record;
mod turns;
mod window;
mod wrapper;

use std::io;
use std::path::Path;

use plimsoll_disk::File;

pub use index::IndexFolder;
pub(crate) use wrapper::{Stretch, Wrapper};

use checksum::Checksum;
use index::{Index, Source};
use inflate::{Inflater, Stop};
use record::Recorder;
use wrapper::MAGIC;

/// Bytes that are decompressed at a time while others are skipped.
const SKIP: usize = 64 << 10;

/// A deflated stretch of a file: one stream, or several where they are members of gzip.
pub(crate) struct Deflated {
    inflater: Inflater,
    stretch: Stretch,
    state: State,
    /// The decompressed byte that the first of the inflater is.
    base: u64,
    /// The place in the inflater of the byte that is read next.
    read: usize,
    /// From where on the inflater has decompressed bytes. Before, there may be zeros instead.
    whole_from: usize,
    /// The checksum of the stream so far; `None` if it was not read from its beginning.
    checksum: Option<Checksum>,
    /// The length of the stream so far, modulo 2^32.
    length: u32,
    /// The error that stopped the decompression behind the decompressed bytes.
    failed: Option<io::Error>,
    points: Points,
}

enum State {
    /// Before the first stream, which must be there.
    Start,
    /// Behind a stream.
    Between,
    Inside,
    Trailer,
    End,
}

/// The other places where decompression can begin.
enum Points {
    /// Nowhere.
    None,
    /// Nowhere yet.
    Recorded(Box<Recorder>),
    Known(Index),
}

impl Deflated {
    /// A stretch of a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(crate) fn new(file: File, stretch: Stretch) -> io::Result<Deflated> {
        let mut deflated = Deflated {
            inflater: Inflater::new(file),
            stretch,
            state: State::Start,
            base: 0,
            read: 0,
            whole_from: 0,
            checksum: None,
            length: 0,
            failed: None,
            points: Points::None,
        };
        deflated.rewind()?;
        Ok(deflated)
    }

    /// The data that its access points belong to.
    fn source(&self) -> io::Result<Source> {
        let stamp = self.inflater.input.stamp()?;
        let (start, end) = (self.stretch.start, self.stretch.end(stamp.0));
        Ok(Source { stamp, start, end, wrapper: self.stretch.wrapper.number() })
    }

    /// Takes the access points of this file from a folder. If the folder has none, they are found while the stretch,
    /// which decompresses to about `holds` bytes, is read from its beginning to its end, and written there. If that is
    /// not possible, only time is lost.
    pub(crate) fn index_in(&mut self, folder: &IndexFolder, path: &Path, holds: u64) {
        let opened = folder.file(path).and_then(|place| Ok((place, self.source()?)));
        let Ok((place, source)) = opened else { return };
        self.points = match Index::open(&place, source) {
            Some(index) => Points::Known(index),
            // What was read already may have a point; only a stretch that is read from here on is known to have all.
            None if self.position() <= SKIP as u64 => Recorder::create(&place, source, holds)
                .map_or(Points::None, |made| Points::Recorded(Box::new(made))),
            None => Points::None,
        };
    }

    /// Another reader of the same file, with the access points of this one; none if these are not known.
    ///
    /// # Errors
    /// Returns an error if the file has changed, or its points cannot be opened.
    pub(crate) fn twin(&self, file: File) -> io::Result<Option<Deflated>> {
        let Points::Known(index) = &self.points else { return Ok(None) };
        let mut twin = Deflated::new(file, self.stretch)?;
        twin.points = Points::Known(index.twin(twin.source()?)?);
        Ok(Some(twin))
    }

    /// Returns `true` if decompression can begin elsewhere than at the beginning.
    pub(crate) fn is_indexed(&self) -> bool {
        matches!(self.points, Points::Known(_))
    }

    /// Returns `true` if access points are found while it is read.
    pub(crate) fn finds_points(&self) -> bool {
        matches!(self.points, Points::Recorded(_))
    }

    /// The decompressed byte that is read next.
    pub(crate) fn position(&self) -> u64 {
        self.base + self.read as u64
    }

    /// Reads the next bytes; 0 only at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || !self.advance(buffer.len())? {
            return Ok(0);
        }
        let there = &self.inflater.kept()[self.read..];
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        self.read += count;
        Ok(count)
    }

    /// Rewinds to the first byte.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        match &mut self.points {
            Points::Recorded(_) => self.points = Points::None,
            Points::Known(index) => index.is_head_checked = false,
            Points::None => {}
        }
        self.inflater.forget();
        self.inflater.marks.close();
        (self.state, self.base, self.read, self.whole_from) = (State::Start, 0, 0, 0);
        (self.checksum, self.failed) = (None, None);
        let bit = self.stretch.start.checked_mul(8);
        self.inflater.input.seek(bit.ok_or(io::ErrorKind::InvalidInput)?)
    }

    /// Goes to a decompressed byte.
    ///
    /// # Errors
    /// `UnexpectedEof` if there are fewer; else if the file cannot be read or is damaged.
    pub(crate) fn seek(&mut self, offset: u64) -> io::Result<()> {
        let kept = self.base + self.whole_from as u64..=self.end();
        if !kept.contains(&offset) {
            let point = match &self.points {
                Points::Known(index) => index.before(offset).map(|point| (point, index.points[point].out)),
                Points::None | Points::Recorded(_) => None,
            };
            match point {
                // From here on it is nearer.
                Some((_, out)) if out <= self.end() && offset >= *kept.start() => {}
                None if offset >= *kept.start() => {}
                Some((point, _)) => self.begin_at(point)?,
                None => self.rewind()?,
            }
        }
        while self.end() < offset {
            self.read = self.inflater.end();
            if !self.advance(usize::try_from(offset - self.end()).map_or(SKIP, |left| left.min(SKIP)))? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // It is among the bytes that are there.
        self.read = (offset - self.base) as usize;
        Ok(())
    }

    /// The decompressed byte that follows those that are there.
    fn end(&self) -> u64 {
        self.base + self.inflater.end() as u64
    }

    /// Begins at an access point; from the beginning, if what is kept of it is damaged.
    fn begin_at(&mut self, point: usize) -> io::Result<()> {
        let Points::Known(index) = &mut self.points else { return self.rewind() };
        let index::Point { out, window, .. } = index.points[point];
        if index.restore(point, &mut self.inflater).is_err() {
            self.points = Points::None;
            return self.rewind();
        }
        self.base = out - window;
        self.read = self.inflater.end();
        self.whole_from = self.read;
        self.state = State::Inside;
        (self.checksum, self.failed) = (None, None);
        Ok(())
    }

    /// Decompresses until there are bytes to be read, up to `wanted` if they come at once. `false` at the end.
    fn advance(&mut self, wanted: usize) -> io::Result<bool> {
        self.check_head()?;
        while self.read == self.inflater.end() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            match self.state {
                State::End => return Ok(false),
                State::Start => self.begin_stream()?,
                State::Between => self.begin_next()?,
                State::Inside => self.inflate(wanted)?,
                State::Trailer => self.end_stream()?,
            }
        }
        Ok(true)
    }

    /// Checks what is before the first access point, where it is read next: the checksum at the end may never be reached.
    fn check_head(&mut self) -> io::Result<()> {
        let next = self.position();
        match &mut self.points {
            Points::Known(index) if !index.is_head_checked && index.is_in_head(next) => {
                let bit = self.inflater.input.position();
                let checked = index.check_head(&mut self.inflater.input);
                self.inflater.input.seek(bit)?;
                checked
            }
            Points::Known(_) | Points::Recorded(_) | Points::None => Ok(()),
        }
    }

    fn inflate(&mut self, wanted: usize) -> io::Result<()> {
        let dropped = self.inflater.make_room();
        self.base += dropped as u64;
        self.read -= dropped;
        self.whole_from = self.whole_from.saturating_sub(dropped);
        let out = self.end();
        match &mut self.points {
            Points::Recorded(recorder) => {
                if recorder.reached(out, &mut self.inflater).is_err() {
                    // It is not needed to read the file.
                    self.inflater.marks.close();
                    self.points = Points::None;
                }
            }
            // The checksum at the end may never be reached.
            Points::Known(index) => {
                let point = self.inflater.is_between_blocks().then(|| index.at(out)).flatten();
                if let Some(point) = point {
                    let bit = self.inflater.input.position();
                    index.check_span(point, &mut self.inflater.input)?;
                    self.inflater.input.seek(bit)?;
                }
            }
            Points::None => {}
        }
        let before = self.inflater.end();
        let stopped = self.inflater.inflate(wanted);
        let new = &self.inflater.kept()[before..];
        if let Some(checksum) = &mut self.checksum {
            checksum.update(new);
            self.length = self.length.wrapping_add(new.len() as u32);
        }
        match stopped {
            Ok(Stop::End) => self.state = State::Trailer,
            Ok(Stop::Enough | Stop::Boundary) => {}
            // What is there is read first.
            Err(error) => self.failed = Some(error),
        }
        Ok(())
    }

    /// Begins a stream, whose header comes next.
    fn begin_stream(&mut self) -> io::Result<()> {
        self.checksum = Some(self.stretch.wrapper.begin(&mut self.inflater.input)?);
        self.length = 0;
        self.inflater.begin();
        self.state = State::Inside;
        Ok(())
    }

    /// Begins the next stream, if there is another. Else this was all, and the points that were found can be used.
    fn begin_next(&mut self) -> io::Result<()> {
        if self.stretch.wrapper == Wrapper::Gzip && self.inflater.input.peek()? == Some(MAGIC) {
            return self.begin_stream();
        }
        self.state = State::End;
        self.points = match std::mem::replace(&mut self.points, Points::None) {
            // What cannot be kept is found again.
            Points::Recorded(recorder) => {
                recorder.finish(self.end(), &mut self.inflater).map_or(Points::None, Points::Known)
            }
            points @ (Points::Known(_) | Points::None) => points,
        };
        Ok(())
    }

    /// Reads what follows the last block of a stream.
    fn end_stream(&mut self) -> io::Result<()> {
        let found = self.checksum.take().map(|checksum| (checksum, self.length));
        self.stretch.wrapper.end(&mut self.inflater.input, found)?;
        self.state = State::Between;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
