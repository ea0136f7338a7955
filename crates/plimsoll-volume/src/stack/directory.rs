//! The first directory of a TIFF file, looked at before the decoder reads it: that one it reads within limits of its own, which let an
//! entry of a few bytes take hundreds of MiB.

use std::io::{self, Read, Seek, SeekFrom};

/// Entries that the decoder reads whenever it reads a directory: what pixels are, and where. Text and private entries stay in the file.
const READ: [u64; 21] =
    [256, 257, 258, 259, 262, 273, 277, 278, 279, 282, 283, 284, 317, 322, 323, 324, 325, 338, 339, 347, 530];

/// The content of the first directory.
pub(super) struct First {
    /// Tells whether another one follows.
    pub(super) is_followed: bool,
    /// The most values of an entry that the decoder reads.
    pub(super) values: u64,
}

/// Reads the first directory entry by entry; none if the file is no TIFF.
///
/// # Errors
/// Returns an error if the file cannot be read, or ends within the directory.
pub(super) fn first(file: &mut (impl Read + Seek)) -> io::Result<Option<First>> {
    file.rewind()?;
    let mut order = [0; 2];
    file.read_exact(&mut order)?;
    let is_little = match &order {
        b"II" => true,
        b"MM" => false,
        _ => return Ok(None),
    };
    let mut numbers = Numbers { file, is_little, is_big: false };
    match numbers.next(2)? {
        42 => {}
        43 => {
            // BigTIFF, which says next how long places are.
            numbers.next(4)?;
            numbers.is_big = true;
        }
        _ => return Ok(None),
    }
    let place = numbers.place()?;
    numbers.file.seek(SeekFrom::Start(place))?;
    let entries = numbers.next(if numbers.is_big { 8 } else { 2 })?;
    let mut values = 0;
    for _ in 0..entries {
        let (tag, kind) = (numbers.next(2)?, numbers.next(2)?);
        if !matches!(kind, 1..=13 | 16..=18) {
            // So much the decoder skips of an entry of a type that it does not know, in BigTIFF as well.
            numbers.next(8)?;
            continue;
        }
        let count = numbers.place()?;
        if READ.contains(&tag) {
            values = count.max(values);
        }
        numbers.place()?;
    }
    Ok(Some(First { is_followed: numbers.place()? != 0, values }))
}

/// The numbers of a file, one after the other.
struct Numbers<'a, F> {
    file: &'a mut F,
    is_little: bool,
    is_big: bool,
}

impl<F: Read> Numbers<'_, F> {
    /// A number of up to eight bytes.
    fn next(&mut self, length: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..length];
        self.file.read_exact(bytes)?;
        if self.is_little {
            bytes.reverse();
        }
        Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Reads a number of values, or an offset.
    fn place(&mut self) -> io::Result<u64> {
        self.next(if self.is_big { 8 } else { 4 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A directory of one entry with this number of values, and `true` if another directory follows.
    fn file(is_big: bool, is_little: bool, tag: u16, count: u32, next: u32) -> Vec<u8> {
        let mut file = if is_little { b"II".to_vec() } else { b"MM".to_vec() };
        let mut put = |length: usize, value: u32| {
            let mut bytes = u64::from(value).to_le_bytes()[..length].to_vec();
            if !is_little {
                bytes.reverse();
            }
            file.extend(bytes);
        };
        let (word, number) = if is_big { (8, 43) } else { (4, 42) };
        put(2, number);
        if is_big {
            put(2, 8);
            put(2, 0);
        }
        put(word, 2 * word as u32);
        put(if is_big { 8 } else { 2 }, 1);
        for (length, value) in [(2, u32::from(tag)), (2, 4), (word, count), (word, 8), (word, next)] {
            put(length, value);
        }
        file
    }

    #[test]
    fn the_longest_entry_that_is_read_is_found_in_all_four_layouts() {
        for (is_big, is_little) in [(false, true), (false, false), (true, true), (true, false)] {
            let read = |tag, next| {
                let found = first(&mut Cursor::new(file(is_big, is_little, tag, 1 << 22, next))).unwrap();
                found.map(|found| (found.values, found.is_followed))
            };
            assert_eq!(read(273, 8), Some((1 << 22, true)));
            // A profile of colours stays in the file.
            assert_eq!(read(34_675, 0), Some((0, false)));
            let whole = file(is_big, is_little, 273, 1, 8);
            assert!(first(&mut Cursor::new(&whole[..whole.len() - 1])).is_err());
        }
        assert!(first(&mut Cursor::new(b"\x89PNG\r\n\x1a\n")).unwrap().is_none());
    }
}
