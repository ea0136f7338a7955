//! Chunks of a PNG file (W3C PNG, third edition, section 5) before the image data: size, samples, orientation. The decoder would
//! take memory for rows as soon as it knows the width.

use std::io::{self, BufReader, Read};
use std::path::Path;

use plimsoll_disk::File;
use plimsoll_memory::Bytes;

use super::format::Format;
use super::header::Header;
use super::orientation::Turn;
use crate::ImageError;
use crate::raster::Extent;

/// The bytes that each PNG starts with.
const SIGNATURE: u64 = 8;
/// The longest chunk of Exif metadata that is looked into.
const LONGEST_EXIF: u32 = 1 << 16;

/// Reads chunks up to the first with image data.
pub(super) fn header(
    path: &Path,
    mut file: BufReader<File>,
    file_bytes: Bytes,
) -> Result<Header, ImageError> {
    let damaged =
        |problem: String| ImageError::Damaged { path: path.into(), format: Format::Png.name(), problem };
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::UnexpectedEof => ImageError::CutOff { path: path.into(), length: file_bytes },
        _ => ImageError::io(path, source),
    };
    file.seek_relative(SIGNATURE as i64).map_err(failed)?;
    let mut found: Option<Header> = None;
    let mut place = SIGNATURE;
    loop {
        let mut start = [0; 8];
        file.read_exact(&mut start).map_err(failed)?;
        let [l0, l1, l2, l3, kind @ ..] = start;
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        place += 12 + u64::from(length);
        if place > file_bytes.0 {
            return Err(ImageError::CutOff { path: path.into(), length: file_bytes });
        }
        match (&kind, &mut found) {
            (b"IHDR", None) if length == 13 => {
                let mut fields = [0; 17];
                file.read_exact(&mut fields).map_err(failed)?;
                let [w0, w1, w2, w3, h0, h1, h2, h3, bits, colour, ..] = fields;
                let channels = match colour {
                    0 => 1,
                    2 | 3 => 3,
                    4 => 2,
                    6 => 4,
                    _ => return Err(damaged(format!("{colour} is not a colour type"))),
                };
                let number = |bytes| u32::from_be_bytes(bytes) as usize;
                let extent = Extent { height: number([h0, h1, h2, h3]), width: number([w0, w1, w2, w3]) };
                let bits = if bits == 16 { 16 } else { 8 };
                found = Some(Header {
                    format: Format::Png,
                    turn: Turn::NONE,
                    extent,
                    channels,
                    bits,
                    file_bytes,
                });
                continue;
            }
            (b"IDAT", Some(header)) => return Ok(*header),
            (b"IHDR" | b"IDAT" | b"IEND", _) => {
                return Err(damaged("its header or its image data are missing".into()));
            }
            // Transparent colours become a channel of alpha.
            (b"tRNS", Some(header)) if matches!(header.channels, 1 | 3) => header.channels += 1,
            (b"eXIf", Some(header)) if length <= LONGEST_EXIF => {
                let mut exif = vec![0; length as usize];
                file.read_exact(&mut exif).map_err(failed)?;
                if let Some(orientation) = image::metadata::Orientation::from_exif_chunk(&exif) {
                    header.turn = orientation.into();
                }
                file.seek_relative(4).map_err(failed)?;
                continue;
            }
            _ => {}
        }
        // What the chunk has, and its check sum.
        file.seek_relative(i64::from(length) + 4).map_err(failed)?;
    }
}
