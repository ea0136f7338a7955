//! The directory of a TIFF file (TIFF 6.0, section 2). The decoder takes memory for as many values as an entry claims, before it
//! knows whether they are there, so entries are checked first.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use plimsoll_disk::File;
use plimsoll_memory::Bytes;

use super::header::Format;
use crate::ImageError;

/// The most values of an entry: strips or tiles of an image. The decoder takes 32 bytes for each.
const MOST_VALUES: u64 = 1 << 14;

/// Baseline entries, which decoders read; profiles and private entries have larger numbers.
const BASELINE: std::ops::RangeInclusive<u16> = 254..=532;

/// Checks the first directory, and goes back to the start.
pub(super) fn check(path: &Path, file: &mut BufReader<File>, file_bytes: Bytes) -> Result<(), ImageError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::UnexpectedEof => ImageError::CutOff { path: path.into(), length: file_bytes },
        _ => ImageError::io(path, source),
    };
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(failed)?;
    let [order, _, _, _, place @ ..] = start;
    let is_big = order == b'M';
    let short = |bytes: [u8; 2]| if is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
    let long = |bytes: [u8; 4]| if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
    file.seek(SeekFrom::Start(u64::from(long(place)))).map_err(failed)?;
    let mut count = [0; 2];
    file.read_exact(&mut count).map_err(failed)?;
    for _ in 0..short(count) {
        let mut entry = [0; 12];
        file.read_exact(&mut entry).map_err(failed)?;
        let [t0, t1, k0, k1, n0, n1, n2, n3, ..] = entry;
        let (tag, values) = (short([t0, t1]), u64::from(long([n0, n1, n2, n3])));
        // Bytes of a value of each type, from 1.
        let size = match short([k0, k1]) {
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 => 8,
            _ => 1,
        };
        if BASELINE.contains(&tag) && values > MOST_VALUES {
            return Err(ImageError::Unsupported {
                path: path.into(),
                format: Format::Tiff.name(),
                feature: format!("{values} values in entry {tag}, of which at most {MOST_VALUES} are read"),
            });
        }
        if values * size > file_bytes.0 {
            return Err(ImageError::CutOff { path: path.into(), length: file_bytes });
        }
    }
    file.rewind().map_err(failed)
}
