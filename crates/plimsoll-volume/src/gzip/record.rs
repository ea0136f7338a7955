//! Finding the access points of a file while it is read.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_disk::atomic::{self, AtomicFile, BUFFER};
use plimsoll_memory::{Digest, Digester};

use super::index::{Index, MAGIC, MOST, Point, Source, damaged, head, span};
use super::inflate::{Inflater, WINDOW};
use super::window::pack;

/// Decompressed bytes between two points, at least.
const SPACING: u64 = 32 << 10;

/// The most bytes of all points in a folder: the points of files of about 50 GB.
const MOST_KEPT: u64 = 8 << 30;

/// Windows take at most this part of the compressed data.
const SHARE: u64 = 4;

/// Removes what killed processes left in a folder of points, and the oldest points, until the others take at most `most` bytes.
fn tidy(folder: &Path, most: u64) -> io::Result<()> {
    atomic::sweep(folder)?;
    let mut files = Vec::new();
    for entry in plimsoll_disk::entries(folder)? {
        let path = entry?;
        let metadata = plimsoll_disk::metadata(&path)?;
        files.push((metadata.modified()?, metadata.len(), path));
    }
    files.sort();
    let mut all: u64 = files.iter().map(|(_, length, _)| length).sum();
    for (_, length, path) in files {
        if all <= most {
            break;
        }
        plimsoll_disk::remove_file(&path)?;
        all -= length;
    }
    Ok(())
}

/// Writes down the points of a file while it is decompressed from its beginning.
pub(super) struct Recorder {
    path: PathBuf,
    file: BufWriter<AtomicFile>,
    source: Source,
    /// Decompressed bytes between two points.
    spacing: u64,
    points: Vec<Point>,
    written: u64,
    /// The window of the last point, until nothing reaches it any more.
    window: Option<Vec<u8>>,
}

impl Recorder {
    /// A recorder for data of about `holds` decompressed bytes.
    pub(super) fn create(path: &Path, source: Source, holds: u64) -> io::Result<Recorder> {
        if let Some(folder) = path.parent() {
            plimsoll_disk::create_dir_all(folder)?;
        }
        let mut file = BufWriter::with_capacity(BUFFER, AtomicFile::create(path)?);
        file.write_all(MAGIC)?;
        Ok(Recorder {
            path: path.into(),
            file,
            source,
            spacing: SPACING.max(holds.div_ceil(MOST - 1)),
            points: Vec::new(),
            written: MAGIC.len() as u64,
            window: None,
        })
    }

    /// Is told that the decompressed byte `out` comes next.
    pub(super) fn reached(&mut self, out: u64, inflater: &mut Inflater) -> io::Result<()> {
        let last = self.points.last().map_or(0, |last| last.out);
        if out - last >= WINDOW as u64 {
            self.close(inflater)?;
        }
        let bit = inflater.input.position();
        let compressed = (bit / 8).saturating_sub(self.source.start);
        let is_due = out - last >= self.spacing && self.written <= compressed / SHARE + WINDOW as u64;
        if is_due && inflater.is_between_blocks() && (self.points.len() as u64) < MOST {
            self.close(inflater)?;
            let window = inflater.window();
            self.points.push(Point {
                out,
                bit,
                at: 0,
                stored: 0,
                window: window.len() as u64,
                window_digest: 0,
                span: 0,
            });
            self.window = Some(window.to_vec());
            inflater.marks.begin(inflater.end());
        }
        Ok(())
    }

    /// Writes what is used of the last point's window.
    fn close(&mut self, inflater: &mut Inflater) -> io::Result<()> {
        if let (Some(window), Some(point)) = (self.window.take(), self.points.last_mut()) {
            let packed = pack(&window, &inflater.marks.runs(window.len()));
            inflater.marks.close();
            (point.at, point.stored) = (self.written, packed.len() as u64);
            point.window_digest = Digest::compute(&packed).0;
            self.file.write_all(&packed)?;
            self.written += packed.len() as u64;
        }
        Ok(())
    }

    /// Is told that this was all, and the checksums were right. The points can be used from now on.
    pub(super) fn finish(mut self, out: u64, inflater: &mut Inflater) -> io::Result<Index> {
        self.close(inflater)?;
        let bytes = head(&self.points, &self.source);
        let Digest(of_head) = inflater.input.digest(bytes.start, bytes.end)?;
        for point in 0..self.points.len() {
            let bytes = span(&self.points, point, self.source.end);
            let Digest(digest) = inflater.input.digest(bytes.start, bytes.end)?;
            self.points[point].span = digest;
        }
        if inflater.input.stamp()? != self.source.stamp {
            return Err(damaged("the file has changed while it was read"));
        }
        let mut digester = Digester::default();
        let [length, time, start, end, wrapper] = self.source.numbers();
        let count = self.points.len() as u64;
        let footer = [self.written, count, length, time, start, end, wrapper, out, of_head];
        // They are read again from the file.
        for number in std::mem::take(&mut self.points).iter().flat_map(Point::numbers).chain(footer) {
            let bytes = number.to_le_bytes();
            digester.update(&bytes);
            self.file.write_all(&bytes)?;
        }
        self.file.write_all(&digester.finish().0.to_le_bytes())?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()?;
        if let Some(folder) = self.path.parent() {
            // What is not removed now is when the next are written.
            let _ = tidy(folder, MOST_KEPT);
        }
        Index::read(&self.path, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_points_make_room_for_others() {
        let folder = tempfile::tempdir().unwrap();
        for (name, age) in [("old", 3), ("older", 5), ("new", 1)] {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 1000]).unwrap();
            let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        tidy(folder.path(), 2500).unwrap();
        let names = plimsoll_disk::read_dir(folder.path()).unwrap();
        assert_eq!(names, ["new", "old"].map(|name| folder.path().join(name)));
    }
}
