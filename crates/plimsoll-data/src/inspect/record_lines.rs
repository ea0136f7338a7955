//! A file of JSON values, one on each line, that is read one value at a time: reading takes memory for the longest line and for the values
//! that are kept, however long the file is.

use std::io::{BufRead, BufReader};
use std::path::Path;

use plimsoll_disk::File;
use plimsoll_memory::{Budget, Bytes, MapError, OverBudget, Reservation};
use serde::de::DeserializeOwned;

/// The longest line that is read. The longest line that is written lists a data set's labels.
const LONGEST: usize = 256 << 10;

/// The bytes of the reader's buffer.
const BUFFER: usize = 16 << 10;

/// The most heap that a byte of a line takes while it is parsed: `[],` is a list of 24 bytes, and a growing list has a capacity of up to
/// twice its length and is copied from one half as large.
const HEAP_PER_BYTE: u64 = 24;

/// Lines that are read within a budget.
pub(crate) struct RecordLines {
    file: BufReader<File>,
    line: Vec<u8>,
    /// The length of the longest line so far.
    longest: usize,
    room: Room,
}

impl RecordLines {
    /// Opens a file; `None` if it cannot be opened.
    ///
    /// # Errors
    /// If the budget has no room for the reader's buffer.
    pub(crate) fn open(path: &Path, budget: &Budget) -> Result<Option<RecordLines>, MapError> {
        let mut room = Room { budget: budget.clone(), needed: 0, held: None };
        room.add(BUFFER as u64)?;
        let Ok(file) = File::open(path) else { return Ok(None) };
        let file = BufReader::with_capacity(BUFFER, file);
        Ok(Some(RecordLines { file, line: Vec::new(), longest: 0, room }))
    }

    /// The budget that reading takes if the longest line has `longest` bytes and the kept values take `kept` bytes.
    pub(crate) fn bytes(longest: usize, kept: usize) -> Bytes {
        in_steps(BUFFER as u64 + longest as u64 * (HEAP_PER_BYTE + 1) + kept as u64)
    }

    /// Reserves memory for a value that is kept beyond the next line.
    ///
    /// # Errors
    /// If the budget has none.
    pub(crate) fn keep(&mut self, bytes: usize) -> Result<(), MapError> {
        Ok(self.room.add(bytes as u64)?)
    }

    /// The value of the next line; `None` if there is none, it is too long, or it is not such a value.
    ///
    /// # Errors
    /// If the budget has no room for parsing the line.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, MapError> {
        self.line.clear();
        loop {
            let Ok(bytes) = self.file.fill_buf() else { return Ok(None) };
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            let length = self.line.len() + taken.len();
            // The last line of a file that was cut off has no end.
            if length > LONGEST || taken.is_empty() && end.is_none() {
                return Ok(None);
            }
            if length > self.longest {
                self.room.add((length - self.longest) as u64 * (HEAP_PER_BYTE + 1))?;
                self.longest = length;
            }
            self.line.reserve_exact(taken.len());
            self.line.extend_from_slice(taken);
            let read = taken.len() + usize::from(end.is_some());
            self.file.consume(read);
            if end.is_some() {
                return Ok(serde_json::from_slice(&self.line).ok());
            }
        }
    }

    /// Returns `true` if all lines were read.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.file.fill_buf().is_ok_and(<[u8]>::is_empty)
    }
}

/// Bytes of a budget that are reserved as they turn out to be needed.
struct Room {
    budget: Budget,
    needed: u64,
    held: Option<Reservation>,
}

impl Room {
    /// Reserves more bytes.
    fn add(&mut self, bytes: u64) -> Result<(), OverBudget> {
        self.needed = self.needed.saturating_add(bytes);
        if self.held.as_ref().is_none_or(|held| held.bytes() < Bytes(self.needed)) {
            // The old reservation makes room for the new one, which includes it.
            self.held = None;
            self.held = Some(self.budget.reserve("fingerprint", in_steps(self.needed))?);
        }
        Ok(())
    }
}

/// Rounds the needed bytes up to a multiple of a step: a reservation for each value would cost more than the value.
fn in_steps(needed: u64) -> Bytes {
    const STEP: u64 = 64 << 10;
    Bytes(needed.div_ceil(STEP).saturating_mul(STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_many_lines_takes_the_memory_of_its_longest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let line = format!("{:?}\n", vec![7; 500]);
        std::fs::write(&path, line.repeat(5000)).unwrap();
        let budget = Budget::new(Bytes::mib(64));
        let mut lines = RecordLines::open(&path, &budget).unwrap().unwrap();
        for _ in 0..5000 {
            assert_eq!(lines.next::<Vec<u32>>().unwrap(), Some(vec![7; 500]));
        }
        assert!(lines.is_at_end());
        assert!(budget.peak() <= Bytes(128 << 10), "{}", budget.peak());
        assert_eq!(lines.next::<Vec<u32>>().unwrap(), None);
        drop(lines);
        assert_eq!(budget.used(), Bytes::ZERO);
    }

    #[test]
    fn a_line_that_is_cut_off_or_too_long_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let budget = Budget::new(Bytes::mib(64));
        std::fs::write(&path, "[1]\n[2]").unwrap();
        let mut lines = RecordLines::open(&path, &budget).unwrap().unwrap();
        assert_eq!(lines.next::<Vec<u32>>().unwrap(), Some(vec![1]));
        assert_eq!(lines.next::<Vec<u32>>().unwrap(), None);
        std::fs::write(&path, vec![b' '; LONGEST + 2]).unwrap();
        let mut lines = RecordLines::open(&path, &budget).unwrap().unwrap();
        assert_eq!(lines.next::<Vec<u32>>().unwrap(), None);
        assert!(RecordLines::open(&folder.path().join("none"), &budget).unwrap().is_none());
    }
}
