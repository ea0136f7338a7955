//! Files of lines, read a bounded line at a time.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use plimsoll_disk::File;

/// The most bytes of a line of a fold's files that is read: ten times what the most classes take.
pub const LONGEST_LINE: u64 = 256 << 10;

/// Passes each line of a file, with its newline if it has one, and the offset of its end, until the function returns `false`. A line of
/// more than `longest` bytes is passed in pieces. A missing file has no lines.
///
/// # Errors
/// Returns an error if the file exists but cannot be read.
pub fn each_line(path: &Path, longest: u64, each: impl FnMut(&[u8], u64) -> bool) -> io::Result<()> {
    each_line_behind(path, 0, longest, each)
}

/// Passes the lines of a file from an offset on, at which a line ended.
///
/// # Errors
/// Returns an error if the file exists but cannot be read.
pub fn each_line_behind(
    path: &Path,
    offset: u64,
    longest: u64,
    mut each: impl FnMut(&[u8], u64) -> bool,
) -> io::Result<()> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut lines = BufReader::new(file);
    let (mut line, mut end) = (Vec::new(), offset);
    loop {
        line.clear();
        let read = lines.by_ref().take(longest).read_until(b'\n', &mut line)?;
        end += read as u64;
        if read == 0 || !each(&line, end) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_with_where_they_end_and_long_ones_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let read = |longest, most: usize| {
            let mut found = Vec::new();
            let each = |line: &[u8], end| {
                found.push((String::from_utf8(line.to_vec()).unwrap(), end));
                found.len() < most
            };
            each_line(&path, longest, each).unwrap();
            found
        };
        assert_eq!(read(8, 9), []);
        std::fs::write(&path, "a\nbcdef\ng").unwrap();
        let whole = [("a\n".to_string(), 2), ("bcdef\n".to_string(), 8), ("g".to_string(), 9)];
        assert_eq!(read(8, 9), whole);
        assert_eq!(read(8, 2), whole[..2]);
        let mut behind = Vec::new();
        each_line_behind(&path, 2, 8, |line, end| {
            behind.push((String::from_utf8(line.to_vec()).unwrap(), end));
            true
        })
        .unwrap();
        assert_eq!(behind, whole[1..]);
        let pieces = [("a\n", 2), ("bcd", 5), ("ef\n", 8), ("g", 9)];
        assert_eq!(read(3, 9), pieces.map(|(line, end)| (line.to_string(), end)));
    }
}
