//! The directory of a TIFF file (TIFF 6.0, section 2). The decoder takes memory for as many values as an entry claims, before it
//! knows whether they are there, so entries are checked first.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use plimsoll_disk::File;
use plimsoll_memory::Bytes;

use super::format::Format;
use crate::ImageError;

/// The most values of an entry: strips or tiles of an image. The decoder takes 32 bytes for each.
const MOST_VALUES: u64 = 1 << 14;

/// Baseline entries, which decoders read; profiles and private entries have larger numbers.
const BASELINE: std::ops::RangeInclusive<u16> = 254..=532;

/// The tag that marks an image as a smaller copy of another in the file (bit 0), or as its mask (bit 2).
const SUBFILE_KIND: u16 = 254;
const COPY_OR_MASK: u32 = 0b101;

/// The most directories that are read: more than an image and its smaller copies have.
const MOST_DIRECTORIES: usize = 32;

/// Checks the directory of the first image, and that there is no second one but smaller copies of it, which are passed over; goes back to
/// the start.
pub(super) fn check(path: &Path, file: &mut BufReader<File>, file_bytes: Bytes) -> Result<(), ImageError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::UnexpectedEof => ImageError::CutOff { path: path.into(), length: file_bytes },
        _ => ImageError::io(path, source),
    };
    let unsupported =
        |feature: String| ImageError::Unsupported { path: path.into(), format: Format::Tiff.name(), feature };
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(failed)?;
    let [order, _, _, _, place @ ..] = start;
    let order = Order { is_big: order == b'M' };
    let mut place = order.long(place);
    for number in 0..MOST_DIRECTORIES {
        file.seek(SeekFrom::Start(u64::from(place))).map_err(failed)?;
        let directory = Directory::read(file, order).map_err(failed)?;
        if number == 0 {
            if let Some((tag, values)) = directory.longest.filter(|(_, values)| *values > MOST_VALUES) {
                let feature = format!("{values} values in entry {tag}, more than {MOST_VALUES}");
                return Err(unsupported(feature));
            }
            if directory.most_bytes > file_bytes.0 {
                return Err(ImageError::CutOff { path: path.into(), length: file_bytes });
            }
        } else if directory.subfile_kind & COPY_OR_MASK == 0 {
            return Err(unsupported("more than one page".into()));
        }
        place = directory.next;
        if place == 0 {
            return file.rewind().map_err(failed);
        }
    }
    Err(unsupported(format!("more than {MOST_DIRECTORIES} directories")))
}

/// The order of a file's bytes.
#[derive(Clone, Copy)]
struct Order {
    is_big: bool,
}

impl Order {
    fn short(self, bytes: [u8; 2]) -> u16 {
        if self.is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    fn long(self, bytes: [u8; 4]) -> u32 {
        if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

/// The entries of a directory that are read.
struct Directory {
    /// The baseline entry with the most values, and how many they are.
    longest: Option<(u16, u64)>,
    /// The most bytes that an entry claims.
    most_bytes: u64,
    subfile_kind: u32,
    /// The place of the next directory; 0 if there is none.
    next: u32,
}

impl Directory {
    fn read(file: &mut impl Read, order: Order) -> io::Result<Directory> {
        let mut found = Directory { longest: None, most_bytes: 0, subfile_kind: 0, next: 0 };
        let mut count = [0; 2];
        file.read_exact(&mut count)?;
        for _ in 0..order.short(count) {
            let mut entry = [0; 12];
            file.read_exact(&mut entry)?;
            let [t0, t1, k0, k1, n0, n1, n2, n3, value @ ..] = entry;
            let (tag, values) = (order.short([t0, t1]), u64::from(order.long([n0, n1, n2, n3])));
            // Bytes of a value of each type, from 1.
            let size = match order.short([k0, k1]) {
                3 | 8 => 2,
                4 | 9 | 11 | 13 => 4,
                5 | 10 | 12 => 8,
                _ => 1,
            };
            if tag == SUBFILE_KIND {
                found.subfile_kind = order.long(value);
            }
            if BASELINE.contains(&tag) && found.longest.is_none_or(|(_, most)| values > most) {
                found.longest = Some((tag, values));
            }
            found.most_bytes = found.most_bytes.max(values * size);
        }
        let mut next = [0; 4];
        file.read_exact(&mut next)?;
        found.next = order.long(next);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use crate::DecodeOptions;
    use crate::decode::ImageFile;

    /// A grey TIFF of one pixel for each kind of subfile, in either order of bytes.
    fn pages(kinds: &[u32], is_big: bool) -> Vec<u8> {
        let short = |number: u16| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        let long = |number: u32| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        let entries = |kind: u32| {
            [
                (254, kind),
                (256, 1),
                (257, 1),
                (258, 8),
                (259, 1),
                (262, 1),
                (273, 8),
                (277, 1),
                (278, 1),
                (279, 1),
            ]
        };
        let mut bytes = if is_big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        // The pixel lies behind the header, which a byte fills up.
        bytes.extend(long(10));
        bytes.extend([200, 0]);
        for (number, kind) in kinds.iter().enumerate() {
            let all = entries(*kind);
            let end = bytes.len() + 2 + 12 * all.len() + 4;
            bytes.extend(short(all.len() as u16));
            for (tag, value) in all {
                bytes.extend([short(tag), short(4)].concat());
                bytes.extend([long(1), long(value)].concat());
            }
            bytes.extend(long(if number + 1 < kinds.len() { end as u32 } else { 0 }));
        }
        bytes
    }

    #[test]
    fn a_second_page_is_refused_and_a_smaller_copy_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pages.tif");
        let open = |kinds: &[u32], is_big| {
            std::fs::write(&path, pages(kinds, is_big)).unwrap();
            ImageFile::open(&path, &DecodeOptions::default())
        };
        for is_big in [false, true] {
            for kinds in [&[0][..], &[0, 1], &[0, 1, 1, 4], &[2]] {
                assert_eq!(open(kinds, is_big).unwrap().extent().pixels(), 1, "{kinds:?}");
            }
            for kinds in [&[0, 0][..], &[0, 1, 0], &[2, 2, 2]] {
                let error = open(kinds, is_big).unwrap_err().to_string();
                assert!(error.contains("pages.tif is a TIFF with more than one page"), "{error}");
            }
            let error = open(&[1; 33], is_big).unwrap_err().to_string();
            assert!(error.contains("more than 32 directories"), "{error}");
        }
        // A chain that comes back to its beginning ends, too.
        let mut looped = pages(&[1], false);
        let last = looped.len() - 4;
        looped[last..].copy_from_slice(&10u32.to_le_bytes());
        std::fs::write(&path, looped).unwrap();
        let error = ImageFile::open(&path, &DecodeOptions::default()).unwrap_err().to_string();
        assert!(error.contains("more than 32 directories"), "{error}");
    }
}
