//! Segments of a JPEG file (ITU-T T.81, annex B): the size, without decoding, and whether the end is there.

use std::io::{self, BufReader, Read};
use std::path::Path;

use plimsoll_disk::File;
use plimsoll_memory::Bytes;

use super::format::Format;
use super::header::Header;
use super::orientation::Turn;
use crate::ImageError;
use crate::raster::Extent;

const START_OF_SCAN: u8 = 0xda;
const END_OF_IMAGE: u8 = 0xd9;
const APP1: u8 = 0xe1;
const EXIF: &[u8] = b"Exif\0\0";

/// Reads segments up to the frame header, which has the size.
pub(super) fn header(
    path: &Path,
    mut file: BufReader<File>,
    file_bytes: Bytes,
) -> Result<Header, ImageError> {
    let damaged = |problem: &str| ImageError::Damaged {
        path: path.into(),
        format: Format::Jpeg.name(),
        problem: problem.into(),
    };
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::UnexpectedEof => ImageError::CutOff { path: path.into(), length: file_bytes },
        _ => ImageError::io(path, source),
    };
    let mut turn = Turn::NONE;
    // The first two bytes, the start of the image, were seen when the format was told.
    file.seek_relative(2).map_err(failed)?;
    loop {
        let mut marker = [0; 2];
        file.read_exact(&mut marker).map_err(failed)?;
        if marker[0] != 0xff {
            return Err(damaged("a segment does not start with a marker"));
        }
        while marker[1] == 0xff {
            file.read_exact(&mut marker[1..]).map_err(failed)?;
        }
        let kind = marker[1];
        // Markers without a segment.
        if matches!(kind, 0x01 | 0xd0..=0xd8) {
            continue;
        }
        let mut length = [0; 2];
        file.read_exact(&mut length).map_err(failed)?;
        let length = usize::from(u16::from_be_bytes(length))
            .checked_sub(2)
            .ok_or_else(|| damaged("a segment is shorter than its own length"))?;
        match kind {
            START_OF_SCAN | END_OF_IMAGE => return Err(damaged("no frame header before the first scan")),
            // Huffman tables, arithmetic conditioning and extensions lie among the numbers of frame headers.
            0xc0..=0xcf if !matches!(kind, 0xc4 | 0xc8 | 0xcc) => {
                let mut frame = [0; 6];
                file.read_exact(&mut frame).map_err(failed)?;
                let [bits, h0, h1, w0, w1, components] = frame;
                let unsupported = |feature: String| ImageError::Unsupported {
                    path: path.into(),
                    format: Format::Jpeg.name(),
                    feature,
                };
                if bits != 8 {
                    return Err(unsupported(format!("{bits} bits a sample")));
                }
                let channels = match components {
                    1 => 1,
                    3 => 3,
                    4 => return Err(unsupported("CMYK colours".into())),
                    other => return Err(unsupported(format!("{other} components"))),
                };
                let extent = Extent {
                    height: usize::from(u16::from_be_bytes([h0, h1])),
                    width: usize::from(u16::from_be_bytes([w0, w1])),
                };
                return Ok(Header { format: Format::Jpeg, turn, extent, channels, bits: 8, file_bytes });
            }
            APP1 => {
                let mut segment = vec![0; length];
                file.read_exact(&mut segment).map_err(failed)?;
                if let Some(exif) = segment.strip_prefix(EXIF)
                    && let Some(found) = image::metadata::Orientation::from_exif_chunk(exif)
                {
                    turn = found.into();
                }
            }
            _ => file.seek_relative(length as i64).map_err(failed)?,
        }
    }
}

/// Returns `true` if an end of image follows the beginning of the first scan. A lenient decoder fills in what
/// is missing, so that training would use a picture that is half grey. Thumbnails in metadata, which have ends
/// of their own, precede the scan.
pub(super) fn has_end(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some([0xff, kind, high, low]) = bytes.get(at..at + 4) {
        match *kind {
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            START_OF_SCAN => {
                return bytes
                    .get(at + 2..)
                    .is_some_and(|scan| scan.windows(2).any(|two| two == [0xff, END_OF_IMAGE]));
            }
            _ => at += 2 + usize::from(u16::from_be_bytes([*high, *low])),
        }
    }
    false
}
